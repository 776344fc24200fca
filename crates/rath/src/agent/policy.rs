//! Which calls of an agent are made, asked about, or refused.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Agent;
use crate::policy::{Decided, Policy, Ruling, Wish};

/// What is done when a model wants to call a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The call is made.
    #[default]
    Allow,
    /// A person is asked first.
    Ask,
    /// The call is refused, and the model is told why.
    Deny(String),
}

/// Decisions by tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct ByTool(BTreeMap<String, Decision>);

impl ByTool {
    pub(super) fn set(&mut self, tool: String, decision: Decision) {
        self.0.insert(tool, decision);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A decision, and what says so.
pub(super) struct Ruled {
    pub(super) decision: Decision,
    pub(super) by: Option<String>,
}

impl Agent {
    /// What is done about a call. What is said of the tool by name comes before the rules, and loosens none that forbids.
    /// Of the agent's rules and those of the house, the stricter decides.
    pub(super) fn rule_on(&self, wish: &Wish<'_>, house: Option<&Policy>) -> Ruled {
        let said = self.by_tool.0.get(wish.tool);
        let by_name = |word: &str| Some(format!("{word} {}", wish.tool));
        let strictness = |decided: &Decided| match decided.ruling {
            Ruling::Allow => 0,
            Ruling::Ask => 1,
            Ruling::Deny => 2,
        };
        let rules = [self.rules.as_ref(), house];
        let decided = rules.into_iter().flatten().map(|rules| rules.decide(wish)).max_by_key(strictness);
        match (said, decided) {
            (Some(Decision::Deny(why)), _) => Ruled { decision: Decision::Deny(why.clone()), by: by_name("deny") },
            (_, Some(decided)) if decided.ruling == Ruling::Deny => {
                let why = decided.why.unwrap_or_else(|| "a rule says so".into());
                Ruled { decision: Decision::Deny(format!("{why} (rule: {})", decided.by)), by: Some(decided.by) }
            }
            (Some(Decision::Ask), _) => Ruled { decision: Decision::Ask, by: by_name("ask") },
            (None, Some(decided)) if decided.ruling == Ruling::Ask => {
                let by = decided.why.map_or(decided.by.clone(), |why| format!("{}: {why}", decided.by));
                Ruled { decision: Decision::Ask, by: Some(by) }
            }
            _ => Ruled { decision: Decision::Allow, by: None },
        }
    }
}
