//! Notifies other processes of commits and posts, and receives their notifications.
//!
//! `watch/commits` and `watch/posts` are files of one byte. A process that has committed reads that byte, which is one
//! system call and writes nothing. inotify reports the read to the processes that watch the file. A watching process
//! has one thread, which sleeps until then. If inotify is not available (each user has a limited number of watches, and
//! other systems have no inotify), the thread asks SQLite once a second whether another process wrote to the database.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use rath_core::store::{Notifier, WatchTopic, Watcher};
use rusqlite::Connection;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use super::schema::{self, Access};

/// How often the thread polls the database if inotify is not available.
const POLL_EVERY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// All watch topics.
pub(super) const CHANGES: [WatchTopic; 2] = [WatchTopic::Commits, WatchTopic::Posts];

/// Sends and receives the notifications of one store.
pub(super) struct ChangeSignals {
    dir: PathBuf,
    database: PathBuf,
    notifier: Arc<Notifier>,
    /// `false` only in tests of the polling.
    with_inotify: bool,
    /// The files that are read to notify others, opened when they are first needed.
    files: [OnceLock<File>; 2],
    thread: OnceLock<Arc<WatchThread>>,
}

/// The thread that receives notifications.
struct WatchThread {
    /// `None` if inotify is not available.
    inotify: Option<OwnedFd>,
    /// An eventfd that wakes the thread.
    wake: Option<OwnedFd>,
    watches: Mutex<[Option<i32>; 2]>,
    /// Whether the thread polls the database.
    polls: AtomicBool,
    /// Whether the thread should end, or has not started.
    stopped: AtomicBool,
    /// How often the thread woke up.
    wakeups: AtomicU64,
}

impl ChangeSignals {
    pub(super) fn new(root: &Path, database: &Path) -> Self {
        Self {
            dir: root.join("watch"),
            database: database.into(),
            notifier: Arc::default(),
            with_inotify: true,
            files: [OnceLock::new(), OnceLock::new()],
            thread: OnceLock::new(),
        }
    }

    /// Starts to watch a topic.
    pub(super) fn watch(&self, change: WatchTopic) -> Watcher {
        let watcher = self.notifier.watch(change);
        let thread = self.thread.get_or_init(|| WatchThread::start(&self.notifier, &self.database, self.with_inotify));
        // Writing processes create the file too. If no process can, the thread polls.
        let path = self.path(change);
        let _ = open_or_create(&path);
        thread.add(change, &path);
        watcher
    }

    /// Notifies the watchers of a topic, in this process and in others. The change is committed.
    pub(super) fn notify(&self, change: WatchTopic) {
        let slot = &self.files[index(change)];
        let file = match slot.get() {
            Some(file) => Some(file),
            // A full disk may have space at the next call, so a failure is not remembered.
            None => open_or_create(&self.path(change)).ok().map(|file| slot.get_or_init(|| file)),
        };
        let is_sent = file.is_some_and(|file| file.read_at(&mut [0], 0).is_ok_and(|read| read == 1));
        // The thread of this process receives the notification like those of other processes.
        let is_received = self.thread.get().is_some_and(|thread| thread.is_watching(change));
        if !(is_sent && is_received) {
            self.notifier.notify(change);
        }
    }

    fn path(&self, change: WatchTopic) -> PathBuf {
        self.dir.join(match change {
            WatchTopic::Commits => "commits",
            WatchTopic::Posts => "posts",
        })
    }

    #[cfg(test)]
    fn wakeups(&self) -> u64 {
        self.thread.get().map_or(0, |thread| thread.wakeups.load(Ordering::Acquire))
    }
}

impl Drop for ChangeSignals {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.get() {
            thread.stopped.store(true, Ordering::Release);
            thread.wake_up();
        }
    }
}

fn index(change: WatchTopic) -> usize {
    match change {
        WatchTopic::Commits => 0,
        WatchTopic::Posts => 1,
    }
}

