//! A record with all its fields.

use rath_core::{Record, RecordId, SessionId};
use serde::Serialize;
use serde_json::Value;

/// A record with its header and body.
#[derive(Clone, Debug, Serialize)]
pub struct RecordDetails {
    /// The session that contains the record.
    pub session: SessionId,
    /// Its sequence number in the session.
    pub seq: u64,
    /// Its id.
    pub id: RecordId,
    /// The header: kind, parents, time, actor.
    pub header: Value,
    /// The body; null if it was erased or redacted.
    pub body: Value,
}

impl RecordDetails {
    /// Converts a stored record.
    pub fn of(record: &Record) -> serde_json::Result<Self> {
        Ok(Self {
            session: record.session(),
            seq: record.seq(),
            id: record.id(),
            header: serde_json::from_slice(record.header_bytes())?,
            body: record.body_bytes().map_or(Ok(Value::Null), serde_json::from_slice)?,
        })
    }
}
