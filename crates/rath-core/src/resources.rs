//! [`Resources`]: values that a session's tools can use, by type: the session's workspaces, a database client, a test
//! clock.

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashMap as HashMap;

/// A map from a type to a value of that type. Clones share the values. Adding a value to one clone does not change
/// others.
#[derive(Clone, Default)]
pub struct Resources(Option<Arc<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>>);

impl Resources {
    /// No resources.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `value`. Replaces a value of the same type.
    #[must_use]
    pub fn with<T: Send + Sync + 'static>(mut self, value: Arc<T>) -> Self {
        let mut all = self.0.take().map(Arc::unwrap_or_clone).unwrap_or_default();
        all.insert(TypeId::of::<T>(), value);
        Self(Some(Arc::new(all)))
    }

    /// These resources without the value of this type.
    #[must_use]
    pub fn without<T: Send + Sync + 'static>(mut self) -> Self {
        if let Some(all) = &mut self.0 {
            Arc::make_mut(all).remove(&TypeId::of::<T>());
        }
        self
    }

    /// These resources, and those of `others` whose types are not among them.
    #[must_use]
    pub fn over(&self, others: &Resources) -> Self {
        match (&self.0, &others.0) {
            (_, None) => self.clone(),
            (None, _) => others.clone(),
            (Some(own), Some(theirs)) => {
                let mut all = (**theirs).clone();
                all.extend(own.iter().map(|(id, value)| (*id, value.clone())));
                Self(Some(Arc::new(all)))
            }
        }
    }

    /// The value of this type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Result<Arc<T>, MissingResource> {
        let found = self.0.as_ref().and_then(|all| all.get(&TypeId::of::<T>()));
        found.and_then(|value| value.clone().downcast().ok()).ok_or(MissingResource(type_name::<T>()))
    }
}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resources({})", self.0.as_ref().map_or(0, |all| all.len()))
    }
}

/// The error for a missing resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no {0} is provided: call `provide` on the session, or `with` on the agent")]
pub struct MissingResource(pub &'static str);
