//! Which calls are made, asked about, or refused.
//!
//! A [`Policy`] is an ordered list of [`Rule`]s by tool, path, command and effect: the first that matches decides. Where
//! none matches, the defaults are safe. [`Policy::decide`] says what is done about a [`Wish`], [`Policy::explain`] says
//! why. A [`Grant`](rath_core::body::Grant) is what a person allowed for good; [`offer`] says what that would be.
//!
//! ```
//! use rath::body::Effect;
//! use rath::policy::{Policy, Rule, Ruling, Wish};
//!
//! let policy = Policy::new(vec![
//!     Rule::new(Ruling::Deny).command("git push*").why("no pushes from agents"),
//!     Rule::new(Ruling::Allow).command("git *"),
//! ])?;
//! let spec = rath::tools::spec("shell");
//! let wish = |arguments| Wish { tool: "shell", arguments, effect: Effect::Irreversible, spec, root: None };
//! assert_eq!(policy.decide(&wish(r#"{"command": "git log"}"#)).ruling, Ruling::Allow);
//! assert_eq!(policy.decide(&wish(r#"{"command": "git log && git push"}"#)).ruling, Ruling::Deny);
//! assert_eq!(policy.decide(&wish(r#"{"command": "git log > ~/.bashrc"}"#)).ruling, Ruling::Ask);
//! # Ok::<(), rath::policy::BadRule>(())
//! ```

mod command;
mod grant;
mod place;
mod rule;
mod unsure;
mod wildcard;
mod wish;

use std::path::Path;

use rath_core::body::Effect;
use serde::{Serialize, Serializer};

pub use grant::{covers, offer};
pub use rule::{BadRule, Rule, Ruling};
pub use wish::Wish;

use rule::{Checked, Unit};
use wish::{Paths, Seen};

/// Rules, and defaults after them.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Vec<Checked>,
    /// Rules that can only make a decision stricter.
    guards: Vec<Checked>,
}

/// What is done about a call, and what says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decided {
    /// What is done.
    pub ruling: Ruling,
    /// The rule or the default, in words.
    pub by: String,
    /// The reason that the rule gives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Where the rule was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Whether the rule names paths.
    #[serde(skip)]
    pub(crate) by_path: bool,
}

/// A rule that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Looked {
    /// The rule in words.
    pub rule: String,
    /// Where it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Whether it can only make the decision stricter.
    pub guards: bool,
    /// Whether it matched.
    pub matched: bool,
    /// The command of the line that it was looked at for, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Policy {
    /// The first rule that matches decides. Fails where a pattern cannot be read.
    pub fn new(rules: Vec<Rule>) -> Result<Self, BadRule> {
        Ok(Self { rules: check(rules)?, guards: Vec::new() })
    }

    /// With rules of somebody who is not trusted to loosen anything: the first of them that matches counts where it is
    /// stricter than what is decided otherwise.
    pub fn guarded_by(mut self, guards: Vec<Rule>) -> Result<Self, BadRule> {
        self.guards = check(guards)?;
        Ok(self)
    }

    /// The rules, in order, and those that can only make a decision stricter.
    pub fn rules(&self) -> (impl Iterator<Item = &Rule>, impl Iterator<Item = &Rule>) {
        (self.rules.iter().map(|checked| &checked.rule), self.guards.iter().map(|checked| &checked.rule))
    }

    /// What is done about a call: of a line with several commands, what is done about the one that is least allowed.
    pub fn decide(&self, wish: &Wish<'_>) -> Decided {
        let seen = Seen::of(wish);
        let decided = units(&seen).into_iter().map(|unit| self.decide_unit(&seen, unit));
        // Of equals the first counts.
        let strictest = decided.reduce(|first, next| if next.ruling > first.ruling { next } else { first });
        strictest.unwrap_or_else(|| default_for(&seen))
    }

    /// What is done about a call that comes to this file of the workspace.
    pub(crate) fn decide_at(&self, tool: &str, effect: Effect, path: &Path) -> Decided {
        self.decide_unit(&Seen::at(tool, effect, path), Unit::Call)
    }

    fn decide_unit(&self, seen: &Seen<'_>, unit: Unit<'_>) -> Decided {
        let first = |rules: &[Checked]| {
            let found = rules.iter().find(|checked| checked.matches(seen, unit));
            found.map(|checked| by_rule(checked, seen))
        };
        let decided = first(&self.rules).unwrap_or_else(|| default_for(seen));
        first(&self.guards).filter(|guard| guard.ruling > decided.ruling).unwrap_or(decided)
    }

    /// The rules that are looked at to decide about a call, and what comes of it.
    pub fn explain(&self, wish: &Wish<'_>) -> (Vec<Looked>, Decided) {
        let seen = Seen::of(wish);
        let units = units(&seen);
        let mut looked = Vec::new();
        for unit in &units {
            for (rules, guards) in [(&self.rules, false), (&self.guards, true)] {
                for Checked { rule, .. } in rules.iter().take(1 + first_match(rules, &seen, *unit)) {
                    looked.push(Looked {
                        rule: rule.to_string(),
                        origin: rule.origin.clone(),
                        guards,
                        matched: false,
                        command: in_words(*unit).filter(|_| units.len() > 1),
                    });
                }
                if let (true, Some(last)) = (first_match(rules, &seen, *unit) < rules.len(), looked.last_mut()) {
                    last.matched = true;
                }
            }
        }
        (looked, self.decide(wish))
    }
}

