//! The result of a check.

use serde::{Deserialize, Serialize};

use super::open_enum::open_enum;
use super::{Body, EvidenceRef};
use crate::id::{Reference, SessionId};
use crate::kind::Kind;
use crate::summary::join;

/// A validator checked something. The actor of the record is the validator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Validated {
    /// What was checked: the record that stands for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Reference>,
    /// The same in words, e.g. `the patch`, `the answer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// The verdict.
    pub verdict: CheckVerdict,
    /// The score: greater is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// The reasons, the weightiest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// What the verdict relies on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<EvidenceRef>,
}

open_enum! {
    /// What a validator found. A verdict that this version does not know is not a pass.
    pub enum CheckVerdict {
        /// It is as it should be.
        Passed = "passed",
        /// It is not.
        Failed = "failed",
        /// The validator could not tell.
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
