//! The decision about a tool call of an agent.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Agent;
use crate::policy::{Policy, PolicyAction, PolicyDecision, ProposedCall};

/// What to do when a model wants to call a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The call is made.
    #[default]
    Allow,
    /// A person is asked first.
    Ask,
    /// The call is refused, and the model gets this reason.
    Deny(String),
}

/// Decisions by tool name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct ToolDecisions(BTreeMap<String, Decision>);

impl ToolDecisions {
    pub(super) fn set(&mut self, tool: String, decision: Decision) {
        self.0.insert(tool, decision);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A decision, and the rule behind it.
pub(super) struct ToolDecision {
    pub(super) decision: Decision,
    pub(super) by: Option<String>,
}

impl Agent {
    /// Decides about a call. A decision for the tool by name precedes the policies, except that it cannot allow what a
    /// policy denies. Of the agent's policy and the session's, the stricter decides.
    pub(super) fn decide_tool(&self, proposed: &ProposedCall<'_>, session_policy: Option<&Policy>) -> ToolDecision {
        let said = self.tool_decisions.0.get(proposed.tool);
        let by_name = |word: &str| Some(format!("{word} {}", proposed.tool));
        let strictness = |decided: &PolicyDecision| match decided.action {
            PolicyAction::Allow => 0,
            PolicyAction::Ask => 1,
            PolicyAction::Deny => 2,
        };
        let rules = [self.policy.as_ref(), session_policy];
        let decided = rules.into_iter().flatten().map(|rules| rules.decide(proposed)).max_by_key(strictness);
        match (said, decided) {
            (Some(Decision::Deny(why)), _) => {
                ToolDecision { decision: Decision::Deny(why.clone()), by: by_name("deny") }
            }
            (_, Some(decided)) if decided.action == PolicyAction::Deny => {
                let why = decided.why.unwrap_or_else(|| "a rule denies it".into());
                ToolDecision { decision: Decision::Deny(format!("{why} (rule: {})", decided.by)), by: Some(decided.by) }
            }
            (Some(Decision::Ask), _) => ToolDecision { decision: Decision::Ask, by: by_name("ask") },
            (None, Some(decided)) if decided.action == PolicyAction::Ask => {
                let by = decided.why.map_or(decided.by.clone(), |why| format!("{}: {why}", decided.by));
                ToolDecision { decision: Decision::Ask, by: Some(by) }
            }
            _ => ToolDecision { decision: Decision::Allow, by: None },
        }
    }
}
