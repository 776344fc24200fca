//! Telling other processes of commits and posts, and hearing of theirs.
//!
//! `watch/commits` and `watch/posts` are files of one byte. A process that has committed reads that byte: one system
//! call, which writes nothing. inotify tells the processes that watch the file. A process that watches has one thread,
//! which sleeps until then. Where inotify cannot be had (it is limited for each user, and other systems have none) that
//! thread asks SQLite once a second whether another process wrote anything.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use rath_core::store::{Change, Notifier, Watcher};
use rusqlite::Connection;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use super::schema::{self, Access};

/// How often another process's writes are looked for where inotify cannot be had.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// All of them.
pub(super) const CHANGES: [Change; 2] = [Change::Commits, Change::Posts];

/// The signals of one store.
pub(super) struct Signals {
    dir: PathBuf,
    database: PathBuf,
    notifier: Arc<Notifier>,
    /// Unset in tests of what is done without.
    with_inotify: bool,
    /// What is read to tell others, opened when it is first needed.
    told: [OnceLock<File>; 2],
    listener: OnceLock<Arc<Listener>>,
}

/// The thread that hears of changes.
struct Listener {
    /// Gone where inotify cannot be had.
    inotify: Option<OwnedFd>,
    /// Wakes the thread.
    wake: Option<OwnedFd>,
    watches: Mutex<[Option<i32>; 2]>,
    /// Whether it looks once a second.
    looks: AtomicBool,
    over: AtomicBool,
    /// How often it woke up.
    wakeups: AtomicU64,
}

impl Signals {
    pub(super) fn new(root: &Path, database: &Path) -> Self {
        Self {
            dir: root.join("watch"),
            database: database.into(),
            notifier: Arc::default(),
            with_inotify: true,
            told: [OnceLock::new(), OnceLock::new()],
            listener: OnceLock::new(),
        }
    }

    /// Waits for a change from now on.
    pub(super) fn watch(&self, change: Change) -> Watcher {
        let watcher = self.notifier.watch(change);
        let listener = self.listener.get_or_init(|| Listener::start(&self.notifier, &self.database, self.with_inotify));
        // Other processes that write make the file too; where neither can, they are not heard of at once.
        let path = self.path(change);
        let _ = make(&path);
        listener.add(change, &path);
        watcher
    }

    /// Tells whoever waits, here and in other processes, that something changed and can be read.
    pub(super) fn tell(&self, change: Change) {
        let told = &self.told[place(change)];
        let file = match told.get() {
            Some(file) => Some(file),
            // Where there is no room for it now there may be later.
            None => make(&self.path(change)).ok().map(|file| told.get_or_init(|| file)),
        };
        let is_told = file.is_some_and(|file| file.read_at(&mut [0], 0).is_ok_and(|read| read == 1));
        // The thread hears it like those of other processes.
        let is_heard = self.listener.get().is_some_and(|listener| listener.hears(change));
        if !(is_told && is_heard) {
            self.notifier.notify(change);
        }
    }

    fn path(&self, change: Change) -> PathBuf {
        self.dir.join(match change {
            Change::Commits => "commits",
            Change::Posts => "posts",
        })
    }

    /// How often the thread woke up.
    #[cfg(test)]
    fn wakeups(&self) -> u64 {
        self.listener.get().map_or(0, |listener| listener.wakeups.load(Ordering::Acquire))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.get() {
            listener.over.store(true, Ordering::Release);
            listener.wake_up();
        }
    }
}

fn place(change: Change) -> usize {
    match change {
        Change::Commits => 0,
        Change::Posts => 1,
    }
}

/// Opens a file of one byte, made where there is none.
fn make(path: &Path) -> io::Result<File> {
    let open = || OpenOptions::new().read(true).open(path);
    match open() {
        Ok(file) if file.metadata()?.len() > 0 => return Ok(file),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
        }
        Err(error) => return Err(error),
    }
    OpenOptions::new().create(true).append(true).open(path)?.write_all(b"\n")?;
    open()
}

