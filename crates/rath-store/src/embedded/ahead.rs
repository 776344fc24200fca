//! Reading ahead: while a page of a session is worked on, the next ones are read and checked on another thread.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use rath_core::SessionId;
use rath_core::store::{Of, Page, Result, Scan};

use super::read;
use super::readers::Readers;

/// Pages of fewer records are read faster than another thread is woken.
const WORTH_IT: usize = 128;

/// As many pages wait to be asked for: whoever works on one seldom waits for the next, and for no thread to wake up.
const PAGES: usize = 2;

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
    /// How often what was read had to be forgotten.
    forgotten: u64,
    /// The thread that reads, once it was needed. It ends when nobody can ask it any more.
    reader: Option<Sender<Wanted>>,
}

/// Pages on their way.
#[derive(Debug)]
struct Next {
    /// What the first of them answers.
    scan: Scan,
    pages: Receiver<Result<Page>>,
}

/// The first page to be read, and where it and those behind it are to go, until nobody wants them.
type Wanted = (Scan, SyncSender<Result<Page>>);

/// The scan that goes on behind a page, where it does.
fn behind(scan: &Scan, page: &Page) -> Option<Scan> {
    let Of::Session { session, to, .. } = scan.of else { return None };
    page.more.then(|| Scan { of: Of::Session { session, from: page.position, to }, ..scan.clone() })
}

impl Ahead {
    /// A page of records. Who asks for two of a session in a row, onwards, gets the ones behind them sooner.
    pub(super) fn page(&self, readers: &Arc<Readers>, scan: Scan) -> Result<Page> {
        let here = |scan: &Scan| readers.with(|db| read::page(db, scan));
        let Of::Session { session, from, .. } = scan.of else { return here(&scan) };
        if scan.backwards || scan.from_snapshot || scan.limit < WORTH_IT {
            return here(&scan);
        }
        let (goes_on, next, forgotten) = {
            let mut state = self.lock();
            let next = state.next.take_if(|next| next.scan == scan);
            (state.end == Some((session, from)), next, state.forgotten)
        };
        let pages = next.map(|next| next.pages);
        let read_before = pages.as_ref().and_then(|pages| pages.recv().ok()).and_then(Result::ok);
        // A page that was the last one may have grown since.
        let (page, pages) = match read_before.filter(|page| page.more) {
            Some(page) => (page, pages),
            None => (here(&scan)?, None),
        };
        let mut state = self.lock();
        state.end = page.more.then_some((session, page.position));
        if goes_on && let Some(scan) = behind(&scan, &page) {
            state.next = match pages.filter(|_| state.forgotten == forgotten) {
                Some(pages) => Some(Next { scan, pages }),
                None => state.ask(readers, scan),
            };
        }
        Ok(page)
    }

    /// Forgets what was read: records have changed.
    pub(super) fn forget(&self) {
        let mut state = self.lock();
        state.next = None;
        state.forgotten += 1;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Has pages read. Where no thread can be had, nobody reads ahead.
    fn ask(&mut self, readers: &Arc<Readers>, scan: Scan) -> Option<Next> {
        if self.reader.is_none() {
            let (ask, asked) = channel::<Wanted>();
            let readers = readers.clone();
            let work = move || {
                for (scan, reply) in asked {
                    let mut next = Some(scan);
                    while let Some(scan) = next {
                        let page = readers.with(|db| read::page(db, &scan));
                        next = page.as_ref().ok().and_then(|page| behind(&scan, page));
                        if reply.send(page).is_err() {
                            break;
                        }
                    }
                }
            };
            std::thread::Builder::new().name("rath-ahead".into()).spawn(work).ok()?;
            self.reader = Some(ask);
        }
        let (reply, pages) = sync_channel(PAGES);
        self.reader.as_ref()?.send((scan.clone(), reply)).ok()?;
        Some(Next { scan, pages })
    }
}
