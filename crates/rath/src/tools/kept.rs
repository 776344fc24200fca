//! What a call keeps for later calls, as its record says: commands in the background, and the rest of a long output.

use rath_core::body::{BackgroundCommand, ToolFinished};

use super::old_remarks;

/// What a call kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// Commands in the background, and what was found of them.
    pub(super) background: Vec<BackgroundCommand>,
    /// Ids of outputs that can be read on.
    pub(super) continued: Vec<String>,
}

impl Kept {
    /// What this record says.
    pub(crate) fn of(finished: &ToolFinished) -> Self {
        let ToolFinished { background, continued, remarks, .. } = finished;
        if background.is_empty() && continued.is_empty() {
            return old_remarks::read(remarks);
        }
        Self { background: background.clone(), continued: continued.clone() }
    }
}
