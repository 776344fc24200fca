//! Sleeping with or without a Tokio runtime.

use std::sync::mpsc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Sleeps for `length`: with Tokio's timer if there is a runtime, else with a thread.
pub(crate) async fn sleep(length: Duration) {
    match Handle::try_current().is_ok() {
        true => tokio::time::sleep(length).await,
        false => on_a_thread(length).await,
    }
}

async fn on_a_thread(length: Duration) {
    // The channel is closed when this future is dropped, which ends the thread.
    let (waits, closed) = mpsc::channel::<()>();
    let (wake, woken) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = closed.recv_timeout(length);
        let _ = wake.send(());
    });
    let _ = woken.await;
    drop(waits);
}
