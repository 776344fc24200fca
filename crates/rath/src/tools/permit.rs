//! What the rules say of files that a call comes to without naming them: by links, or by looking through a directory.

use std::path::Path;
use std::sync::Arc;

use rath_core::body::Effect;

use crate::policy::{Decided, Policy};

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

    /// Whether a call that was let through, and that named `named`, may come to `real`: only where no rule is stricter
    /// about that, and none asks about it for another reason.
    pub(super) fn check(&self, tool: &str, effect: Effect, named: &Path, real: &Path) -> Result<(), String> {
        for rules in &self.rules {
            let at = |path: &Path| rules.decide_at(tool, effect, path);
            let (asked, comes_to) = (at(named), at(real));
            if comes_to.ruling > asked.ruling || comes_to.ruling == asked.ruling && is_another(&asked, &comes_to) {
                return Err(comes_to.by);
            }
        }
        Ok(())
    }
}

fn is_another(asked: &Decided, comes_to: &Decided) -> bool {
    comes_to.ruling != crate::policy::Ruling::Allow && asked.by != comes_to.by
}
