//! Waiting for something from outside the session.

use serde::{Deserialize, Serialize};

use super::Body;
use super::open_enum::open_enum;
use crate::blob::Content;
use crate::clock::Time;
use crate::id::SessionId;
use crate::kind::Kind;
use crate::state::{OpenWait, RecordMeta, State};
use crate::summary::join;

/// The session waits for something from outside. The wait is open until a `received` record or a cancellation ends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    /// The id of the wait within the session; `received` refers to it.
    pub id: String,
    /// What the session waits for.
    #[serde(rename = "for")]
    pub what: WaitKind,
    /// The name of the event or the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The time to wait for, for [`WaitKind::Time`]; for other kinds, the deadline after which the wait ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

open_enum! {
    /// What a session waits for. A kind that this version does not know stays open here.
    pub enum WaitKind {
        /// A point in time.
        Time = "time",
        /// A named event.
        Event = "event",
        /// A person's answer.
        Person = "person",
    }
}

/// A wait ended because the thing it waited for arrived. The actor is the sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// The id of the wait.
    pub id: String,
    /// The value that arrived, as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Content>,
    /// The id of the post that delivered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post: Option<String>,
}

impl Body for Awaited {
    const KIND: Kind = Kind::Awaited;
    fn summary(&self, _: SessionId) -> String {
        let what = join(&self.what.to_string(), self.name.as_deref().unwrap_or_default());
        let until = self.until.map(|until| format!(" until {until}")).unwrap_or_default();
        let why = self.why.as_ref().map(|why| format!("({why})")).unwrap_or_default();
        join(&format!("{what}{until} [{}]", self.id), &why)
    }
    fn fold(&self, at: &RecordMeta, state: &mut State) {
        state.waits.push(OpenWait {
            record: at.id,
            seq: at.seq,
            id: self.id.clone(),
            what: self.what,
            name: self.name.clone(),
            until: self.until,
            inherited: false,
        });
    }
}

impl Body for Received {
    const KIND: Kind = Kind::Received;
    fn summary(&self, _: SessionId) -> String {
        let value = self.value.as_ref().map(ToString::to_string).unwrap_or_default();
        join(&format!("[{}]", self.id), &value)
    }
    fn fold(&self, _: &RecordMeta, state: &mut State) {
        // A second arrival finds no open wait and changes nothing.
        if let Some(open) = state.waits.iter().rposition(|wait| wait.id == self.id && !wait.inherited) {
            state.waits.remove(open);
        }
    }
    fn visit_text(&mut self, each: &mut dyn FnMut(&mut Content)) {
        self.value.iter_mut().for_each(each);
    }
}
