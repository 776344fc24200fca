//! Care of a store: what must stay ([holds](Care::hold)), what goes by itself ([retention](Policy)), and what is
//! [erased](Care::erase). What is done stands on the store's operator session, with who did it, when and why.

mod about;
mod carry_out;
mod derived;
mod erasures;
mod explain;
mod holds;
mod plan;
mod retention;

use std::sync::Arc;

use rath_core::{Actor, Store};
use rath_store::Embedded;

pub use about::{About, says};
pub use carry_out::Done;
pub use erasures::{Erasure, Erasures};
pub use holds::{Hold, Holds};
pub use plan::{Because, Plan, Refused, Target, WhyNot, Wish};
pub use retention::{Age, Collection, Due, Kept, NotAPolicy, Policy, Rule, Size, Stays};

/// Looks after a store.
pub struct Care {
    embedded: Arc<Embedded>,
    store: Arc<dyn Store>,
    actor: Actor,
}

impl Care {
    /// Care of `store`, in the name of `actor`.
    pub fn new(store: Embedded, actor: Actor) -> Self {
        let embedded = Arc::new(store);
        Self { store: embedded.clone(), embedded, actor }
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }
}
