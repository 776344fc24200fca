//! The backend registry.

use std::sync::Arc;

use crate::backend::{Backend, Capabilities};
use crate::error::{Error, Result};

/// Backends, found by name.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    backends: Vec<Arc<dyn Backend>>,
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a backend. Replaces one with the same name.
    #[must_use]
    pub fn with(mut self, backend: Arc<dyn Backend>) -> Self {
        self.backends.retain(|known| known.name() != backend.name());
        self.backends.push(backend);
        self
    }

    /// The names of all backends.
    pub fn names(&self) -> Vec<&'static str> {
        self.backends.iter().map(|backend| backend.name()).collect()
    }

    /// The backend with this name.
    pub fn get(&self, name: &str) -> Result<Arc<dyn Backend>> {
        let found = self.backends.iter().find(|backend| backend.name() == name);
        found.cloned().ok_or_else(|| Error::UnknownBackend {
            name: name.to_owned(),
            known: self.names().into_iter().map(str::to_owned).collect(),
        })
    }

    /// The backend with this name, if it has the required capabilities.
    pub fn get_capable(&self, name: &str, needed: &Capabilities) -> Result<Arc<dyn Backend>> {
        let backend = self.get(name)?;
        let missing = backend.capabilities().missing(needed);
        if !missing.is_empty() {
            return Err(Error::Incapable { name: name.to_owned(), missing });
        }
        Ok(backend)
    }
}
