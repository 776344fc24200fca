//! The first branch to succeed wins.

use super::join::{Join, Kind};
use super::parallel::{Parallel, parallel};

/// Runs branches at the same time and keeps the first one that succeeds: its context and files become those of the
/// session. The others are cancelled and awaited, and recorded as rejected.
///
/// The winner is recorded before the others are cancelled. If the process dies in between, the branch that finished
/// first wins when the run is resumed. Fails if every branch fails.
///
/// ```
/// use rath::prelude::*;
/// use rath::workflow::race;
/// # pollster::block_on(async {
/// let agent = |name: &str, answer: &str| Agent::new(name).model(Scripted::new("scripted").say(answer));
/// let store = InMemory::new();
/// let mut session = store.create(Actor::person("ada"));
/// session.user("What is the capital of Norway?")?;
/// let session = race("ask").branch("one", agent("one", "Oslo.")).branch("two", agent("two", "Oslo.")).forward(session).await?;
/// assert_eq!(session.text().await?.as_deref(), Some("Oslo."));
/// # Ok::<(), rath::Error>(())
/// # }).unwrap();
/// ```
pub fn race(name: impl Into<String>) -> Parallel {
    parallel(name).kind("race").join(Join(Kind::Winner))
}