impl Listener {
    fn start(notifier: &Arc<Notifier>, database: &Path, with_inotify: bool) -> Arc<Self> {
        let listener = Arc::new(Self {
            inotify: with_inotify
                .then(|| inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC))
                .and_then(Result::ok),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok(),
            watches: Mutex::default(),
            looks: AtomicBool::new(false),
            over: AtomicBool::new(false),
            wakeups: AtomicU64::new(0),
        });
        let (at, notifier, database) = (listener.clone(), Arc::downgrade(notifier), database.to_owned());
        // Where no thread can be had, only this process's own changes are heard of.
        let started =
            std::thread::Builder::new().name("rath-watch".into()).spawn(move || at.listen(&notifier, &database));
        if started.is_err() {
            listener.over.store(true, Ordering::Release);
        }
        listener
    }

    /// Listens for a change, too.
    fn add(&self, change: Change, path: &Path) {
        let mut watches = self.watches();
        let watch = &mut watches[place(change)];
        if watch.is_none() {
            let wanted = WatchFlags::ACCESS | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
            *watch = self.inotify.as_ref().and_then(|inotify| inotify::add_watch(inotify, path, wanted).ok());
            if watch.is_none() && !self.looks.swap(true, Ordering::AcqRel) {
                self.wake_up();
            }
        }
    }

    /// Whether a change of this process comes back to it through inotify.
    fn hears(&self, change: Change) -> bool {
        !self.over.load(Ordering::Acquire) && self.watches()[place(change)].is_some()
    }

    fn watches(&self) -> std::sync::MutexGuard<'_, [Option<i32>; 2]> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_up(&self) {
        if let Some(wake) = &self.wake {
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
    }

    fn listen(&self, notifier: &Weak<Notifier>, database: &Path) {
        let mut looking = None;
        while !self.over.load(Ordering::Acquire) {
            let looks = self.looks.load(Ordering::Acquire) || self.wake.is_none();
            let waits = self.inotify.iter().chain(&self.wake);
            let mut waits: Vec<_> = waits.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            let woken = poll(&mut waits, looks.then_some(&LOOK_EVERY));
            drop(waits);
            self.wakeups.fetch_add(1, Ordering::AcqRel);
            if let Some(wake) = &self.wake {
                let _ = rustix::io::read(wake, &mut [0u8; 8]);
            }
            let Some(notifier) = notifier.upgrade() else { return };
            if woken.is_err_and(|error| error != rustix::io::Errno::INTR) {
                self.looks.store(true, Ordering::Release);
            }
            let mut changed = self.heard();
            if looks && looking.get_or_insert_with(|| Looking::begin(database)).finds() {
                changed = [true; 2];
            }
            for change in CHANGES.into_iter().filter(|change| changed[place(*change)]) {
                match notifier.is_watched(change) {
                    true => notifier.notify(change),
                    // Nothing waits any more: it is not heard again before something does.
                    false => self.leave(change, &notifier),
                }
            }
        }
    }

    /// What inotify tells of.
    fn heard(&self) -> [bool; 2] {
        let mut changed = [false; 2];
        let Some(inotify) = &self.inotify else { return changed };
        let mut room = [MaybeUninit::uninit(); 1024];
        let mut events = inotify::Reader::new(inotify, &mut room);
        while let Ok(event) = events.next() {
            let (which, what) = (event.wd(), event.events());
            let mut watches = self.watches();
            let found = watches.iter().position(|watch| *watch == Some(which));
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                changed = [true; 2];
            }
            let Some(at) = found else { continue };
            changed[at] = true;
            if what.intersects(ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF) {
                // The file was taken away: other processes may read another one by now.
                watches[at] = None;
                self.looks.store(true, Ordering::Release);
            }
        }
        changed
    }

    fn leave(&self, change: Change, notifier: &Notifier) {
        let mut watches = self.watches();
        // It may have begun to wait since.
        if !notifier.is_watched(change)
            && let (Some(inotify), Some(watch)) = (&self.inotify, watches[place(change)].take())
        {
            let _ = inotify::remove_watch(inotify, watch);
        }
    }
}

