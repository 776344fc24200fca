//! Administration of a store: [holds](StoreAdmin::hold), [retention](RetentionPolicy) and [erasure](StoreAdmin::erase).
//! Every action is recorded in the store's operator session, with the actor, the time and the reason.

mod copies;
mod erasures;
mod execute;
mod explain;
mod holds;
mod plan;
mod retention;
mod subject;

use std::sync::Arc;

use rath_core::{Actor, Store};
use rath_store::Embedded;

pub use erasures::{Erasure, Erasures};
pub use execute::CompletedErasure;
pub use holds::{Hold, Holds};
pub use plan::{Blocker, ErasureRequest, ErasureTarget, PlannedErasure, RefusedRecords, TargetReason};
pub use retention::{
    Age, Collection, DueSession, InvalidRetentionValue, KeepReason, KeptSession, RetentionPolicy, RetentionRule, Size,
};
pub use subject::{SubjectMatches, mentions};

/// Administers a store, in the name of an actor.
pub struct StoreAdmin {
    embedded: Arc<Embedded>,
    store: Arc<dyn Store>,
    actor: Actor,
}

impl StoreAdmin {
    /// Administers `store` in the name of `actor`.
    pub fn new(store: Embedded, actor: Actor) -> Self {
        let embedded = Arc::new(store);
        Self { store: embedded.clone(), embedded, actor }
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }
}
