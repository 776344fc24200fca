//! The choice of who works on next.

use serde::{Deserialize, Serialize};

use super::{Body, EvidenceRef};
use crate::id::SessionId;
use crate::kind::Kind;
use crate::summary::join;

/// A selector chose among candidates. The actor of the record is the selector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Routed {
    /// What could be chosen, in the order in which it was offered.
    pub candidates: Vec<Candidate>,
    /// The names of those that were chosen: none, one or several.
    pub chosen: Vec<String>,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What the choice was made by: a rule with its version, a model, a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What the choice relied on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<EvidenceRef>,
}

/// Something that a selector can choose.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its name among the candidates.
    pub name: String,
    /// Its score: greater is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Why it was given this score, or left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Body for Routed {
    const KIND: Kind = Kind::Routed;
    fn summary(&self, _: SessionId) -> String {
        let chosen = match self.chosen.as_slice() {
            [] => "nobody".to_owned(),
            chosen => chosen.join(", "),
        };
        let of = format!("{chosen} of {}", self.candidates.len());
        join(&of, &self.why.as_ref().map(|why| format!("({why})")).unwrap_or_default())
    }
}
