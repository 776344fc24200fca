//! Things that a session's tools may use, by type: a workshop, a database, a clock of one's own.

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashMap as HashMap;

/// Values by type. Cloning shares them; adding one leaves other clones as they were.
#[derive(Clone, Default)]
pub struct Equipment(Option<Arc<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>>);

impl Equipment {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// With `value`, in place of another one of its type.
    #[must_use]
    pub fn with<T: Send + Sync + 'static>(mut self, value: Arc<T>) -> Self {
        let mut all = self.0.take().map(Arc::unwrap_or_clone).unwrap_or_default();
        all.insert(TypeId::of::<T>(), value);
        Self(Some(Arc::new(all)))
    }

    /// These, and of `others` what is not among them.
    #[must_use]
    pub fn over(&self, others: &Equipment) -> Self {
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
    pub fn get<T: Send + Sync + 'static>(&self) -> Result<Arc<T>, Missing> {
        let found = self.0.as_ref().and_then(|all| all.get(&TypeId::of::<T>()));
        found.and_then(|value| value.clone().downcast().ok()).ok_or(Missing(type_name::<T>()))
    }
}

impl fmt::Debug for Equipment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Equipment({})", self.0.as_ref().map_or(0, |all| all.len()))
    }
}

/// Nothing of this type is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this needs a {0}: give one to the session with `equip`, or to the agent with `with`")]
pub struct Missing(pub &'static str);
