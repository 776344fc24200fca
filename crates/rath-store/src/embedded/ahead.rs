//! Reading ahead: while a page of a session is worked on, the next one is read and checked on another thread.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rath_core::SessionId;
use rath_core::store::{Of, Page, Result, Scan};

use super::read;
use super::readers::Readers;

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
}

#[derive(Debug)]
struct Next {
    scan: Scan,
    page: JoinHandle<Result<Page>>,
}

impl Ahead {
    /// A page of a session. Who asks for two in a row, onwards, gets the ones behind them sooner.
    pub(super) fn page(&self, readers: &Arc<Readers>, scan: Scan) -> Result<Page> {
        let Of::Session { session, from, to } = scan.of else { return readers.with(|db| read::page(db, &scan)) };
        if scan.backwards || scan.from_snapshot || scan.limit < WORTH_IT {
            return readers.with(|db| read::page(db, &scan));
        }
        let lock = || self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (goes_on, next) = {
            let mut state = lock();
            let goes_on = state.end == Some((session, from));
            (goes_on, state.next.take_if(|next| next.scan == scan))
        };
        let read_before = next.and_then(|next| next.page.join().ok()).and_then(Result::ok);
        // A page that was the last one may have grown since.
        let page = match read_before.filter(|page| page.more) {
            Some(page) => page,
            None => readers.with(|db| read::page(db, &scan))?,
        };
        let mut state = lock();
        state.end = page.more.then_some((session, page.position));
        if goes_on && page.more {
            let scan = Scan { of: Of::Session { session, from: page.position, to }, ..scan };
            let (readers, wanted) = (readers.clone(), scan.clone());
            let reading = std::thread::Builder::new().name("rath-ahead".into());
            let page = reading.spawn(move || readers.with(|db| read::page(db, &wanted)));
            // Where no thread can be had, nobody reads ahead.
            state.next = page.ok().map(|page| Next { scan, page });
        }
        Ok(page)
    }

    /// Forgets what was read: records are about to change.
    pub(super) fn forget(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).next = None;
    }
}

/// Pages of fewer records are read faster than a thread is started.
const WORTH_IT: usize = 128;
