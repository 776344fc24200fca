//! Work that comes from another system.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Body, Forked};
use crate::blob::{BlobRef, Content};
use crate::context::Shape;
use crate::id::{Digest, Reference, SessionId};
use crate::kind::Kind;
use crate::record::{Fault, Record};
use crate::state::{At, State};
use crate::summary::{counted, join};

/// The first record of a session that another system made. What was read is kept, byte for byte, as a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// The format, e.g. `openrath`.
    pub from: String,
    /// The file, as it was.
    pub source: BlobRef,
    /// The file's name, without its directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The session's id in that system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<String>,
    /// When it was made there, as the file says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// How it came about there: the operation's name and kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lineage: Vec<String>,
    /// The sessions it came from there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<ImportedParent>,
    /// What the file says at its end, as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trailer: Option<String>,
    /// What was not as the format wants it, and what was done about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repairs: Vec<Repair>,
}

/// A session that an imported one came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedParent {
    /// Its id in the other system.
    pub original: String,
    /// Its head here when the child was imported, where it had been imported before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub here: Option<Reference>,
}

/// Something in a file that is not as its format wants it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    /// The line, from 1; 0 for the file as a whole.
    pub line: u64,
    /// What is wrong with it.
    pub what: String,
    /// What was done.
    pub how: String,
}

/// Work from outside that a session goes on with or refers to: the file, and what was repaired in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Linked {
    /// The other system, e.g. `openrath` or `rath bundle`.
    pub system: String,
    /// What it is called there: a file's name, an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Its content, where that is kept here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<BlobRef>,
    /// Why it is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Records that it brought, up to these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heads: Vec<Reference>,
    /// What was not as the format wants it, and what was done about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repairs: Vec<Repair>,
}

/// Where an imported record comes from: field `source` of its body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The digest of the file, as the session's `imported` or `linked` record names it.
    pub blob: Digest,
    /// The line in it, from 1.
    pub line: u64,
    /// When it was said, as the file says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
}

impl Source {
    /// The files that a record names as where others of its session come from.
    pub fn files(record: &Record) -> Vec<BlobRef> {
        match record.kind() {
            Kind::Imported => record.body::<Imported>().map_or(Vec::new(), |body| vec![body.source]),
            Kind::Linked => record.body::<Linked>().ok().and_then(|body| body.source).into_iter().collect(),
            Kind::Forked => {
                let copied = record.body::<Forked>().ok().and_then(|body| body.copied);
                copied.map(|copied| copied.records).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Where a record comes from; `None` when it was made here, or its body is erased.
    pub fn of(record: &Record) -> Result<Option<Source>, Fault> {
        #[derive(Deserialize)]
        struct Sourced {
            source: Option<Source>,
        }
        let may_have_one = record.kind().is_conversation() || *record.kind() == Kind::Note;
        match (may_have_one, record.body_bytes()) {
            (true, Some(body)) => {
                let body: Sourced = serde_json::from_slice(body).map_err(|e| Fault::Unreadable(e.to_string()))?;
                Ok(body.source)
            }
            _ => Ok(None),
        }
    }
}

/// A body that came from a file, with its place there.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "B: Serialize + DeserializeOwned")]
pub struct Sourced<B> {
    /// What it says.
    #[serde(flatten)]
    pub body: B,
    /// Where it comes from.
    pub source: Source,
}

impl<B: Body> Body for Sourced<B> {
    const KIND: Kind = B::KIND;
    fn summary(&self, on: SessionId) -> String {
        self.body.summary(on)
    }
    fn fold(&self, at: &At, state: &mut State) {
        self.body.fold(at, state);
    }
    fn shape(&self) -> Option<Shape> {
        self.body.shape()
    }
    fn is_pure(&self, state: &State) -> bool {
        self.body.is_pure(state)
    }
    fn contents(&mut self, each: &mut dyn FnMut(&mut Content)) {
        self.body.contents(each);
    }
}

impl Body for Imported {
    const KIND: Kind = Kind::Imported;
    fn summary(&self, _: SessionId) -> String {
        let digest = || self.source.digest.to_string();
        let name = self.name.clone().unwrap_or_else(digest);
        match self.repairs.len() {
            0 => format!("{name} ({})", self.from),
            repairs => format!("{name} ({}), {}", self.from, counted(repairs as u64, "repair")),
        }
    }
}

impl Body for Linked {
    const KIND: Kind = Kind::Linked;
    fn summary(&self, _: SessionId) -> String {
        let what = [self.system.as_str(), self.uri.as_deref().unwrap_or_default()].join(" ");
        join(&what, self.why.as_deref().unwrap_or_default())
    }
}
