//! Waiting, with or without a runtime.

use std::sync::mpsc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Waits so long: by Tokio's timer where there is a runtime, else by a thread that sleeps.
pub(crate) async fn pause(length: Duration) {
    match Handle::try_current().is_ok() {
        true => tokio::time::sleep(length).await,
        false => on_a_thread(length).await,
    }
}

async fn on_a_thread(length: Duration) {
    // Closed when nobody waits any more: the thread ends then.
    let (waits, closed) = mpsc::channel::<()>();
    let (wake, woken) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = closed.recv_timeout(length);
        let _ = wake.send(());
    });
    let _ = woken.await;
    drop(waits);
}
