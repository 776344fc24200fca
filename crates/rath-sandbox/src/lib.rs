//! Sandboxes: run commands and access files in a workspace directory.
//!
//! A [`Backend`] opens a [`Sandbox`] for a workspace directory. A sandbox runs a [`Command`] and returns a [`Running`],
//! which streams the output and finally returns how the command [`Finished`]. A sandbox also reads and writes files,
//! and never outside of the directory. A [`Registry`] finds backends by name. There are two: [`Local`] isolates
//! commands with the means of the Linux kernel, and [`Host`] runs them as ordinary child processes without isolation.
//! With both, all processes that a command started are killed when it ends. Both pass the same conformance suite in
//! `rath-testkit`.
//!
//! ```
//! use std::sync::Arc;
//!
//! use rath_sandbox::{ByteRange, Command, ExitStatus, Local, Registry, SandboxSpec};
//! # pollster::block_on(async {
//! # let (workspace, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
//! let backends = Registry::new().with(Arc::new(Local::new()));
//! let spec = SandboxSpec::new(workspace.path(), state.path()).env("PATH", "/usr/bin:/bin");
//! let sandbox = backends.get("local")?.open(spec).await?;
//!
//! sandbox.write("notes/names".as_ref(), b"grace\nada\n", None).await?;
//! let finished = sandbox.exec(Command::shell("sort names").cwd("notes")).await?.finish().await?;
//! assert_eq!(finished.ended, ExitStatus::Exited(0));
//! assert_eq!(finished.stdout.bytes, b"ada\ngrace\n");
//! assert_eq!(sandbox.read("notes/names".as_ref(), ByteRange::first(5)).await?.bytes, b"grace");
//! sandbox.close().await?;
//! # Ok::<(), rath_sandbox::Error>(())
//! # }).unwrap();
//! ```

mod backend;
mod command;
mod environment;
mod error;
#[cfg(target_os = "linux")]
mod files;
mod finished;
#[cfg(target_os = "linux")]
mod host;
mod limits;
#[cfg(target_os = "linux")]
mod local;
#[cfg(target_os = "linux")]
mod program;
#[cfg(target_os = "linux")]
mod pump;
mod registry;
mod running;
mod sandbox;
#[cfg(target_os = "linux")]
mod sandbox_state;
#[cfg(target_os = "linux")]
mod start_lock;
#[cfg(target_os = "linux")]
mod stop_request;
#[cfg(target_os = "linux")]
mod thread_cache;
#[cfg(not(target_os = "linux"))]
mod unsupported;

pub use backend::{Backend, Capabilities, Identity, Overlay, SandboxSpec};
pub use command::{Command, CommandLine, Stdin};
pub use environment::MARKER;
pub use error::{Error, PathError, Result};
pub use finished::{CapturedOutput, ExitStatus, Finished};
#[cfg(target_os = "linux")]
pub use host::{Host, kill_marked};
pub use limits::{GRACE, Limits, OUTPUT_LIMIT, WALL_TIME};
#[cfg(target_os = "linux")]
pub use local::{Diagnosis, IsolationLevel, Local, Refusal, await_supervisor, supervisor_pid};
pub use rath_core::store::BoxFuture;
pub use registry::Registry;
pub use running::{CommandEvent, OutputSink, Running, StopMode, Stream};
pub use sandbox::{ByteRange, CloseReport, DirEntry, FileContent, FileKind, Sandbox, SandboxStatus, WriteOutcome};
#[cfg(not(target_os = "linux"))]
pub use unsupported::{Diagnosis, Host, IsolationLevel, Local, Refusal, await_supervisor, kill_marked, supervisor_pid};
