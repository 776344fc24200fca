//! What becomes of posts.

/// Where a post stands in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// The store has never heard of it.
    #[default]
    Unknown,
    /// It waits in its session's inbox.
    Waiting,
    /// A record says it. Its id stays known, so that it does not come again.
    Taken,
}
