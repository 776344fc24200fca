//! Reading ahead: while a page of a session is worked on, the next one is read and checked on another thread.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use rath_core::SessionId;
use rath_core::store::{Of, Page, Result, Scan};
use rusqlite::Connection;

use super::read;
use super::readers::Readers;
use super::schema::sql;

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
    page: Receiver<Result<Read>>,
}

/// A page that was read ahead, and of which edition of the database.
type Read = (i64, Page);

/// A page to be read, and where it is to go.
type Wanted = (Scan, Sender<Result<Read>>);

impl Ahead {
    /// A page of records. Who asks for two of a session in a row, onwards, gets the ones behind them sooner.
    pub(super) fn page(&self, readers: &Arc<Readers>, scan: Scan) -> Result<Page> {
        let here = |scan: &Scan| readers.with(|db| read::page(db, scan));
        let &Of::Session { session, from, to } = &scan.of else { return here(&scan) };
        if scan.backwards || scan.from_snapshot || scan.limit < WORTH_IT {
            return here(&scan);
        }
        let (goes_on, next) = {
            let mut state = self.lock();
            (state.end == Some((session, from)), state.next.take_if(|next| next.scan == scan))
        };
        let read_before = next.and_then(|next| next.page.recv().ok()).and_then(Result::ok);
        // A page that was the last one may have grown since.
        let read_before = read_before.filter(|(_, page)| page.more);
        let page = match read_before {
            Some((of, page)) if readers.with(edition)? == of => page,
            _ => here(&scan)?,
        };
        let mut state = self.lock();
        state.end = page.more.then_some((session, page.position));
        if goes_on && page.more {
            let scan = Scan { of: Of::Session { session, from: page.position, to }, ..scan };
            state.next = state.ask(readers, scan);
        }
        Ok(page)
    }

    /// Forgets what was read: records have changed. Of a change by another process the edition tells.
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
                    let _ = reply.send(readers.with(|db| Ok((edition(db)?, read::page(db, &scan)?))));
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

/// The edition of the database: another one once anybody, in whatever process, wrote it anew, as every erasure does.
fn edition(db: &Connection) -> Result<i64> {
    let query = db.prepare_cached("PRAGMA schema_version");
    query.and_then(|mut query| query.query_row([], |row| row.get(0))).map_err(sql)
}
