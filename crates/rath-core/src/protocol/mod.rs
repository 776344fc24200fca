//! The rules by which a store decides what it takes, apart from where it keeps it.
//!
//! [`Rules`] are pure functions on what a store has and what it is offered: whether records follow the head, whether
//! the fence is the current one, what is there already, who may have a session, what becomes of a post. [`commit`]
//! carries a batch through them onto a [`Shelf`], which is a store's own room. Every store decides by these, and the
//! simulator in `rath-testkit` drives the same functions through seeded schedules; so what it finds is a fault of the
//! stores, and what it does not find was looked for in them.

mod commit;
mod inbox;
mod line;
mod rules;

pub use commit::{Offered, Shelf, commit};
pub use inbox::Standing;
pub use line::{Entry, Line, Offer};
pub use rules::{Protocol, Rules};
