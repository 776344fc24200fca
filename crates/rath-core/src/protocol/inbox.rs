//! The states of a post.

/// The status of a post in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PostStatus {
    /// The store does not know the post.
    #[default]
    Unknown,
    /// The post is in the inbox of its session.
    Waiting,
    /// A record contains it. The store keeps its id, so that the same post is not accepted again.
    Consumed,
}
