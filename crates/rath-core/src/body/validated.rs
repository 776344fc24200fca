//! Results of validators.

use serde::{Deserialize, Serialize};

use super::open_enum::open_enum;
use super::{Body, EvidenceRef};
use crate::files::{Changes, Version};
use crate::id::{Reference, SessionId};
use crate::kind::Kind;
use crate::summary::join;

/// A validator checked something. The actor of the record is the validator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Validated {
    /// The name of the validator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validator: Option<String>,
    /// The version of the files that was checked. The verdict does not apply to other versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Version>,
    /// What the check itself changed in the files. These changes were dropped.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub dropped: Changes,
    /// The record that was checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Reference>,
    /// What was checked, as a phrase such as `the patch` or `the answer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// Whether the work was accepted.
    pub verdict: CheckVerdict,
    /// The score: greater is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// The reasons, most important first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// The evidence for the verdict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<EvidenceRef>,
}

open_enum! {
    /// The verdict of a validator. A verdict that this version does not know does not count as passed.
    pub enum CheckVerdict {
        /// The check passed.
        Passed = "passed",
        /// The check failed.
        Failed = "failed",
        /// The validator could not decide.
        Undecided = "undecided",
    }
}

impl Body for Validated {
    const KIND: Kind = Kind::Validated;
    fn summary(&self, _: SessionId) -> String {
        let what = match (&self.what, &self.record) {
            (Some(what), _) => format!("{what} {}", self.verdict),
            (None, Some(record)) => format!("{} {}", record.point(), self.verdict),
            (None, None) => self.verdict.to_string(),
        };
        let score = self.score.map(|score| format!(", score {score}")).unwrap_or_default();
        let reasons = self.reasons.join("; ");
        join(&format!("{what}{score}"), &if reasons.is_empty() { reasons } else { format!("({reasons})") })
    }
}
