//! Where commands run and files are touched.
//!
//! A [`Backend`] opens a [`Sandbox`] over a workspace directory. A sandbox runs a [`Command`] and hands out a
//! [`Running`]: its output as it comes, and how it [`Finished`]. It also reads and writes files without leaving the
//! directory. Backends are found by name in a [`Registry`]; all pass one conformance suite in `rath-testkit`.
//! [`Local`] is the isolated backend of this machine. [`Host`] has no isolation: commands are plain children of this
//! process. With both, whatever a command starts dies with it.
//!
//! ```
//! use std::sync::Arc;
//!
//! use rath_sandbox::{Command, Ended, Local, Part, Registry, Spec};
//! # pollster::block_on(async {
//! # let (workspace, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
//! let backends = Registry::new().with(Arc::new(Local::new()));
//! let spec = Spec::new(workspace.path(), state.path()).env("PATH", "/usr/bin:/bin");
//! let sandbox = backends.get("local")?.open(spec).await?;
//!
//! sandbox.write("notes/names".as_ref(), b"grace\nada\n", None).await?;
//! let finished = sandbox.exec(Command::shell("sort names").cwd("notes")).await?.finish().await?;
//! assert_eq!(finished.ended, Ended::Exited(0));
//! assert_eq!(finished.stdout.bytes, b"ada\ngrace\n");
//! assert_eq!(sandbox.read("notes/names".as_ref(), Part::first(5)).await?.bytes, b"grace");
//! sandbox.close().await?;
//! # Ok::<(), rath_sandbox::Error>(())
//! # }).unwrap();
//! ```

mod backend;
mod command;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
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
#[cfg(target_os = "linux")]
mod request;
mod running;
mod sandbox;
#[cfg(target_os = "linux")]
mod starting;
#[cfg(target_os = "linux")]
mod state;
#[cfg(target_os = "linux")]
mod workers;

pub use backend::{Backend, Capabilities, Identity, Overlay, Spec};
pub use command::{Command, GRACE, OUTPUT_LIMIT, Program, Stdin};
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{Diagnosis, Host, Local, MARKER, Refusal, Tier, anchor_of, await_anchor, sweep_marked};
pub use error::{Error, Result, Why};
pub use finished::{Captured, Ended, Finished};
#[cfg(target_os = "linux")]
pub use host::{Host, MARKER, sweep_marked};
pub use limits::{Limits, WALL_TIME};
#[cfg(target_os = "linux")]
pub use local::{Diagnosis, Local, Refusal, Tier, anchor_of, await_anchor};
pub use rath_core::store::BoxFuture;
pub use registry::Registry;
pub use running::{Event, Feed, Running, Stop, Stream};
pub use sandbox::{Closed, Contents, Entry, EntryKind, Part, Sandbox, Status, Written};