fn check(rules: Vec<Rule>) -> Result<Vec<Checked>, BadRule> {
    rules.into_iter().enumerate().map(|(place, rule)| Checked::new(place, rule)).collect()
}

fn first_match(rules: &[Checked], seen: &Seen<'_>, unit: Unit<'_>) -> usize {
    rules.iter().position(|checked| checked.matches(seen, unit)).unwrap_or(rules.len())
}

/// What is decided about one by one.
fn units<'a>(seen: &'a Seen<'_>) -> Vec<Unit<'a>> {
    match &seen.line {
        None => vec![Unit::Call],
        Some(line) if line.sure && !line.parts.is_empty() => line.parts.iter().map(|part| Unit::Part(part)).collect(),
        Some(line) => vec![Unit::Unsure(line)],
    }
}

fn in_words(unit: Unit<'_>) -> Option<String> {
    match unit {
        Unit::Part(words) => Some(words.join(" ")),
        Unit::Call | Unit::Unsure(_) => None,
    }
}

fn by_rule(checked: &Checked, seen: &Seen<'_>) -> Decided {
    let Rule { decision, why, origin, path, .. } = &checked.rule;
    let by = match (&seen.paths, path) {
        (Paths::Unknown(_), Some(_)) => {
            format!("{}; {} does not say which of its arguments are paths", checked.rule, seen.tool)
        }
        _ => checked.rule.to_string(),
    };
    Decided { ruling: *decision, by, why: why.clone(), origin: origin.clone(), by_path: path.is_some() }
}

/// What is done where no rule matches.
fn default_for(seen: &Seen<'_>) -> Decided {
    let decided = |ruling, by: String| Decided { ruling, by, why: None, origin: None, by_path: false };
    match (seen.secret(), seen.effect) {
        (Some(secret), _) => decided(Ruling::Ask, format!("default: {secret} looks like a secret")),
        (None, effect) if effect.is_irreversible() => decided(Ruling::Ask, "default: it cannot be taken back".into()),
        (None, effect) => decided(Ruling::Allow, format!("default: {} effects are allowed", effect)),
    }
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Data<'a> {
            rules: Vec<&'a Rule>,
            #[serde(skip_serializing_if = "Vec::is_empty")]
            guards: Vec<&'a Rule>,
        }
        let (rules, guards) = self.rules();
        Data { rules: rules.collect(), guards: guards.collect() }.serialize(serializer)
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
