//! A projection of the sessions with open questions, so that not every session must be folded to find them.

use super::{ErasedSet, Projection, Result, Storage};
use crate::body::{Answered, Asked};
use crate::id::{Point, SessionId};
use crate::kind::Kind;
use crate::record::Record;

/// The questions that may be open, by session and sequence number. A question whose answer was erased stays listed; the
/// session's folded state is authoritative.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenQuestions;

const KINDS: &[Kind] = &[Kind::Asked, Kind::Answered, Kind::Cancelled];

impl OpenQuestions {
    /// The sessions that may have open questions.
    pub fn sessions(storage: &dyn Storage) -> Result<Vec<SessionId>> {
        let mut sessions: Vec<SessionId> = Vec::new();
        for (key, _) in storage.all(&[])? {
            let session = point(&key).map(|point| point.session);
            sessions.extend(session.filter(|session| sessions.last() != Some(session)));
        }
        Ok(sessions)
    }
}

impl Projection for OpenQuestions {
    fn name(&self) -> &str {
        "open-questions"
    }

    fn version(&self) -> u32 {
        1
    }

    fn kinds(&self) -> &[Kind] {
        KINDS
    }

    fn apply(&self, records: &[Record], storage: &mut dyn Storage) -> Result<()> {
        for record in records {
            let of_session = record.session().0.into_bytes();
            match record.kind() {
                // The value is what an answer must match: the id of the question and the digest of the text. It is
                // empty if the body was erased.
                Kind::Asked => {
                    let shown = record.body::<Asked>().ok().map(|asked| asked.shown_digest.0);
                    let value = shown.map(|shown| [record.id().0.0, shown].concat());
                    storage.put(&key(record.point()), &value.unwrap_or_default())?;
                }
                Kind::Answered => {
                    let Ok(answered) = record.body::<Answered>() else { continue };
                    let answers = [answered.asked.0.0, answered.shown_digest.0].concat();
                    for (key, value) in storage.all(&of_session)? {
                        if value == answers {
                            storage.delete(&key)?;
                        }
                    }
                }
                // A cancellation closes all questions of the session.
                _ => {
                    for (key, _) in storage.all(&of_session)? {
                        storage.delete(&key)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn forget(&self, erased: &ErasedSet, storage: &mut dyn Storage) -> Result<()> {
        for session in &erased.sessions {
            for (key, _) in storage.all(session.0.as_bytes())? {
                storage.delete(&key)?;
            }
        }
        for record in &erased.records {
            let key = key(record.point());
            // Removes the digest of the text. The kind is in the header, so the question itself may stay listed.
            if storage.get(&key)?.is_some() {
                storage.put(&key, &[])?;
            }
        }
        Ok(())
    }
}

fn key(point: Point) -> Vec<u8> {
    [&point.session.0.as_bytes()[..], &point.seq.to_be_bytes()].concat()
}

fn point(key: &[u8]) -> Option<Point> {
    let (session, seq) = key.split_at_checked(16)?;
    let session = SessionId(uuid::Uuid::from_slice(session).ok()?);
    Some(Point { session, seq: u64::from_be_bytes(seq.try_into().ok()?) })
}
