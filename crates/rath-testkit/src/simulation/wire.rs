//! What is on its way between processes and the store.

use std::rc::Rc;

use rath_core::store::Fence;

use super::disk::Life;
use super::entry::{Post, Session};
use super::holder::Batch;

/// Something sent to the store.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Commit(Rc<Batch>),
    Lease { session: Session, life: Life },
    Release { session: Session, life: Life, fence: Fence },
    Post(Post),
    Erase { session: Session, seq: usize },
}

/// What the store says.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Committed(Rc<Batch>),
    Lost(Rc<Batch>, Session),
    TooEarly(Rc<Batch>),
    Granted { session: Session, life: Life, fence: Fence },
    Accepted(Post),
    Erased { session: Session, seq: usize },
}

impl Request {
    pub(super) fn in_words(&self) -> String {
        match self {
            Request::Commit(batch) => format!("from process {}: {}", batch.life, in_words(batch)),
            Request::Lease { session, life } => format!("process {life}'s wish for session {session}"),
            Request::Release { session, life, .. } => format!("session {session} back from process {life}"),
            Request::Post(post) => format!("post {post}"),
            Request::Erase { session, seq } => format!("the order to erase record {seq} of session {session}"),
        }
    }
}

pub(super) fn in_words(batch: &Batch) -> String {
    let parts = batch.parts.iter().filter_map(|part| {
        let (first, last) = (part.entries.first()?, part.entries.last()?);
        Some(format!("records {} to {} of session {} (fence {})", first.seq, last.seq, part.session, part.fence))
    });
    let mut words = parts.collect::<Vec<_>>().join(", ");
    if !batch.taken.is_empty() {
        words.push_str(&format!(", which say posts {:?}", batch.taken));
    }
    words
}

pub(super) fn heard(answer: Option<&Answer>) -> String {
    match answer {
        Some(Answer::Committed(batch)) => format!("{} are durable", in_words(batch)),
        Some(Answer::Lost(_, session)) => format!("session {session} is lost to another process"),
        Some(Answer::TooEarly(_)) => "they do not follow the head".into(),
        Some(Answer::Granted { session, fence, .. }) => format!("session {session} is granted with fence {fence}"),
        Some(Answer::Accepted(post)) => format!("post {post} is kept"),
        Some(Answer::Erased { session, seq }) => format!("record {seq} of session {session} is gone"),
        None => "no".into(),
    }
}
