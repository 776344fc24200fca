//! Work from another system.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Body, Forked};
use crate::blob::{BlobRef, Content};
use crate::context::ItemKind;
use crate::id::{Digest, Reference, SessionId};
use crate::kind::Kind;
use crate::record::{Record, RecordError};
use crate::state::{RecordMeta, State};
use crate::summary::{counted, join};

/// The first record of a session that another system created. The file that was read is kept unchanged as a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// The format, e.g. `openrath`.
    pub from: String,
    /// The file, unchanged.
    pub source: BlobRef,
    /// The file name, without the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The session's id in the system that it was imported from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<String>,
    /// The creation time in that system, in the format of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// How the session was created in that system: the name and kind of the operation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lineage: Vec<String>,
    /// Its parent sessions in the system that it was imported from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<ImportedParent>,
    /// The trailer of the file, as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trailer: Option<String>,
    /// Violations of the format, and how each was repaired.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repairs: Vec<Repair>,
}

/// A parent of an imported session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedParent {
    /// The id in the other system.
    pub original: String,
    /// The head that this session had in the store when the child was imported; `None` when it had not been imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub here: Option<Reference>,
}

/// A violation of the format in an imported file, and its repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    /// The line number, from 1; 0 for the file as a whole.
    pub line: u64,
    /// What is wrong.
    pub what: String,
    /// How it was repaired.
    pub how: String,
}

/// External work that a session continues or refers to: the file, and the repairs in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Linked {
    /// The other system, e.g. `openrath` or `rath bundle`.
    pub system: String,
    /// The name in that system: a file name or an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// The content, if the store keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<BlobRef>,
    /// Why the session refers to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The imported records: for each session the last one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heads: Vec<Reference>,
    /// Violations of the format, and how each was repaired.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repairs: Vec<Repair>,
}

/// The origin of an imported record: the field `source` of its body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportSource {
    /// The digest of the file. The session's `imported` or `linked` record names the same blob.
    pub blob: Digest,
    /// The line number in the file, from 1.
    pub line: u64,
    /// The time of the entry, in the format of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
}

impl ImportSource {
    /// The files that `record` names as the source of other records of its session.
    pub fn files(record: &Record) -> Vec<BlobRef> {
        match record.kind() {
            Kind::Imported => record.body::<Imported>().map_or(Vec::new(), |body| vec![body.source]),
            Kind::Linked => record.body::<Linked>().ok().and_then(|body| body.source).into_iter().collect(),
            Kind::Forked => {
                let copied = record.body::<Forked>().ok().and_then(|body| body.imported_tail);
                copied.map(|copied| copied.records).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// The origin of a record; `None` when it was not imported, or its body is erased.
    pub fn of(record: &Record) -> Result<Option<ImportSource>, RecordError> {
        #[derive(Deserialize)]
        struct Sourced {
            source: Option<ImportSource>,
        }
        let may_have_one = record.kind().is_conversation() || *record.kind() == Kind::Note;
        match (may_have_one, record.body_bytes()) {
            (true, Some(body)) => {
                let body: Sourced = serde_json::from_slice(body).map_err(|e| RecordError::Unreadable(e.to_string()))?;
                Ok(body.source)
            }
            _ => Ok(None),
        }
    }
}

/// The body of an imported record, with its position in the imported file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "B: Serialize + DeserializeOwned")]
pub struct Sourced<B> {
    /// The body.
    #[serde(flatten)]
    pub body: B,
    /// The position in the file.
    pub source: ImportSource,
}

impl<B: Body> Body for Sourced<B> {
    const KIND: Kind = B::KIND;
    fn summary(&self, on: SessionId) -> String {
        self.body.summary(on)
    }
    fn fold(&self, at: &RecordMeta, state: &mut State) {
        self.body.fold(at, state);
    }
    fn item_kind(&self) -> Option<ItemKind> {
        self.body.item_kind()
    }
    fn is_pure(&self, state: &State) -> bool {
        self.body.is_pure(state)
    }
    fn visit_text(&mut self, each: &mut dyn FnMut(&mut Content)) {
        self.body.visit_text(each);
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
