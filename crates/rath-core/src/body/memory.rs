//! Reads and writes of memory, each recorded in the session that made it.
//!
//! The content of memory is defined by these records: versioned items, each with the evidence for it.

use serde::{Deserialize, Serialize};

use super::open_enum::open_enum;
use super::{Body, EvidenceRef};
use crate::blob::Content;
use crate::id::{Reference, SessionId};
use crate::kind::Kind;
use crate::summary::{counted, join};

/// One version of a memory item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryRef {
    /// The id of the item.
    pub id: String,
    /// The version, from 1.
    pub version: u64,
}

/// A search in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recalled {
    /// The search query.
    pub query: Content,
    /// The items found, best match first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hits: Vec<MemoryHit>,
}

/// An item found by a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryHit {
    /// The item, in the version that was found.
    #[serde(flatten)]
    pub item: MemoryRef,
    /// The score: greater is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Whether the item was added to a model's context.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_context: bool,
}

/// A memory item or a new version of one was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// The item and its new version.
    #[serde(flatten)]
    pub item: MemoryRef,
    /// Who or what the item is about.
    pub scope: MemoryScope,
    /// The name of that user, agent, project or workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The sort of item, e.g. `fact`, `preference`, `procedure`.
    #[serde(rename = "kind")]
    pub sort: String,
    /// How reliable the item is.
    pub status: MemoryStatus,
    /// The content.
    pub content: Content,
    /// The evidence for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<EvidenceRef>,
}

open_enum! {
    /// Who or what a memory item is about. An item with a scope that this version does not know is never shown.
    pub enum MemoryScope {
        /// A person.
        User = "user",
        /// An agent.
        Agent = "agent",
        /// A project.
        Project = "project",
        /// A workflow.
        Workflow = "workflow",
    }
}

open_enum! {
    /// How reliable a memory item is. A status that this version does not know counts as retracted.
    pub enum MemoryStatus {
        /// The statement was not checked.
        Hypothesis = "hypothesis",
        /// The statement was checked.
        Validated = "validated",
        /// The statement is no longer true.
        Retracted = "retracted",
    }
}

/// A memory item is no longer true.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retracted {
    /// The item and its last version.
    #[serde(flatten)]
    pub item: MemoryRef,
    /// The reason.
    pub why: String,
    /// The evidence that it is not true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<EvidenceRef>,
}

/// Changes to memory were undone. Their records stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolledBack {
    /// Memory returns to its content after this record.
    pub to: Reference,
    /// The `committed`, `retracted` and `rolled_back` records that are undone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undone: Vec<Reference>,
    /// The reason.
    pub why: String,
}

/// A model's answer used memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUsed {
    /// The answer: an `assistant` record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Reference>,
    /// The items that the answer used.
    pub items: Vec<MemoryRef>,
    /// How this was determined.
    pub determined: Determined,
}

open_enum! {
    /// How it was determined that an answer used a memory item.
    pub enum Determined {
        /// The model cited the item.
        Cited = "cited",
        /// The item was in the context of the request.
        InContext = "in_context",
        /// A person or a program compared the answer with the item.
        Compared = "compared",
    }
}

impl MemoryRef {
    fn named(&self) -> String {
        format!("{} v{}", self.id, self.version)
    }
}

impl Body for Recalled {
    const KIND: Kind = Kind::Recalled;
    fn summary(&self, _: SessionId) -> String {
        let shown = self.hits.iter().filter(|hit| hit.in_context).count();
        format!("{:?}: {}, {shown} in the context", self.query.to_string(), counted(self.hits.len() as u64, "hit"))
    }
    fn visit_text(&mut self, each: &mut dyn FnMut(&mut Content)) {
        each(&mut self.query);
    }
}

impl Body for Committed {
    const KIND: Kind = Kind::Committed;
    fn summary(&self, _: SessionId) -> String {
        format!("{} ({}, {}): {}", self.item.named(), self.sort, self.status, self.content)
    }
    fn visit_text(&mut self, each: &mut dyn FnMut(&mut Content)) {
        each(&mut self.content);
    }
}

impl Body for Retracted {
    const KIND: Kind = Kind::Retracted;
    fn summary(&self, _: SessionId) -> String {
        join(&self.item.named(), &format!("({})", self.why))
    }
}

impl Body for RolledBack {
    const KIND: Kind = Kind::RolledBack;
    fn summary(&self, _: SessionId) -> String {
        let undone = counted(self.undone.len() as u64, "change");
        format!("to {}, {undone} undone ({})", self.to.point(), self.why)
    }
}

impl Body for MemoryUsed {
    const KIND: Kind = Kind::MemoryUsed;
    fn summary(&self, _: SessionId) -> String {
        let items: Vec<_> = self.items.iter().map(MemoryRef::named).collect();
        format!("{} ({})", items.join(", "), self.determined)
    }
}
