//! The backend without isolation: commands are children of this process, with all that this user may do.
//!
//! It must be asked for by name. What it does promise: commands see only the environment they are given, files are
//! read and written without leaving the workspace, and nothing outlives its command (see [`sweep`]).

mod exec;
mod linux;
mod live;
mod spawn;
mod sweep;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rath_core::store::BoxFuture;

use crate::backend::{Backend, Capabilities, Identity, Spec};
use crate::command::Command;
use crate::error::{Error, Result, Why};
use crate::files::{self, Root};
use crate::request::Request;
use crate::running::Running;
use crate::sandbox::{Closed, Contents, Entry, Part, Sandbox, Status, Written};
use crate::state::State;

pub use sweep::sweep_marked;

/// Starts a child that no command of this backend started, and that none of them takes along.
pub(crate) fn start_spared(start: impl FnOnce() -> io::Result<Child>) -> io::Result<Child> {
    // Held meanwhile: nobody sees the child before it is known.
    let mut live = live::lock();
    start().inspect(|child| live.spare(child.id()))
}

/// Before it is reaped.
pub(crate) fn no_longer_spared(child: &Child) {
    live::lock().spare_no_longer(child.id());
}

/// The variable that marks every process of a command: a sandbox's id, a dot, and a name of its own.
pub const MARKER: &str = "RATH_EXEC";

const NAME: &str = "host";

/// Opens sandboxes without isolation: commands may do all that this user may do.
///
/// The whole tree of a command dies with it: its process group, whatever carries its mark ([`MARKER`]), and daemons
/// that left the group and cleared their environment. Daemons of that last sort wait for the last of the commands that
/// may have started them. Not caught is what cleared its environment *and* joined the process group of this process,
/// what this user may not kill, and what others start on a command's behalf (`at`, a container engine). When this
/// process itself is killed its commands live on; [`sweep_marked`] finds them.
///
/// Signals that this process ignores its commands ignore too: the fast way of starting a process resets none.
///
/// Children that the program starts without a sandbox are spared if they are in its own process group, or began before
/// the command, or were started by a thread other than the main one that still lives. The program must not reap
/// children that are not its own (`waitpid(-1)`), nor ignore SIGCHLD.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host(());

impl Host {
    /// The backend. The first sandbox that it opens makes this process a child subreaper: orphans below it become
    /// its children.
    pub fn new() -> Self {
        Self(())
    }
}

const CAPABILITIES: Capabilities =
    Capabilities { isolated: false, network_control: false, copy_on_write: false, background: true };

impl Backend for Host {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn open(&self, spec: Spec) -> BoxFuture<'_, Result<Arc<dyn Sandbox>>> {
        Box::pin(async move {
            let root = Root::open(&spec.directory).map_err(|error| {
                Error::machine(format!("opening the workspace {}", spec.directory.display()), error)
            })?;
            let identity = State::renew(&spec.state, NAME)?;
            HostSandbox::make(identity, root, spec)
        })
    }

    fn reopen(&self, identity: Identity, spec: Spec) -> BoxFuture<'_, Result<Arc<dyn Sandbox>>> {
        Box::pin(async move {
            let lost = |why: String| Error::Lost { id: identity.id.clone(), why };
            if let Some(why) = State::contradicts(&spec.state, NAME, &identity)? {
                return Err(lost(why));
            }
            let root = Root::open(&spec.directory);
            let root = root.map_err(|error| lost(format!("its directory cannot be opened ({error})")))?;
            HostSandbox::make(identity, root, spec)
        })
    }
}

struct HostSandbox {
    identity: Identity,
    root: Root,
    state: PathBuf,
    env: Arc<[(OsString, OsString)]>,
    closed: AtomicBool,
}

impl HostSandbox {
    fn make(identity: Identity, root: Root, spec: Spec) -> Result<Arc<dyn Sandbox>> {
        linux::become_subreaper().map_err(|error| Error::machine("becoming a child subreaper", error))?;
        let (state, env) = (spec.state, spec.env.into());
        Ok(Arc::new(Self { identity, root, state, env, closed: AtomicBool::new(false) }))
    }

