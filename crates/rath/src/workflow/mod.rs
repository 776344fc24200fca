//! Workflows: what maps one session to another, and combinators that build larger ones from smaller ones.
//!
//! | combinator | what it does |
//! |---|---|
//! | [`chain`] | one workflow after the other |
//! | [`parallel`], [`map`], [`race`] | branches at the same time, joined by a [`Join`] |
//! | [`retry`], [`repeat`] | again after a failure; again until the work is accepted |
//! | [`choose`], [`when`] | one of several, by a recorded decision |
//! | [`timeout`] | a time limit |
//! | [`gate`] | work that must pass [validators](validator) |
//! | [`compensate`] | steps with an undo |
//! | [`sleep_until`], [`wait_for`] | a durable timer; an event from outside |
//!
//! Each combinator is a [`Workflow`] and one step, so combinators nest to any depth. Each branch is a fork with its own
//! context, files and sandbox. A run survives being killed anywhere: when it is resumed, finished steps and branches are
//! not run again, and recorded decisions are used again.

mod branches;
mod chain;
mod choose;
mod clock;
mod codes;
mod compensate;
mod gate;
mod join;
mod map;
mod parallel;
mod race;
mod repeat;
mod retry;
mod shared_budget;
mod timeout;
pub mod validator;
mod wait;

#[doc(hidden)]
pub use branches::StopTimeout;
pub use chain::{Chain, chain};
pub use choose::{Choose, choose, when};
pub use clock::SkippingClock;
pub use compensate::{Compensate, compensate};
pub use gate::{Gate, OnReject, gate};
pub use join::{Join, OnConflict};
pub use map::{Map, item, map};
pub use parallel::{Parallel, add_branch, parallel};
pub use race::race;
pub use rath_core::{BoxWorkflow, Outline, Workflow, WorkflowName};
pub use repeat::{Repeat, repeat};
pub use retry::{Retry, RetryKey, retry};
pub(crate) use shared_budget::SharedBudget;
pub use timeout::{Timeout, timeout};
pub use wait::{Wait, sleep, sleep_until, wait_for};
