//! Systems other than Linux: the same names, and an honest "not yet". Nothing runs unisolated in their place.

use std::path::Path;
use std::sync::Arc;

use rath_core::store::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Capabilities, Identity, Spec};
use crate::error::{Error, Result};
use crate::sandbox::Sandbox;

/// The variable that marks every process of a command.
pub const MARKER: &str = "RATH_EXEC";

/// As on Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Namespaces, Landlock and seccomp.
    Ns,
    /// Landlock and seccomp only.
    Landlock,
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == Tier::Ns { "ns" } else { "landlock" })
    }
}

/// A step that the machine refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(String);

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What this machine can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// None here.
    pub tier: Option<Tier>,
    /// That it is not written yet.
    pub refusals: Vec<Refusal>,
    /// Nothing.
    pub not_enforced: Vec<String>,
}

const NOT_YET: &str = "sandboxes are written for Linux; this system has none yet";

macro_rules! not_yet {
    ($(#[$doc:meta])* $name:ident, $word:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name(Diagnosis);

        impl Default for $name {
            fn default() -> Self {
                Self(Diagnosis { refusals: vec![Refusal(NOT_YET.into())], ..Diagnosis::default() })
            }
        }

        impl $name {
            /// The backend, which opens nothing.
            pub fn new() -> Self {
                Self::default()
            }

            /// Says that there is nothing.
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

            fn open(&self, _: Spec) -> BoxFuture<'_, Result<Arc<dyn Sandbox>>> {
                Box::pin(async { Err(Error::NoIsolation { refusals: vec![NOT_YET.into()] }) })
            }

            fn reopen(&self, _: Identity, _: Spec) -> BoxFuture<'_, Result<Arc<dyn Sandbox>>> {
                Box::pin(async { Err(Error::NoIsolation { refusals: vec![NOT_YET.into()] }) })
            }
        }
    };
}

not_yet!(
    /// The isolated backend: not yet.
    Local,
    "local"
);
not_yet!(
    /// The backend without isolation: not yet.
    Host,
    "host"
);

/// There is no anchor to wait for.
pub fn await_anchor(_: &Path) -> Result<()> {
    Ok(())
}

/// There is no anchor.
pub fn anchor_of(_: &Path) -> Option<u32> {
    None
}

/// There is nothing to sweep.
pub fn sweep_marked(_: &str) -> usize {
    0
}
