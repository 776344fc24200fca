//! Counts of events in a simulation.

/// The number of events in the simulated schedules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Simulated schedules.
    pub schedules: u64,
    /// Batches that the store handled.
    pub commits: u64,
    /// Acknowledged records, including repeated ones.
    pub records: u64,
    /// Batches refused because of a stale fencing token.
    pub fenced: u64,
    /// Batches refused because they arrived before their predecessors.
    pub early: u64,
    /// Leases granted.
    pub grants: u64,
    /// Accepted posts, including repeated ones.
    pub posts: u64,
    /// Side effects performed.
    pub effects: u64,
    /// Bodies erased.
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
