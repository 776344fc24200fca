//! A tool result that is shown shorter from here on. The history keeps everything.

use serde::{Deserialize, Serialize};

use super::{Body, ToolResult};
use crate::blob::Content;
use crate::id::{Point, SessionId};
use crate::kind::Kind;
use crate::summary::join;

/// A tool result gives way to a shorter one. The call and its result stay a pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trimmed {
    /// The record of the result in the context, as it was before anything was trimmed.
    pub result: Point,
    /// Which of several items of that record.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub part: u32,
    /// The id of the call.
    pub call: String,
    /// Whether the model is told that the call failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// What is shown now.
    pub shown: Content,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Trimmed {
    /// The result as a model is shown it.
    pub(crate) fn into_result(self) -> ToolResult {
        ToolResult { shown: Some(self.shown), failed: self.failed, ..ToolResult::new(self.call) }
    }
}

impl Body for Trimmed {
    const KIND: Kind = Kind::Trimmed;
    fn summary(&self, _: SessionId) -> String {
        join(&format!("[{}] of {}", self.call, self.result), &self.shown.to_string())
    }
    fn contents(&mut self, each: &mut dyn FnMut(&mut Content)) {
        each(&mut self.shown);
    }
}
