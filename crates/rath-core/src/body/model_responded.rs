//! What an answer cost.

use serde::{Deserialize, Serialize};

use super::Body;
use crate::id::RecordId;
use crate::kind::Kind;
use crate::state::State;
use crate::usage::Usage;

/// A model answered. The turn itself is the `assistant` record that follows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelResponded {
    /// The model that answered, as it calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What it used.
    #[serde(default)]
    pub usage: Usage,
}

impl Body for ModelResponded {
    const KIND: Kind = Kind::ModelResponded;
    fn fold(&self, _: RecordId, state: &mut State) {
        state.usage += self.usage;
        state.own_usage += self.usage;
    }
}
