//! The choice of the agent or workflow that continues.

use serde::{Deserialize, Serialize};

use super::{Body, EvidenceRef};
use crate::id::SessionId;
use crate::kind::Kind;
use crate::summary::join;

/// A selector chose among candidates. The actor of the record is the selector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Routed {
    /// The candidates, in the order in which they were offered.
    pub candidates: Vec<Candidate>,
    /// The names of the chosen candidates: none, one or several.
    pub chosen: Vec<String>,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What made the choice: a rule with its version, a model, or a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The evidence for the choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<EvidenceRef>,
}

/// A candidate that a selector can choose.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The name, unique among the candidates.
    pub name: String,
    /// The score: greater is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// The reason for the score, or for the exclusion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Body for Routed {
    const KIND: Kind = Kind::Routed;
    fn summary(&self, _: SessionId) -> String {
        let chosen = match self.chosen.as_slice() {
            [] => "none".to_owned(),
            chosen => chosen.join(", "),
        };
        let of = format!("{chosen} of {}", self.candidates.len());
        join(&of, &self.why.as_ref().map(|why| format!("({why})")).unwrap_or_default())
    }
}
