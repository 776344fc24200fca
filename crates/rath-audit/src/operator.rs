//! The store's own session, when others use it too.

use std::sync::Arc;
use std::time::Duration;

use rath_core::store::Error as StoreError;
use rath_core::{Actor, ErrorKind, Result, Session, Store};

use tokio::runtime::Handle;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// Tries, of which each writer needs one: somebody who keeps it for longer is stuck.
const TRIES: usize = 500;

/// Waits so long, with or without a runtime.
async fn pause(length: Duration) {
    match Handle::try_current().is_ok() {
        true => tokio::time::sleep(length).await,
        false => std::thread::sleep(length),
    }
}

/// The store's operator session: records about the store itself go there. Waits its turn, for ten seconds or so; drop it
/// when the record is published.
pub async fn operator(store: &Arc<dyn Store>, actor: Actor) -> Result<Session> {
    for _ in 1..TRIES {
        match store.operator(actor.clone()).await {
            Err(error) if matches!(error.kind(), ErrorKind::Store(StoreError::Held { .. })) => pause(PAUSE).await,
            answer => return answer,
        }
    }
    store.operator(actor).await
}
