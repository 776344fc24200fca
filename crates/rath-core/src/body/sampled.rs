//! Values that a run reads from outside between its steps: the time, a random number, an environment variable.

use serde::{Deserialize, Serialize};

use super::Body;
use crate::blob::Content;
use crate::id::SessionId;
use crate::kind::Kind;

/// A value that code between steps read. When the run is resumed, the code gets the same value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampled {
    /// What was read: `clock`, `random`, `env HOME`, or a name chosen by the program.
    pub what: String,
    /// The value, as JSON text.
    pub value: Content,
}

impl Body for Sampled {
    const KIND: Kind = Kind::Sampled;
    fn summary(&self, _: SessionId) -> String {
        format!("{} = {}", self.what, self.value)
    }
    fn visit_text(&mut self, each: &mut dyn FnMut(&mut Content)) {
        each(&mut self.value);
    }
}
