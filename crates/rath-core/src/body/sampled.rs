//! What a run took from outside between its steps: the time, a random number, a variable.

use serde::{Deserialize, Serialize};

use super::Body;
use crate::blob::Content;
use crate::id::SessionId;
use crate::kind::Kind;

/// A value that code between steps used. Resuming gives the same one again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampled {
    /// What it is: `clock`, `random`, `env HOME`, or a name of the program's own.
    pub what: String,
    /// Its value, as JSON text.
    pub value: Content,
}

impl Body for Sampled {
    const KIND: Kind = Kind::Sampled;
    fn summary(&self, _: SessionId) -> String {
        format!("{} = {}", self.what, self.value)
    }
    fn contents(&mut self, each: &mut dyn FnMut(&mut Content)) {
        each(&mut self.value);
    }
}
