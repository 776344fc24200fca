//! Reads and writes of memory. Each stands on the session that made it.
//!
//! Memory is what these records say: items with versions, each with the evidence that justified it.

use serde::{Deserialize, Serialize};

use super::open_enum::open_enum;
use super::{Body, EvidenceRef};
use crate::blob::Content;
use crate::id::{Reference, SessionId};
use crate::kind::Kind;
use crate::summary::{counted, join};

/// A version of a memory item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryRef {
    /// The item's id.
    pub id: String,
    /// The version, from 1.
    pub version: u64,
}

/// Memory was searched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recalled {
    /// What was looked for.
    pub query: Content,
    /// What was found, the best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hits: Vec<Hit>,
}

/// An item that a search found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hit {
    /// The item as it was then.
    #[serde(flatten)]
    pub item: MemoryRef,
    /// How well it fits: greater is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Whether a model was shown it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_context: bool,
}

/// A memory item, or a new version of one, was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// The item and its new version.
    #[serde(flatten)]
    pub item: MemoryRef,
    /// Whom it concerns.
    pub scope: MemoryScope,
    /// Which user, agent, project or workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// What sort of thing it is, e.g. `fact`, `preference`, `procedure`.
    #[serde(rename = "kind")]
    pub sort: String,
    /// How far it is to be relied on.
    pub status: MemoryStatus,
    /// What it says.
    pub content: Content,
    /// What justifies it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<EvidenceRef>,
}

open_enum! {
    /// Whom a memory item concerns. An item with a scope that this version does not know is shown to nobody.
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
    /// How far a memory item is to be relied on. One that this version does not know counts as retracted.
    pub enum MemoryStatus {
        /// It was said, and not checked.
        Hypothesis = "hypothesis",
        /// It was checked.
        Validated = "validated",
        /// It no longer holds.
        Retracted = "retracted",
    }
}

/// A memory item no longer holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retracted {
    /// The item and its last version.
    #[serde(flatten)]
    pub item: MemoryRef,
    /// The reason.
    pub why: String,
    /// What shows that it does not hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<EvidenceRef>,
}

/// Changes to memory were taken back. What was written stays on the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolledBack {
    /// Memory is again as it was after this record.
    pub to: Reference,
    /// The `committed`, `retracted` and `rolled_back` records that no longer count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undone: Vec<Reference>,
    /// The reason.
    pub why: String,
}

/// An answer used memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUsed {
    /// The answer: an `assistant` record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Reference>,
    /// The items that it used.
    pub items: Vec<MemoryRef>,
    /// How that is known.
    pub determined: Determined,
}

open_enum! {
    /// How it is known that an answer used a memory item.
    pub enum Determined {
        /// The model named it.
        Cited = "cited",
        /// The item stood in the context of the request.
        InContext = "in_context",
        /// A person or a program compared the two.
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
    fn contents(&mut self, each: &mut dyn FnMut(&mut Content)) {
        each(&mut self.query);
    }
}

impl Body for Committed {
    const KIND: Kind = Kind::Committed;
    fn summary(&self, _: SessionId) -> String {
        format!("{} ({}, {}): {}", self.item.named(), self.sort, self.status, self.content)
    }
    fn contents(&mut self, each: &mut dyn FnMut(&mut Content)) {
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
