//! Prints the records of a run as JSON while it happens.

use std::sync::Arc;

use anyhow::Result;
use rath::agent::{Event, Observer};
use rath::inspect::RecordDetails;
use rath::store::Scan;
use rath::{SessionId, Store};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::output;

/// Prints the records of a session from a record on.
pub(crate) struct JsonRecords {
    store: Arc<dyn Store>,
    session: SessionId,
    next: u64,
    wake: (UnboundedSender<()>, UnboundedReceiver<()>),
}

impl JsonRecords {
    /// Starts after the record `seq`; with `None`, at the first one.
    pub(crate) fn after(store: Arc<dyn Store>, session: SessionId, seq: Option<u64>) -> Self {
        Self { store, session, next: seq.map_or(0, |seq| seq + 1), wake: unbounded_channel() }
    }

    /// Receives the events of the run, each of which may mean new records.
    pub(crate) fn listener(&self) -> Observer {
        let wake = self.wake.0.clone();
        Observer::new(move |event| {
            // Streamed text is not recorded yet.
            if !matches!(event.what, Event::Delta { .. }) {
                let _ = wake.send(());
            }
        })
    }

    /// Prints new records until `work` is over. If stdout is a closed pipe, calls `stop`.
    pub(crate) async fn print_during<T>(&mut self, work: impl Future<Output = T>, stop: impl Fn()) -> Result<T> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    self.print_new().await?;
                    return Ok(done);
                }
                _ = self.wake.1.recv() => {
                    while self.wake.1.try_recv().is_ok() {}
                    if !self.print_new().await? {
                        stop();
                    }
                }
            }
        }
    }

    /// Prints the new records. Returns false if stdout is a closed pipe.
    pub(crate) async fn print_new(&mut self) -> Result<bool> {
        loop {
            let page = self.store.scan(Scan::session(self.session, self.next, u64::MAX - 1)).await?;
            for record in &page.records {
                if !output::json_while_read("rath.record/1", &RecordDetails::of(record)?)? {
                    return Ok(false);
                }
                self.next = record.seq() + 1;
            }
            if !page.more {
                return Ok(true);
            }
        }
    }
}
