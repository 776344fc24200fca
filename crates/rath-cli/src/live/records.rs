//! A run as JSON: its records, as they happen.

use std::sync::Arc;

use anyhow::Result;
use rath::agent::{Event, Listener};
use rath::inspect::RecordDetails;
use rath::store::Scan;
use rath::{SessionId, Store};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::output;

/// Prints the records of a line from some place on.
pub(crate) struct Records {
    store: Arc<dyn Store>,
    session: SessionId,
    next: u64,
    wake: (UnboundedSender<()>, UnboundedReceiver<()>),
}

impl Records {
    /// Those behind `seq`.
    pub(crate) fn behind(store: Arc<dyn Store>, session: SessionId, seq: Option<u64>) -> Self {
        Self { store, session, next: seq.map_or(0, |seq| seq + 1), wake: unbounded_channel() }
    }

    /// Hears when there may be more.
    pub(crate) fn listener(&self) -> Listener {
        let wake = self.wake.0.clone();
        Listener::new(move |event| {
            // Words are no records.
            if !matches!(event.what, Event::Delta { .. }) {
                let _ = wake.send(());
            }
        })
    }

    /// Prints records until `work` is over, and what is there then. Where nobody reads them any more, `stop` is told.
    pub(crate) async fn beside<T>(&mut self, work: impl Future<Output = T>, stop: impl Fn()) -> Result<T> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    self.news().await?;
                    return Ok(done);
                }
                _ = self.wake.1.recv() => {
                    while self.wake.1.try_recv().is_ok() {}
                    if !self.news().await? {
                        stop();
                    }
                }
            }
        }
    }

    /// Prints what is there. Says whether somebody still reads.
    pub(crate) async fn news(&mut self) -> Result<bool> {
        loop {
            let page = self.store.scan(Scan::session(self.session, self.next, u64::MAX - 1)).await?;
            for record in &page.records {
                if !output::json_while_read(&RecordDetails::of(record)?)? {
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
