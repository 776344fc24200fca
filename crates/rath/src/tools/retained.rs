//! State that a call leaves for later calls: background commands, and omitted parts of long outputs.

use rath_core::body::{BackgroundCommand, ToolFinished};

use super::old_remarks;

/// The state that a call left, as recorded.
#[derive(Clone, Debug, Default)]
pub(crate) struct RetainedByCall {
    /// Background commands and their status.
    pub(super) background: Vec<BackgroundCommand>,
    /// Ids of truncated outputs.
    pub(super) rest_ids: Vec<String>,
}

impl RetainedByCall {
    /// Reads the record.
    pub(crate) fn of(finished: &ToolFinished) -> Self {
        let ToolFinished { background, rest_ids, remarks, .. } = finished;
        if background.is_empty() && rest_ids.is_empty() {
            return old_remarks::read(remarks);
        }
        Self { background: background.clone(), rest_ids: rest_ids.clone() }
    }
}
