//! A budget that the branches of a step share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rath_core::{Session, SessionId, Usage};

use crate::agent::Budget;

/// What the branches of a step may use together. A resource of each branch. Agents check it before each request.
#[derive(Clone)]
pub(crate) struct SharedBudget(Arc<Inner>);

struct Inner {
    limit: Budget,
    /// By branch: its usage when it started, and now.
    branches: Mutex<HashMap<SessionId, (Usage, Usage)>>,
}

impl SharedBudget {
    pub(super) fn new(limit: Budget) -> Self {
        Self(Arc::new(Inner { limit, branches: Mutex::default() }))
    }

    /// Updates the usage of a branch. Its first call is made when the branch starts.
    pub(crate) fn note(&self, branch: &Session) {
        let usage = branch.usage();
        let mut branches = self.0.branches.lock().unwrap_or_else(PoisonError::into_inner);
        branches.entry(branch.id()).or_insert((usage, usage)).1 = usage;
    }

    /// Forgets a branch that was merged: its usage is now part of the session that it was merged into.
    pub(crate) fn forget(&self, branch: SessionId) {
        self.0.branches.lock().unwrap_or_else(PoisonError::into_inner).remove(&branch);
    }

    /// The limit that is reached, and how much was used. `None` below all limits.
    pub(crate) fn spent(&self) -> Option<String> {
        let branches = self.0.branches.lock().unwrap_or_else(PoisonError::into_inner);
        let mut used = Usage::default();
        branches.values().for_each(|(before, now)| used += *now - *before);
        let tokens = used.input_tokens + used.output_tokens;
        let limit = &self.0.limit;
        if let Some(most) = limit.tokens.filter(|most| tokens >= *most) {
            return Some(format!("the branches used {tokens} tokens of {most}"));
        }
        let most = limit.cost_nano_usd.filter(|most| used.cost_nano_usd >= *most)?;
        Some(format!("the branches used ${:.4} of ${:.4}", used.cost_nano_usd as f64 / 1e9, most as f64 / 1e9))
    }
}
