//! Reading ahead: while a page of a session is worked on, the next one is read and checked on another thread.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use rath_core::SessionId;
use rath_core::store::{Of, Page, Result, Scan};

use super::read;
use super::readers::Readers;

/// Pages of fewer records are read faster than another thread is woken.
const WORTH_IT: usize = 128;

/// What was asked for last, and what may be asked for next.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Where the last page of a session ended that somebody may want to read on from.
    end: Option<(SessionId, u64)>,
    next: Option<Next>,
    /// The thread that reads, once it was needed. It ends when nobody can ask it any more.
    reader: Option<Sender<Wanted>>,
}

#[derive(Debug)]
struct Next {
    scan: Scan,
    page: Receiver<Result<Page>>,
}

/// A page to be read, and where it is to go.
type Wanted = (Scan, Sender<Result<Page>>);

impl Ahead {
    /// A page of records. Who asks for two of a session in a row, onwards, gets the ones behind them sooner.
    pub(super) fn page(&self, readers: &Arc<Readers>, scan: Scan) -> Result<Page> {
        let here = |scan: &Scan| readers.with(|db| read::page(db, scan));
        let Of::Session { session, from, to } = scan.of else { return here(&scan) };
        if scan.backwards || scan.from_snapshot || scan.limit < WORTH_IT {
            return here(&scan);
        }
        let (goes_on, next) = {
            let mut state = self.lock();
            (state.end == Some((session, from)), state.next.take_if(|next| next.scan == scan))
        };
        let read_before = next.and_then(|next| next.page.recv().ok()).and_then(Result::ok);
        // A page that was the last one may have grown since.
        let page = match read_before.filter(|page| page.more) {
            Some(page) => page,
            None => here(&scan)?,
        };
        let mut state = self.lock();
        state.end = page.more.then_some((session, page.position));
        if goes_on && page.more {
            let scan = Scan { of: Of::Session { session, from: page.position, to }, ..scan };
            state.next = state.ask(readers, scan);
        }
        Ok(page)
    }

    /// Forgets what was read: records have changed.
    pub(super) fn forget(&self) {
        self.lock().next = None;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Has a page read. Where no thread can be had, nobody reads ahead.
    fn ask(&mut self, readers: &Arc<Readers>, scan: Scan) -> Option<Next> {
        if self.reader.is_none() {
            let (ask, asked) = channel::<Wanted>();
            let readers = readers.clone();
            let work = move || {
                for (scan, reply) in asked {
                    let _ = reply.send(readers.with(|db| read::page(db, &scan)));
                }
            };
            std::thread::Builder::new().name("rath-ahead".into()).spawn(work).ok()?;
            self.reader = Some(ask);
        }
        let (reply, page) = channel();
        self.reader.as_ref()?.send((scan.clone(), reply)).ok()?;
        Some(Next { scan, page })
    }
}
