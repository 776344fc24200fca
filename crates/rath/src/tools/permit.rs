//! What the rules say of files that a call comes to without naming them: by links, or by looking through a directory.

use std::path::Path;
use std::sync::Arc;

use rath_core::body::Effect;

use crate::policy::{Decided, Policy, Ruling};

/// The rules that hold where a desk stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permit {
    rules: Vec<Arc<Policy>>,
}

impl Permit {
    /// By these rules.
    pub(crate) fn of(rules: impl IntoIterator<Item = Arc<Policy>>) -> Self {
        Self { rules: rules.into_iter().collect() }
    }

    /// Whether there are no rules.
    pub(super) fn is_open(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether a call that was allowed for `named` may reach `real` through a link. Fails if a rule denies `real`, or asks
    /// about it: an approval of `named` does not cover `real` if the rule that asks goes by paths, or is another one.
    pub(super) fn check_link(&self, tool: &str, effect: Effect, named: &Path, real: &Path) -> Result<(), String> {
        if named == real {
            return Ok(());
        }
        self.check(tool, effect, named, real, |approved, reached| reached.by_path || approved.by != reached.by)
    }

    /// Whether a call that was allowed for the directory `start` may look into `file` below it. An approval of `start`
    /// covers what the same rule asks about.
    pub(super) fn check_below(&self, tool: &str, effect: Effect, start: &Path, file: &Path) -> Result<(), String> {
        self.check(tool, effect, start, file, |approved, reached| approved.by != reached.by)
    }

    fn check(
        &self,
        tool: &str,
        effect: Effect,
        named: &Path,
        reached: &Path,
        is_not_approved: impl Fn(&Decided, &Decided) -> bool,
    ) -> Result<(), String> {
        for rules in &self.rules {
            let (approved, reached) = (rules.decide_at(tool, effect, named), rules.decide_at(tool, effect, reached));
            let refused = match reached.ruling {
                Ruling::Allow => false,
                Ruling::Ask => approved.ruling == Ruling::Allow || is_not_approved(&approved, &reached),
                Ruling::Deny => true,
            };
            if refused {
                return Err(reached.by);
            }
        }
        Ok(())
    }
}