/// Looks whether another process wrote to the database.
struct Looking {
    database: Option<Connection>,
    version: Option<i64>,
}

impl Looking {
    fn begin(database: &Path) -> Self {
        Self { database: schema::connect(database, Access::Read).ok(), version: None }
    }

    /// Whether anything was written since the last time. Where that cannot be known it may have been.
    fn finds(&mut self) -> bool {
        let Some(db) = &self.database else { return true };
        let now: Option<i64> = db.pragma_query_value(None, "data_version", |row| row.get(0)).ok();
        let before = std::mem::replace(&mut self.version, now);
        now.is_none() || before != now
    }
}

#[cfg(test)]
mod tests {
    use pollster::block_on;
    use rath_core::store::{Post, Posted};
    use rath_core::{Actor, Session, SessionId, Store, Time};

    use super::*;
    use crate::Embedded;

    fn post(store: &dyn Store, session: SessionId, id: &str) {
        let (what, actor) = (Posted::Message { text: id.into() }, Actor::program("test"));
        block_on(store.post(Post { id: id.into(), session, actor, time: Time(1), what })).unwrap();
    }

    fn store(path: &Path) -> Arc<Embedded> {
        Arc::new(Embedded::open_here(path, "test").unwrap())
    }

    #[test]
    fn whoever_waits_sleeps_until_there_is_something() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        drop(Embedded::create(&path).unwrap());
        let (waiting, other) = (store(&path), store(&path));
        let shared: Arc<dyn Store> = other.clone();
        let mut session = Session::create(&shared, Actor::program("test"));
        block_on(session.publish()).unwrap();
        let posts = waiting.watch(Change::Posts);
        for n in 0..100 {
            session.note(format!("note {n}")).unwrap();
            block_on(session.publish()).unwrap();
        }
        assert_eq!(waiting.signals.wakeups(), 0, "a hundred commits wake nothing that waits for posts");
        post(&*shared, session.id(), "one");
        block_on(posts.changed());
        assert_eq!(waiting.signals.wakeups(), 1);
        // Once nothing waits any more one event is heard, at most.
        drop(posts);
        for n in 0..10 {
            post(&*shared, session.id(), &format!("unheard {n}"));
        }
        let posts = waiting.watch(Change::Posts);
        post(&*shared, session.id(), "last");
        block_on(posts.changed());
        assert!(waiting.signals.wakeups() <= 4, "{}", waiting.signals.wakeups());
    }

    #[test]
    fn what_this_process_does_wakes_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        drop(Embedded::create(&path).unwrap());
        let store = store(&path);
        let shared: Arc<dyn Store> = store.clone();
        let commits = store.watch(Change::Commits);
        let mut session = Session::create(&shared, Actor::program("test"));
        block_on(session.publish()).unwrap();
        block_on(commits.changed());
        assert_eq!(store.signals.wakeups(), 1, "through inotify, like others' commits");
    }

    #[test]
    fn without_inotify_others_are_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        drop(Embedded::create(&path).unwrap());
        let mut waiting = Embedded::open_here(&path, "test").unwrap();
        let mut signals = Signals::new(&path, &path.join("rath.db"));
        signals.with_inotify = false;
        waiting.signals = Arc::new(signals);
        let shared: Arc<dyn Store> = store(&path);
        let commits = waiting.watch(Change::Commits);
        // The first look only finds out where things stand.
        block_on(commits.changed());
        let mut session = Session::create(&shared, Actor::program("test"));
        block_on(session.publish()).unwrap();
        block_on(commits.changed());
    }
}
