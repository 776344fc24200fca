//! The messages between processes and the store.

use std::rc::Rc;

use rath_core::store::FencingToken;

use super::disk::ProcessId;
use super::entry::{Post, Session};
use super::holder::Batch;

/// A request to the store.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Commit(Rc<Batch>),
    Lease { session: Session, process: ProcessId },
    Release { session: Session, process: ProcessId, fence: FencingToken },
    Post(Post),
    Erase { session: Session, seq: usize },
}

/// An answer of the store.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Committed(Rc<Batch>),
    Lost(Rc<Batch>, Session),
    TooEarly(Rc<Batch>),
    Granted { session: Session, process: ProcessId, fence: FencingToken },
    Accepted(Post),
    Erased { session: Session, seq: usize },
}

impl Request {
    pub(super) fn describe(&self) -> String {
        match self {
            Request::Commit(batch) => format!("the commit of process {}: {}", batch.process, describe(batch)),
            Request::Lease { session, process } => {
                format!("the lease request of process {process} for session {session}")
            }
            Request::Release { session, process, .. } => {
                format!("the release of session {session} by process {process}")
            }
            Request::Post(post) => format!("post {post}"),
            Request::Erase { session, seq } => format!("the erasure of record {seq} of session {session}"),
        }
    }
}

pub(super) fn describe(batch: &Batch) -> String {
    let parts = batch.parts.iter().filter_map(|part| {
        let (first, last) = (part.entries.first()?, part.entries.last()?);
        Some(format!("records {} to {} of session {} (token {})", first.seq, last.seq, part.session, part.fence))
    });
    let mut words = parts.collect::<Vec<_>>().join(", ");
    if !batch.consumed.is_empty() {
        words.push_str(&format!(" with posts {:?}", batch.consumed));
    }
    words
}

pub(super) fn describe_answer(answer: Option<&Answer>) -> String {
    match answer {
        Some(Answer::Committed(batch)) => format!("{} are durable", describe(batch)),
        Some(Answer::Lost(_, session)) => format!("the lease of session {session} is lost"),
        Some(Answer::TooEarly(_)) => "the records do not follow the head".into(),
        Some(Answer::Granted { session, fence, .. }) => format!("session {session} is leased with token {fence}"),
        Some(Answer::Accepted(post)) => format!("post {post} is accepted"),
        Some(Answer::Erased { session, seq }) => format!("record {seq} of session {session} is erased"),
        None => "no answer".into(),
    }
}
