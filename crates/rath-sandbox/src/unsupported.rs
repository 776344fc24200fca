//! Placeholders for systems other than Linux: the same public names, and backends that fail to open a sandbox.

use std::path::Path;
use std::sync::Arc;

use rath_core::store::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Capabilities, Identity, SandboxSpec};
use crate::error::{Error, Result};
use crate::sandbox::Sandbox;

/// The isolation levels of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IsolationLevel {
    /// Namespaces, Landlock and seccomp.
    Ns,
    /// Landlock and seccomp only.
    Landlock,
}

impl std::fmt::Display for IsolationLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == IsolationLevel::Ns { "ns" } else { "landlock" })
    }
}

/// Why no isolation level is available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(String);

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The isolation that this machine supports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// Always `None`.
    pub level: Option<IsolationLevel>,
    /// One entry: this system is not supported.
    pub refusals: Vec<Refusal>,
    /// Always empty.
    pub not_enforced: Vec<String>,
}

const UNSUPPORTED: &str = "sandboxes need Linux; they are not supported on this system";

macro_rules! unsupported_backend {
    ($(#[$doc:meta])* $name:ident, $word:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name(Diagnosis);

        impl Default for $name {
            fn default() -> Self {
                Self(Diagnosis { refusals: vec![Refusal(UNSUPPORTED.into())], ..Diagnosis::default() })
            }
        }

        impl $name {
            /// A backend that cannot open sandboxes.
            pub fn new() -> Self {
                Self::default()
            }

            /// Reports that no isolation level is available.
            pub fn diagnose(&self) -> &Diagnosis {
                &self.0
            }
        }

        impl Backend for $name {
            fn name(&self) -> &'static str {
                $word
            }

            fn capabilities(&self) -> Capabilities {
                Capabilities::default()
            }

            fn open(&self, _: SandboxSpec) -> BoxFuture<'_, Result<Arc<dyn Sandbox>>> {
                Box::pin(async { Err(Error::NoIsolation { refusals: vec![UNSUPPORTED.into()] }) })
            }

            fn reopen(&self, _: Identity, _: SandboxSpec) -> BoxFuture<'_, Result<Arc<dyn Sandbox>>> {
                Box::pin(async { Err(Error::NoIsolation { refusals: vec![UNSUPPORTED.into()] }) })
            }
        }
    };
}

unsupported_backend!(
    /// The isolated backend, which is not available on this system.
    Local,
    "local"
);
unsupported_backend!(
    /// The backend without isolation, which is not available on this system.
    Host,
    "host"
);

/// Does nothing: there are no supervisors on this system.
pub fn await_supervisor(_: &Path) -> Result<()> {
    Ok(())
}

/// Always `None`: there are no supervisors on this system.
pub fn supervisor_pid(_: &Path) -> Option<u32> {
    None
}

/// Does nothing and returns 0.
pub fn kill_marked(_: &str) -> usize {
    0
}
