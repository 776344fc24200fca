//! Changes of a session's title and labels.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Body;
use crate::id::SessionId;
use crate::kind::Kind;
use crate::state::{RecordMeta, State};

/// A change of the session's title or labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Labelled {
    /// The new title; `None` keeps the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The labels that are set, with their values; the value of a label without one is empty.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, String>,
    /// The labels that are removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unset: Vec<String>,
}

impl Body for Labelled {
    const KIND: Kind = Kind::Labelled;
    fn summary(&self, _: SessionId) -> String {
        let title = self.title.iter().map(|title| format!("title {title:?}"));
        let set = self.set.iter().map(|(name, value)| match value.as_str() {
            "" => name.clone(),
            _ => format!("{name}={value}"),
        });
        let unset = self.unset.iter().map(|name| format!("-{name}"));
        title.chain(set).chain(unset).collect::<Vec<_>>().join(" ")
    }
    fn fold(&self, _: &RecordMeta, state: &mut State) {
        if self.title.is_some() {
            state.title.clone_from(&self.title);
        }
        for label in &self.unset {
            state.labels.remove(label);
        }
        state.labels.extend(self.set.clone());
    }
}
