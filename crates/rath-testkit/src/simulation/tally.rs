//! How much happened.

/// What a number of schedules came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Schedules.
    pub schedules: u64,
    /// Batches that the store looked at.
    pub commits: u64,
    /// Records that it acknowledged, repeated ones included.
    pub records: u64,
    /// Batches refused because their sender had been replaced.
    pub fenced: u64,
    /// Batches refused because they came before what they follow.
    pub early: u64,
    /// Sessions given to a process.
    pub grants: u64,
    /// Posts that it accepted, repeated ones included.
    pub posts: u64,
    /// Effects that were done.
    pub effects: u64,
    /// Bodies that were erased.
    pub erased: u64,
    /// Power cuts.
    pub power_cuts: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Tally) {
        self.schedules += other.schedules;
        self.commits += other.commits;
        self.records += other.records;
        self.fenced += other.fenced;
        self.early += other.early;
        self.grants += other.grants;
        self.posts += other.posts;
        self.effects += other.effects;
        self.erased += other.erased;
        self.power_cuts += other.power_cuts;
    }
}
