//! Prefetching: while the caller processes a page of a session, another thread reads and checks the next page.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use rath_core::SessionId;
use rath_core::store::{Page, Result, Scan, ScanRange};
use rusqlite::Connection;

use super::read;
use super::readers::Readers;
use super::schema::sql;

/// The smallest page limit, in records, for which pages are prefetched. A smaller page is read faster than another
/// thread wakes up.
const MIN_LIMIT: usize = 128;

/// The prefetched page, if there is one, and where the last page ended.
#[derive(Debug, Default)]
pub(super) struct Prefetcher {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Where the last page ended, if its session has more records. A request that starts there is sequential.
    end: Option<(SessionId, u64)>,
    next: Option<Next>,
    /// The channel to the reading thread, which starts with the first prefetch and ends when this sender is dropped.
    reader: Option<Sender<Request>>,
}

#[derive(Debug)]
struct Next {
    scan: Scan,
    page: Receiver<Result<Read>>,
}

/// A prefetched page, and the `schema_version` of the database that it was read from.
type Read = (i64, Page);

/// A page to read, and where to send it.
type Request = (Scan, Sender<Result<Read>>);

impl Prefetcher {
    /// Reads a page of records. After two sequential pages of a session, the pages after them are prefetched.
    pub(super) fn page(&self, readers: &Arc<Readers>, scan: Scan) -> Result<Page> {
        let here = |scan: &Scan| readers.with(|db| read::page(db, scan));
        let &ScanRange::Session { session, from, to } = &scan.range else { return here(&scan) };
        if scan.backwards || scan.from_snapshot || scan.limit < MIN_LIMIT {
            return here(&scan);
        }
        let (is_sequential, next) = {
            let mut state = self.lock();
            (state.end == Some((session, from)), state.next.take_if(|next| next.scan == scan))
        };
        let read_before = next.and_then(|next| next.page.recv().ok()).and_then(Result::ok);
        // Records may have been appended to what was the last page.
        let read_before = read_before.filter(|(_, page)| page.more);
        let page = match read_before {
            Some((of, page)) if readers.with(schema_version)? == of => page,
            _ => here(&scan)?,
        };
        let mut state = self.lock();
        state.end = page.more.then_some((session, page.position));
        if is_sequential && page.more {
            let scan = Scan { range: ScanRange::Session { session, from: page.position, to }, ..scan };
            state.next = state.start(readers, scan);
        }
        Ok(page)
    }

    /// Drops the prefetched page, because an erasure changed records. An erasure by another process changes the
    /// [schema version](schema_version) instead.
    pub(super) fn clear(&self) {
        self.lock().next = None;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Starts to read a page on the reading thread. Returns `None` if the thread cannot be started.
    fn start(&mut self, readers: &Arc<Readers>, scan: Scan) -> Option<Next> {
        if self.reader.is_none() {
            let (send, requests) = channel::<Request>();
            let readers = readers.clone();
            let work = move || {
                for (scan, reply) in requests {
                    let _ = reply.send(readers.with(|db| Ok((schema_version(db)?, read::page(db, &scan)?))));
                }
            };
            std::thread::Builder::new().name("rath-prefetch".into()).spawn(work).ok()?;
            self.reader = Some(send);
        }
        let (reply, page) = channel();
        self.reader.as_ref()?.send((scan.clone(), reply)).ok()?;
        Some(Next { scan, page })
    }
}

/// SQLite's schema version. It changes with every VACUUM, also by another process, and every erasure runs VACUUM.
fn schema_version(db: &Connection) -> Result<i64> {
    let query = db.prepare_cached("PRAGMA schema_version");
    query.and_then(|mut query| query.query_row([], |row| row.get(0))).map_err(sql)
}
