//! Where steps begin and end.

use std::sync::Arc;

use anyhow::Result;
use rath::body::{Outcome, Role, StepEntered, StepLeft};
use rath::{BlobRef, Parameters, Point, RecordId, Rule, Store, Time, ToolSpec, Usage};
use serde::{Deserialize, Serialize};

use super::words::{seq, span, step_value, usage};
use crate::output::{self, style};
use crate::time;

/// An agent's configuration, as its step names it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Config {
    #[serde(default)]
    pub(crate) model: Option<String>,
    #[serde(default)]
    pub(crate) prompt: String,
    #[serde(default)]
    pub(crate) view: Rule,
    #[serde(default)]
    pub(crate) parameters: Parameters,
    #[serde(default)]
    pub(crate) tools: Vec<ToolSpec>,
}

impl Config {
    /// Reads it; `None` where it is gone, or is none of ours.
    pub(crate) async fn read(store: &Arc<dyn Store>, blob: Option<&BlobRef>) -> Result<Option<Self>> {
        let Some(blob) = blob else { return Ok(None) };
        let bytes = store.blob_get(blob.digest).await?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }
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
    let version = step.version.as_ref().filter(|_| step.workflow.is_none()).map(|version| format!("version {version}"));
    let about = [role, model.unwrap_or_default(), version.as_deref().unwrap_or_default()];
    let about = about.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ");
    let about = if about.is_empty() { about } else { format!("({about}) ") };
    let clock = time::local(when).get(11..19).unwrap_or_default().to_owned();
    let about = style::dim(output::harmless(&format!("{about}{clock}")));
    format!("▸ {} {about} {}", style::title(output::harmless(&step.title())), seq(at))
}

pub(super) fn left(step: &Step, body: &StepLeft, now: Time) -> String {
    let turns = match step.agent {
        true => format!(", {}", output::count(step.turns, "turn")),
        false => String::new(),
    };
    let used = usage(&step.usage);
    let took = style::dim(format!(" in {}{turns}{used}", span(now.micros_since(step.since))));
    let value = step_value(body.value.as_ref());
    format!("◂ {} {}{took}{value}", style::title(output::harmless(&step.name)), ended(body.outcome))
}

/// How a step ended, in its colour.
pub(super) fn ended(outcome: Outcome) -> String {
    match outcome {
        Outcome::Done => style::good("done"),
        Outcome::Failed => style::bad("failed"),
        Outcome::Cancelled => style::label("cancelled"),
    }
}
