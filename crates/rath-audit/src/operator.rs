//! Opens the store's operator session, which other processes may be using.

use std::sync::Arc;
use std::time::Duration;

use rath_core::store::Error as StoreError;
use rath_core::{Actor, ErrorKind, Result, Session, Store};

use tokio::runtime::Handle;

/// The pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// The number of attempts. A writer keeps the operator session only briefly, so one that keeps it for 10 s is stuck.
const ATTEMPTS: usize = 500;

/// Waits, with or without a tokio runtime.
async fn pause(length: Duration) {
    match Handle::try_current().is_ok() {
        true => tokio::time::sleep(length).await,
        false => std::thread::sleep(length),
    }
}

/// Opens the store's operator session, which has the records about the store itself. Waits up to about 10 s if another
/// process is using it. Drop the session as soon as the record is published.
pub async fn operator(store: &Arc<dyn Store>, actor: Actor) -> Result<Session> {
    for _ in 1..ATTEMPTS {
        match store.operator(actor.clone()).await {
            Err(error) if matches!(error.kind(), ErrorKind::Store(StoreError::Locked { .. })) => {
                pause(RETRY_PAUSE).await
            }
            answer => return answer,
        }
    }
    store.operator(actor).await
}