    fn check_open(&self) -> Result<()> {
        match self.closed.load(Ordering::SeqCst) {
            true => Err(Error::Closed { id: self.identity.id.clone() }),
            false => Ok(()),
        }
    }

    /// Does something with the files. What fails because the workspace is gone is told as that.
    fn with_files<T>(&self, path: &Path, act: impl FnOnce(&Root) -> files::Outcome<T>) -> Result<T> {
        self.check_open()?;
        act(&self.root).map_err(|fault| match (fault, self.root.gone()) {
            (_, Some(why)) => self.lost(why),
            (files::Fault::Path(why), None) => Error::path(path, why),
            (files::Fault::Machine(error), None) => Error::machine(path.display().to_string(), error),
        })
    }

    fn lost(&self, why: String) -> Error {
        Error::Lost { id: self.identity.id.clone(), why }
    }
}

impl Sandbox for HostSandbox {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn exec(&self, command: Command) -> BoxFuture<'_, Result<Running>> {
        Box::pin(async move {
            if let Some(why) = self.root.gone() {
                self.check_open()?;
                return Err(self.lost(why));
            }
            let cwd = command.cwd.clone();
            self.with_files(&cwd, |root| root.directory(&cwd)).map_err(|error| match error {
                Error::BadPath { path, why: why @ (Why::Missing | Why::NotADirectory) } => {
                    Error::CannotStart { tried: format!("a command in {}", path.display()), why: why.to_string() }
                }
                other => other,
            })?;
            let directory = self.root.path().join(cwd);
            if command.terminal.is_some() {
                return Err(Error::Incapable { name: NAME.into(), missing: vec!["terminal"] });
            }
            let request = Arc::new(Request::new()?);
            let (number, marker) = {
                let mut live = live::lock();
                self.check_open()?;
                live.add(&self.identity.id, request.clone())
            };
            let base = self.env.clone();
            let start = exec::Start { command, base, directory, number, marker, request };
            let (running, started) = exec::start(start)?;
            started.await.map_err(|error| Error::machine("starting a command", error))??;
            Ok(running)
        })
    }

    fn read<'a>(&'a self, path: &'a Path, part: Part) -> BoxFuture<'a, Result<Contents>> {
        Box::pin(async move { self.with_files(path, |root| files::read(root, path, part)) })
    }

    fn write<'a>(&'a self, path: &'a Path, bytes: &'a [u8], mode: Option<u32>) -> BoxFuture<'a, Result<Written>> {
        Box::pin(async move { self.with_files(path, |root| files::write(root, path, bytes, mode)) })
    }

    fn list<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Vec<Entry>>> {
        Box::pin(async move { self.with_files(path, |root| files::list(root, path)) })
    }

    fn real<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<PathBuf>> {
        Box::pin(async move { self.with_files(path, |root| files::real(root, path)) })
    }

    fn remove<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.with_files(path, |root| files::remove(root, path)) })
    }

    fn status(&self) -> BoxFuture<'_, Result<Status>> {
        Box::pin(async move {
            if self.closed.load(Ordering::SeqCst) {
                return Ok(Status::Closed);
            }
            let lost = match self.root.gone() {
                Some(why) => Some(why),
                None => State::contradicts(&self.state, NAME, &self.identity)?,
            };
            Ok(match lost {
                Some(why) => Status::Lost { why },
                None => Status::Open { running: live::lock().running(&self.identity.id) },
            })
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<Closed>> {
        Box::pin(async move {
            let stopping = {
                let mut live = live::lock();
                self.closed.store(true, Ordering::SeqCst);
                live.stop_all(&self.identity.id)
            };
            let stopped = stopping.len();
            for command in stopping {
                // The other end is dropped when the command is over.
                let _ = command.await;
            }
            if State::contradicts(&self.state, NAME, &self.identity)?.is_none() {
                State::forget(&self.state)?;
            }
            Ok(Closed { stopped })
        })
    }
}
