//! The backend without isolation: commands are child processes with all permissions of this user.
//!
//! It must be requested by name. It guarantees that commands get only the given environment variables, that file
//! operations do not leave the workspace, and that no process outlives its command (see [`sweep`]).

mod exec;
mod linux;
mod running_commands;
mod spawn;
mod sweep;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rath_core::store::BoxFuture;

use crate::backend::{Backend, Capabilities, Identity, SandboxSpec};
use crate::command::Command;
use crate::error::{Error, PathError, Result};
use crate::files::{self, Root};
use crate::running::Running;
use crate::sandbox::{ByteRange, CloseReport, DirEntry, FileContent, Sandbox, SandboxStatus, WriteOutcome};
use crate::sandbox_state::SandboxState;
use crate::stop_request::StopRequest;

pub use sweep::kill_marked;

/// Starts a child process that does not belong to a command of this backend, so that no sweep kills it.
pub(crate) fn start_foreign_child(start: impl FnOnce() -> io::Result<Child>) -> io::Result<Child> {
    // The lock keeps a sweep from seeing the child before it is registered.
    let mut commands = running_commands::lock();
    start().inspect(|child| commands.add_foreign_child(child.id()))
}

/// Call it before reaping a child that [`start_foreign_child`] started.
pub(crate) fn before_reaping_foreign_child(child: &Child) {
    running_commands::lock().remove_foreign_child(child.id());
}

const NAME: &str = "host";

/// Opens sandboxes without isolation: commands have all permissions of this user.
///
/// When a command ends, these processes are killed: its process group, all processes with its [marker](crate::MARKER),
/// and daemons that left the group and cleared their environment. A daemon of the last kind is killed when the last
/// command that may have started it ends. Not killed are processes that cleared their environment *and* joined the
/// process group of this process, processes that this user may not kill, and processes that a service started on the
/// command's behalf (`at`, a container engine). If this process itself is killed, its commands continue to run;
/// [`kill_marked`] finds them.
///
/// Commands ignore the signals that this process ignores: `posix_spawn`, as it is used here, does not reset them.
///
/// Children that the program starts without a sandbox are not killed if they are in its own process group, or were
/// started before the command, or were started by a thread other than the main one that still exists. The program must
/// not reap other children than its own (`waitpid(-1)`), and must not ignore SIGCHLD.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host(());

impl Host {
    /// Creates the backend. The first sandbox that it opens makes this process a child subreaper: orphaned descendants
    /// become its children.
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

    fn open(&self, spec: SandboxSpec) -> BoxFuture<'_, Result<Arc<dyn Sandbox>>> {
        Box::pin(async move {
            let root = Root::open(&spec.directory).map_err(|error| {
                Error::machine(format!("opening the workspace {}", spec.directory.display()), error)
            })?;
            let identity = SandboxState::next_generation(&spec.state, NAME)?;
            HostSandbox::make(identity, root, spec)
        })
    }

    fn reopen(&self, identity: Identity, spec: SandboxSpec) -> BoxFuture<'_, Result<Arc<dyn Sandbox>>> {
        Box::pin(async move {
            let lost = |why: String| Error::Lost { id: identity.id.clone(), why };
            if let Some(why) = SandboxState::mismatch(&spec.state, NAME, &identity)? {
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
    fn make(identity: Identity, root: Root, spec: SandboxSpec) -> Result<Arc<dyn Sandbox>> {
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

    /// Runs a file operation. If it fails and the workspace does not exist any more, returns [`Error::Lost`].
    fn with_files<T>(&self, path: &Path, act: impl FnOnce(&Root) -> files::FileResult<T>) -> Result<T> {
        self.check_open()?;
        act(&self.root).map_err(|fault| match (fault, self.root.missing_reason()) {
            (_, Some(why)) => self.lost(why),
            (files::FileError::Path(why), None) => Error::path(path, why),
            (files::FileError::Machine(error), None) => Error::machine(path.display().to_string(), error),
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
            if let Some(why) = self.root.missing_reason() {
                self.check_open()?;
                return Err(self.lost(why));
            }
            let cwd = command.cwd.clone();
            self.with_files(&cwd, |root| root.directory(&cwd)).map_err(|error| match error {
                Error::BadPath { path, why: why @ (PathError::Missing | PathError::NotADirectory) } => {
                    Error::CannotStart { tried: format!("a command in {}", path.display()), why: why.to_string() }
                }
                other => other,
            })?;
            let directory = self.root.path().join(cwd);
            if command.terminal.is_some() {
                return Err(Error::Incapable { name: NAME.into(), missing: vec!["terminal"] });
            }
            let request = Arc::new(StopRequest::new()?);
            let (number, marker) = {
                let mut commands = running_commands::lock();
                self.check_open()?;
                commands.add(&self.identity.id, request.clone())
            };
            let base = self.env.clone();
            let start = exec::Start { command, base, directory, number, marker, request };
            let (running, started) = exec::start(start)?;
            started.await.map_err(|error| Error::machine("starting a command", error))??;
            Ok(running)
        })
    }

    fn read<'a>(&'a self, path: &'a Path, part: ByteRange) -> BoxFuture<'a, Result<FileContent>> {
        Box::pin(async move { self.with_files(path, |root| files::read(root, path, part)) })
    }

    fn write<'a>(&'a self, path: &'a Path, bytes: &'a [u8], mode: Option<u32>) -> BoxFuture<'a, Result<WriteOutcome>> {
        Box::pin(async move { self.with_files(path, |root| files::write(root, path, bytes, mode)) })
    }

    fn list<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Vec<DirEntry>>> {
        Box::pin(async move { self.with_files(path, |root| files::list(root, path)) })
    }

    fn real_path<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<PathBuf>> {
        Box::pin(async move { self.with_files(path, |root| files::real_path(root, path)) })
    }

    fn remove<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.with_files(path, |root| files::remove(root, path)) })
    }

    fn status(&self) -> BoxFuture<'_, Result<SandboxStatus>> {
        Box::pin(async move {
            if self.closed.load(Ordering::SeqCst) {
                return Ok(SandboxStatus::Closed);
            }
            let lost = match self.root.missing_reason() {
                Some(why) => Some(why),
                None => SandboxState::mismatch(&self.state, NAME, &self.identity)?,
            };
            Ok(match lost {
                Some(why) => SandboxStatus::Lost { why },
                None => SandboxStatus::Open { running: running_commands::lock().running(&self.identity.id) },
            })
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<CloseReport>> {
        Box::pin(async move {
            let stopping = {
                let mut commands = running_commands::lock();
                self.closed.store(true, Ordering::SeqCst);
                commands.stop_all(&self.identity.id)
            };
            let stopped = stopping.len();
            for command in stopping {
                // The sender is dropped when the command has ended, which is an error here.
                let _ = command.await;
            }
            if SandboxState::mismatch(&self.state, NAME, &self.identity)?.is_none() {
                SandboxState::remove(&self.state)?;
            }
            Ok(CloseReport { stopped })
        })
    }
}
