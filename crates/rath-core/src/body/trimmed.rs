//! Tool results that are shortened in the context. The history keeps them whole.

use serde::{Deserialize, Serialize};

use super::{Body, ToolResult};
use crate::blob::Content;
use crate::id::{Point, SessionId};
use crate::kind::Kind;
use crate::summary::join;

/// A tool result in the context was replaced by a shorter one. The call and its result remain a pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trimmed {
    /// The record of the original result.
    pub result: Point,
    /// The index of the item, if that record has several items in the context.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub part: u32,
    /// The id of the call.
    pub call: String,
    /// Whether the result tells the model that the call failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// The text that the model is shown now.
    pub shown: Content,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Trimmed {
    /// The shortened result.
    pub(crate) fn into_result(self) -> ToolResult {
        ToolResult { shown: Some(self.shown), failed: self.failed, ..ToolResult::new(self.call) }
    }
}

impl Body for Trimmed {
    const KIND: Kind = Kind::Trimmed;
    fn summary(&self, _: SessionId) -> String {
        join(&format!("[{}] of {}", self.call, self.result), &self.shown.to_string())
    }
    fn visit_text(&mut self, each: &mut dyn FnMut(&mut Content)) {
        each(&mut self.shown);
    }
}
