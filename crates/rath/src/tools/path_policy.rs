//! Policy checks for files that a call reaches without naming them: through links, or by searching a directory.

use std::path::Path;
use std::sync::Arc;

use rath_core::body::Effect;

use crate::policy::{Policy, PolicyAction, PolicyDecision};

/// The policies that apply in a tool workspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathPolicy {
    rules: Vec<Arc<Policy>>,
}

impl PathPolicy {
    /// Applies these policies.
    pub(crate) fn of(rules: impl IntoIterator<Item = Arc<Policy>>) -> Self {
        Self { rules: rules.into_iter().collect() }
    }

    /// Whether there are no policies.
    pub(super) fn is_open(&self) -> bool {
        self.rules.is_empty()
    }

    /// Checks whether a call that was allowed for `named` may reach `real` through a link. Fails if a rule denies
    /// `real` or asks about it. An approval of `named` covers `real` only if the same rule asks about both and it has
    /// no path.
    pub(super) fn check_link(&self, tool: &str, effect: Effect, named: &Path, real: &Path) -> Result<(), String> {
        if named == real {
            return Ok(());
        }
        self.check(tool, effect, named, real, |approved, reached| reached.by_path || approved.by != reached.by)
    }

    /// Checks whether a call that was allowed for the directory `start` may read `file` below it. An approval of
    /// `start` covers `file` if the same rule asks about both.
    pub(super) fn check_below(&self, tool: &str, effect: Effect, start: &Path, file: &Path) -> Result<(), String> {
        self.check(tool, effect, start, file, |approved, reached| approved.by != reached.by)
    }

    fn check(
        &self,
        tool: &str,
        effect: Effect,
        named: &Path,
        reached: &Path,
        is_not_approved: impl Fn(&PolicyDecision, &PolicyDecision) -> bool,
    ) -> Result<(), String> {
        for rules in &self.rules {
            let (approved, reached) = (rules.decide_at(tool, effect, named), rules.decide_at(tool, effect, reached));
            let refused = match reached.action {
                PolicyAction::Allow => false,
                PolicyAction::Ask => approved.action == PolicyAction::Allow || is_not_approved(&approved, &reached),
                PolicyAction::Deny => true,
            };
            if refused {
                return Err(reached.by);
            }
        }
        Ok(())
    }
}
