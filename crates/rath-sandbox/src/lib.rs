//! Where commands run and files are touched.
//!
//! A [`Backend`] opens a [`Sandbox`] over a workspace directory. A sandbox runs a [`Command`] and hands out a
//! [`Running`]: its output as it comes, and how it [`Finished`]. It also reads and writes files without leaving the
//! directory. Backends are found by name in a [`Registry`]; all pass one conformance suite in `rath-testkit`.
//! [`Host`] is the backend without isolation: commands are plain children of this process, and the whole tree of
//! each one dies with it.
//!
//! ```
//! use std::sync::Arc;
//!
//! use rath_sandbox::{Command, Ended, Host, Part, Registry, Spec};
//! # pollster::block_on(async {
//! # let (workspace, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
//! let backends = Registry::new().with(Arc::new(Host::new()));
//! let spec = Spec::new(workspace.path(), state.path()).env("PATH", "/usr/bin:/bin");
//! let sandbox = backends.get("host")?.open(spec).await?;
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
mod error;
mod finished;
#[cfg(target_os = "linux")]
mod host;
mod registry;
mod running;
mod sandbox;

pub use backend::{Backend, Capabilities, Identity, Spec};
pub use command::{Command, GRACE, OUTPUT_LIMIT, Program, Stdin};
pub use error::{Error, Result, Why};
pub use finished::{Captured, Ended, Finished};
#[cfg(target_os = "linux")]
pub use host::{Host, MARKER, sweep_marked};
pub use rath_core::store::BoxFuture;
pub use registry::Registry;
pub use running::{Event, Feed, Running, Stop, Stream};
pub use sandbox::{Closed, Contents, Entry, EntryKind, Part, Sandbox, Status};