/// Opens a file of one byte, and creates it if it is missing.
fn open_or_create(path: &Path) -> io::Result<File> {
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

impl WatchThread {
    fn start(notifier: &Arc<Notifier>, database: &Path, with_inotify: bool) -> Arc<Self> {
        let thread = Arc::new(Self {
            inotify: with_inotify
                .then(|| inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC))
                .and_then(Result::ok),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok(),
            watches: Mutex::default(),
            polls: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            wakeups: AtomicU64::new(0),
        });
        let (at, notifier, database) = (thread.clone(), Arc::downgrade(notifier), database.to_owned());
        // Without a thread, only changes of this process are received.
        let started = std::thread::Builder::new().name("rath-watch".into()).spawn(move || at.run(&notifier, &database));
        if started.is_err() {
            thread.stopped.store(true, Ordering::Release);
        }
        thread
    }

    /// Watches the file of a topic.
    fn add(&self, change: WatchTopic, path: &Path) {
        let mut watches = self.watches();
        let watch = &mut watches[index(change)];
        if watch.is_none() {
            let wanted = WatchFlags::ACCESS | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
            *watch = self.inotify.as_ref().and_then(|inotify| inotify::add_watch(inotify, path, wanted).ok());
            if watch.is_none() && !self.polls.swap(true, Ordering::AcqRel) {
                self.wake_up();
            }
        }
    }

    /// Whether the thread receives the notifications of this process through inotify.
    fn is_watching(&self, change: WatchTopic) -> bool {
        !self.stopped.load(Ordering::Acquire) && self.watches()[index(change)].is_some()
    }

    fn watches(&self) -> std::sync::MutexGuard<'_, [Option<i32>; 2]> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_up(&self) {
        if let Some(wake) = &self.wake {
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
    }

    fn run(&self, notifier: &Weak<Notifier>, database: &Path) {
        let mut poller = None;
        while !self.stopped.load(Ordering::Acquire) {
            let polls = self.polls.load(Ordering::Acquire) || self.wake.is_none();
            let waits = self.inotify.iter().chain(&self.wake);
            let mut waits: Vec<_> = waits.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            let woken = poll(&mut waits, polls.then_some(&POLL_EVERY));
            drop(waits);
            self.wakeups.fetch_add(1, Ordering::AcqRel);
            if let Some(wake) = &self.wake {
                let _ = rustix::io::read(wake, &mut [0u8; 8]);
            }
            let Some(notifier) = notifier.upgrade() else { return };
            if woken.is_err_and(|error| error != rustix::io::Errno::INTR) {
                self.polls.store(true, Ordering::Release);
            }
            let mut changed = self.read_events();
            if polls && poller.get_or_insert_with(|| Poller::new(database)).has_changed() {
                changed = [true; 2];
            }
            for change in CHANGES.into_iter().filter(|change| changed[index(*change)]) {
                match notifier.is_watched(change) {
                    true => notifier.notify(change),
                    // No watcher is left, so the file is not watched until there is one.
                    false => self.unwatch(change, &notifier),
                }
            }
        }
    }

    /// Reads the pending events of inotify: for each topic, whether it changed.
    fn read_events(&self) -> [bool; 2] {
        let mut changed = [false; 2];
        let Some(inotify) = &self.inotify else { return changed };
        let mut buffer = [MaybeUninit::uninit(); 1024];
        let mut events = inotify::Reader::new(inotify, &mut buffer);
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
                // The file was removed. Other processes may use a new one, so the thread polls from now on.
                watches[at] = None;
                self.polls.store(true, Ordering::Release);
            }
        }
        changed
    }

    fn unwatch(&self, change: WatchTopic, notifier: &Notifier) {
        let mut watches = self.watches();
        // A watcher may have started since the check.
        if !notifier.is_watched(change)
            && let (Some(inotify), Some(watch)) = (&self.inotify, watches[index(change)].take())
        {
            let _ = inotify::remove_watch(inotify, watch);
        }
    }
}

/// Polls whether another process wrote to the database.
struct Poller {
    database: Option<Connection>,
    version: Option<i64>,
}

impl Poller {
    fn new(database: &Path) -> Self {
        Self { database: schema::connect(database, Access::Read).ok(), version: None }
    }

    /// Whether another process wrote since the last call. Returns `true` if that cannot be determined.
    fn has_changed(&mut self) -> bool {
        let Some(db) = &self.database else { return true };
        let now: Option<i64> = db.pragma_query_value(None, "data_version", |row| row.get(0)).ok();
        let before = std::mem::replace(&mut self.version, now);
        now.is_none() || before != now
    }
}

#[cfg(test)]
mod tests {
    use pollster::block_on;
    use rath_core::store::{Post, PostContent};
    use rath_core::{Actor, Session, SessionId, Store, Time};

    use super::*;
    use crate::Embedded;

    fn post(store: &dyn Store, session: SessionId, id: &str) {
        let (what, actor) = (PostContent::Message { text: id.into() }, Actor::program("test"));
        block_on(store.post(Post { id: id.into(), session, actor, time: Time(1), what })).unwrap();
    }

    fn store(path: &Path) -> Arc<Embedded> {
        Arc::new(Embedded::open_as(path, "test").unwrap())
    }

    #[test]
    fn the_watch_thread_sleeps_until_its_topic_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        drop(Embedded::create(&path).unwrap());
        let (waiting, other) = (store(&path), store(&path));
        let shared: Arc<dyn Store> = other.clone();
        let mut session = Session::create(&shared, Actor::program("test"));
        block_on(session.publish()).unwrap();
        let posts = waiting.watch(WatchTopic::Posts);
        for n in 0..100 {
            session.note(format!("note {n}")).unwrap();
            block_on(session.publish()).unwrap();
        }
        assert_eq!(waiting.signals.wakeups(), 0, "commits do not wake a watcher of posts");
        post(&*shared, session.id(), "one");
        block_on(posts.changed());
        assert_eq!(waiting.signals.wakeups(), 1);
        // Without a watcher, the thread receives at most one event.
        drop(posts);
        for n in 0..10 {
            post(&*shared, session.id(), &format!("unheard {n}"));
        }
        let posts = waiting.watch(WatchTopic::Posts);
        post(&*shared, session.id(), "last");
        block_on(posts.changed());
        assert!(waiting.signals.wakeups() <= 4, "{}", waiting.signals.wakeups());
    }

    #[test]
    fn a_commit_of_this_process_wakes_the_thread_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        drop(Embedded::create(&path).unwrap());
        let store = store(&path);
        let shared: Arc<dyn Store> = store.clone();
        let commits = store.watch(WatchTopic::Commits);
        let mut session = Session::create(&shared, Actor::program("test"));
        block_on(session.publish()).unwrap();
        block_on(commits.changed());
        assert_eq!(store.signals.wakeups(), 1, "through inotify, like commits of other processes");
    }

    #[test]
    fn without_inotify_the_database_is_polled() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        drop(Embedded::create(&path).unwrap());
        let mut waiting = Embedded::open_as(&path, "test").unwrap();
        let mut signals = ChangeSignals::new(&path, &path.join("rath.db"));
        signals.with_inotify = false;
        waiting.signals = Arc::new(signals);
        let shared: Arc<dyn Store> = store(&path);
        let commits = waiting.watch(WatchTopic::Commits);
        // The first poll always reports a change, because there is no earlier version to compare with.
        block_on(commits.changed());
        let mut session = Session::create(&shared, Actor::program("test"));
        block_on(session.publish()).unwrap();
        block_on(commits.changed());
    }
}
