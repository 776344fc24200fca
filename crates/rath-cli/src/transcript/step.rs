//! Where steps begin and end.

use std::sync::Arc;

use anyhow::Result;
use rath::agent::AgentConfig;
use rath::body::{Outcome, Role, StepEntered};
use rath::{BlobRef, Point, RecordId, Store, Time, Usage};

use super::words::{seq, span, usage};
use crate::output::{self, style};
use crate::time;

/// The agent's configuration that a step names; `None` where it is gone, or is none of ours.
pub(crate) async fn config_of(store: &Arc<dyn Store>, blob: Option<&BlobRef>) -> Result<Option<AgentConfig>> {
    let Some(blob) = blob else { return Ok(None) };
    Ok(store.blob_get(blob.digest).await?.and_then(|bytes| AgentConfig::read(&bytes)))
}

/// A step that is open.
pub(super) struct Step {
    pub(super) record: RecordId,
    pub(super) name: String,
    pub(super) agent: bool,
    pub(super) since: Time,
    pub(super) turns: u64,
    pub(super) usage: Usage,
}

pub(super) fn entered(step: &StepEntered, model: Option<&str>, when: Time, at: Point) -> String {
    let role = match step.role {
        Some(Role::Agent) => "agent",
        Some(Role::Workflow) => "workflow",
        None => "",
    };
    let version = step.version.as_ref().map(|version| format!("version {version}"));
    let about = [role, model.unwrap_or_default(), version.as_deref().unwrap_or_default()];
    let about = about.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ");
    let about = if about.is_empty() { about } else { format!("({about}) ") };
    let clock = time::local(when).get(11..19).unwrap_or_default().to_owned();
    let about = style::dim(output::harmless(&format!("{about}{clock}")));
    format!("▸ {} {about} {}", style::title(output::harmless(&step.name)), seq(at))
}

pub(super) fn left(step: &Step, outcome: Outcome, now: Time) -> String {
    let turns = match step.agent {
        true => format!(", {}", output::count(step.turns, "turn")),
        false => String::new(),
    };
    let used = usage(&step.usage);
    let took = style::dim(format!(" in {}{turns}{used}", span(now.micros_since(step.since))));
    format!("◂ {} {}{took}", style::title(output::harmless(&step.name)), ended(outcome))
}

/// How a step ended, in its colour.
pub(super) fn ended(outcome: Outcome) -> String {
    match outcome {
        Outcome::Done => style::good("done"),
        Outcome::Failed => style::bad("failed"),
        Outcome::Cancelled => style::label("cancelled"),
    }
}
