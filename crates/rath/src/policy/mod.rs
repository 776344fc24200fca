//! Policies decide which tool calls are made, need an approval, or are refused.
//!
//! A [`Policy`] is an ordered list of [`PolicyRule`]s by tool, path, command and effect. The first rule that matches
//! decides; if none matches, a safe default does. [`Policy::decide`] returns the decision about a [`ProposedCall`], and
//! [`Policy::explain`] also the rules that were tried. A [`Grant`](rath_core::body::Grant) records what a person
//! allowed with the answer "always"; [`suggest_grant`] returns the grant for a call.
//!
//! ```
//! use rath::body::Effect;
//! use rath::policy::{Policy, PolicyRule, PolicyAction, ProposedCall};
//!
//! let policy = Policy::new(vec![
//!     PolicyRule::new(PolicyAction::Deny).command("git push*").why("no pushes from agents"),
//!     PolicyRule::new(PolicyAction::Allow).command("git *"),
//! ])?;
//! let spec = rath::tools::spec("shell");
//! let call = |arguments| ProposedCall { tool: "shell", arguments, effect: Effect::Irreversible, spec, root: None };
//! assert_eq!(policy.decide(&call(r#"{"command": "git log"}"#)).action, PolicyAction::Allow);
//! assert_eq!(policy.decide(&call(r#"{"command": "git log && git push"}"#)).action, PolicyAction::Deny);
//! assert_eq!(policy.decide(&call(r#"{"command": "git log > ~/.bashrc"}"#)).action, PolicyAction::Ask);
//! # Ok::<(), rath::policy::BadPolicyRule>(())
//! ```

mod command;
mod grant;
mod path_ref;
mod proposed_call;
mod rule;
mod unparsed;
mod wildcard;

use std::path::Path;

use rath_core::body::Effect;
use serde::{Serialize, Serializer};

pub use grant::{covers, suggest_grant};
pub use proposed_call::ProposedCall;
pub use rule::{BadPolicyRule, PolicyAction, PolicyRule};

use proposed_call::{CallFacts, Paths};
use rule::{Clause, CompiledRule};

/// An ordered list of rules.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Vec<CompiledRule>,
    /// Rules that can only make the decision stricter.
    restrictions: Vec<CompiledRule>,
}

/// The decision about a call, and the rule behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyDecision {
    /// Whether the call is allowed, refused, or needs an approval.
    #[serde(rename = "ruling")]
    pub action: PolicyAction,
    /// The rule or the default as text.
    pub by: String,
    /// The reason given in the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The configuration file of the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Whether the rule names paths.
    #[serde(skip)]
    pub(crate) by_path: bool,
}

