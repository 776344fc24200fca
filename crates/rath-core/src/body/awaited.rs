//! What a run waits for, and its arrival.

use serde::{Deserialize, Serialize};

use super::Body;
use super::open_enum::open_enum;
use crate::blob::Content;
use crate::clock::Time;
use crate::id::SessionId;
use crate::kind::Kind;
use crate::state::{At, OpenWait, State};
use crate::summary::join;

/// The session waits for something from outside. It is pending until it is received, or given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    /// Names the wait on its line; `received` refers to it.
    pub id: String,
    /// What sort of thing is waited for.
    #[serde(rename = "for")]
    pub what: WaitsFor,
    /// The event's or the person's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The time that is waited for; with another sort, the time after which it is no longer waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

open_enum! {
    /// What a session waits for. Something that this version does not know stays pending here.
    pub enum WaitsFor {
        /// A time.
        Time = "time",
        /// An event by its name.
        Event = "event",
        /// A person.
        Person = "person",
    }
}

/// What a session waited for has come. The actor is who, or what, brought it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// The id of the wait.
    pub id: String,
    /// What came with it, as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Content>,
    /// The post that it came as.
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
    fn fold(&self, at: &At, state: &mut State) {
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
    fn fold(&self, _: &At, state: &mut State) {
        // What comes a second time finds nothing open, and changes nothing.
        if let Some(open) = state.waits.iter().rposition(|wait| wait.id == self.id && !wait.inherited) {
            state.waits.remove(open);
        }
    }
    fn contents(&mut self, each: &mut dyn FnMut(&mut Content)) {
        self.value.iter_mut().for_each(each);
    }
}