/// A rule that was tried, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleTrace {
    /// The rule as text.
    pub rule: String,
    /// The configuration file of the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Whether it can only make the decision stricter.
    #[serde(rename = "guards")]
    pub restricts: bool,
    /// Whether the rule matches the call.
    pub matched: bool,
    /// The command that it was tried on, if the line has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Policy {
    /// A policy in which the first rule that matches decides. Fails if a pattern is malformed.
    pub fn new(rules: Vec<PolicyRule>) -> Result<Self, BadPolicyRule> {
        Ok(Self { rules: check(rules)?, restrictions: Vec::new() })
    }

    /// Adds rules from an untrusted source, which can only restrict: the first of them that matches applies if it is
    /// stricter than the decision without it.
    pub fn with_restrictions(mut self, restrictions: Vec<PolicyRule>) -> Result<Self, BadPolicyRule> {
        self.restrictions = check(restrictions)?;
        Ok(self)
    }

    /// The rules, in order, and the restrictions.
    pub fn rules(&self) -> (impl Iterator<Item = &PolicyRule>, impl Iterator<Item = &PolicyRule>) {
        (self.rules.iter().map(|checked| &checked.rule), self.restrictions.iter().map(|checked| &checked.rule))
    }

    /// The decision about a call. For a command line with several commands, the strictest of their decisions.
    pub fn decide(&self, call: &ProposedCall<'_>) -> PolicyDecision {
        let facts = CallFacts::of(call);
        let decided = clauses(&facts).into_iter().map(|clause| self.decide_clause(&facts, clause));
        // Of equally strict decisions the first is taken.
        let strictest = decided.reduce(|first, next| if next.action > first.action { next } else { first });
        strictest.unwrap_or_else(|| default_for(&facts))
    }

    /// The decision about a call that reaches this file of the workspace.
    pub(crate) fn decide_at(&self, tool: &str, effect: Effect, path: &Path) -> PolicyDecision {
        self.decide_clause(&CallFacts::at(tool, effect, path), Clause::Call)
    }

    fn decide_clause(&self, facts: &CallFacts<'_>, clause: Clause<'_>) -> PolicyDecision {
        let first = |rules: &[CompiledRule]| {
            let found = rules.iter().find(|checked| checked.matches(facts, clause));
            found.map(|checked| decision_of(checked, facts))
        };
        let decided = first(&self.rules).unwrap_or_else(|| default_for(facts));
        first(&self.restrictions).filter(|guard| guard.action > decided.action).unwrap_or(decided)
    }

    /// The rules that are tried to decide about a call, and the decision.
    pub fn explain(&self, call: &ProposedCall<'_>) -> (Vec<RuleTrace>, PolicyDecision) {
        let facts = CallFacts::of(call);
        let clauses = clauses(&facts);
        let mut traces = Vec::new();
        for clause in &clauses {
            for (rules, restricts) in [(&self.rules, false), (&self.restrictions, true)] {
                for CompiledRule { rule, .. } in rules.iter().take(1 + first_match(rules, &facts, *clause)) {
                    traces.push(RuleTrace {
                        rule: rule.to_string(),
                        origin: rule.origin.clone(),
                        restricts,
                        matched: false,
                        command: in_words(*clause).filter(|_| clauses.len() > 1),
                    });
                }
                if let (true, Some(last)) = (first_match(rules, &facts, *clause) < rules.len(), traces.last_mut()) {
                    last.matched = true;
                }
            }
        }
        (traces, self.decide(call))
    }
}

fn check(rules: Vec<PolicyRule>) -> Result<Vec<CompiledRule>, BadPolicyRule> {
    rules.into_iter().enumerate().map(|(index, rule)| CompiledRule::new(index, rule)).collect()
}

fn first_match(rules: &[CompiledRule], facts: &CallFacts<'_>, clause: Clause<'_>) -> usize {
    rules.iter().position(|checked| checked.matches(facts, clause)).unwrap_or(rules.len())
}

/// The parts of a call that are decided one by one.
fn clauses<'a>(facts: &'a CallFacts<'_>) -> Vec<Clause<'a>> {
    match &facts.line {
        None => vec![Clause::Call],
        Some(line) if line.parsed && !line.parts.is_empty() => {
            line.parts.iter().map(|part| Clause::Part(part)).collect()
        }
        Some(line) => vec![Clause::Unparsed(line)],
    }
}

fn in_words(clause: Clause<'_>) -> Option<String> {
    match clause {
        Clause::Part(words) => Some(words.join(" ")),
        Clause::Call | Clause::Unparsed(_) => None,
    }
}

fn decision_of(checked: &CompiledRule, facts: &CallFacts<'_>) -> PolicyDecision {
    let PolicyRule { decision, why, origin, path, .. } = &checked.rule;
    let by = match (&facts.paths, path) {
        (Paths::Unknown(_), Some(_)) => {
            format!("{}; {} does not say which of its arguments are paths", checked.rule, facts.tool)
        }
        _ => checked.rule.to_string(),
    };
    PolicyDecision { action: *decision, by, why: why.clone(), origin: origin.clone(), by_path: path.is_some() }
}

/// The decision if no rule matches.
fn default_for(facts: &CallFacts<'_>) -> PolicyDecision {
    let decided = |action, by: String| PolicyDecision { action, by, why: None, origin: None, by_path: false };
    match (facts.secret(), facts.effect) {
        (Some(secret), _) => decided(PolicyAction::Ask, format!("default: {secret} looks like a secret")),
        (None, effect) if effect.is_irreversible() => {
            decided(PolicyAction::Ask, "default: irreversible effects need an approval".into())
        }
        (None, effect) => decided(PolicyAction::Allow, format!("default: {} effects are allowed", effect)),
    }
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Data<'a> {
            rules: Vec<&'a PolicyRule>,
            #[serde(rename = "guards", skip_serializing_if = "Vec::is_empty")]
            restrictions: Vec<&'a PolicyRule>,
        }
        let (rules, restrictions) = self.rules();
        Data { rules: rules.collect(), restrictions: restrictions.collect() }.serialize(serializer)
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
