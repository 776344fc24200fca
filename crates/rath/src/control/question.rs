//! Questions to people, and their answers.

use rath_core::body::{Asked, Grant, QuestionKind};
use rath_core::store::Query;
use rath_core::{Actor, Digest, OpenAsk, Point, Record, RecordError, RecordId, SessionId, Time, View};
use serde::Serialize;

use super::{Control, Error, Result};

/// A question as a person is shown it. An answer is valid only for exactly this text.
#[derive(Clone, Debug, Serialize)]
pub struct Question {
    /// The session that asks.
    pub session: SessionId,
    /// The `asked` record.
    #[serde(rename = "asked")]
    pub record: RecordId,
    /// The position of the `asked` record.
    pub at: Point,
    /// What the question is about.
    pub about: QuestionKind,
    /// The call that waits for the answer.
    pub call: Option<String>,
    /// What "always" allows, if the question offers it.
    pub always: Option<Grant>,
    /// The policy rule that requires the approval.
    pub rule: Option<String>,
    /// The text that is shown.
    pub shown: String,
    /// The SHA-256 of `shown`.
    pub shown_digest: Digest,
    /// When it was asked.
    pub time: Time,
    /// The actor that asks.
    pub by: Actor,
}

/// A person's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Yes.
    Yes,
    /// No.
    No,
    /// Yes, now and for all calls that the question's `always` describes.
    Always,
    /// Text.
    Text(String),
}

impl Question {
    /// The question in an `asked` record, with its text.
    pub(crate) fn new(record: &Record, asked: Asked, shown: String) -> Result<Self, RecordError> {
        let header = record.header()?;
        Ok(Self {
            session: record.session(),
            record: record.id(),
            at: record.point(),
            about: asked.about,
            call: asked.call,
            always: asked.always.map(|grant| *grant),
            rule: asked.policy,
            shown,
            shown_digest: asked.shown_digest,
            time: header.time,
            by: header.actor,
        })
    }
}

impl Control {
    /// The open questions of all open sessions.
    pub async fn questions(&self) -> Result<Vec<Question>> {
        let mut questions = Vec::new();
        for row in self.store.sessions(Query::all().waiting()).await? {
            questions.extend(self.questions_of(row.id).await?);
        }
        Ok(questions)
    }

    /// The open questions of one session.
    pub async fn questions_of(&self, session: SessionId) -> Result<Vec<Question>> {
        let mut questions = Vec::new();
        for OpenAsk { seq, .. } in View::of(&self.store, session, None).await?.pending().asks {
            questions.push(self.question_at(Point { session, seq }).await?);
        }
        Ok(questions)
    }

    /// The question in a record, answered or not.
    pub async fn question_at(&self, at: Point) -> Result<Question> {
        let view = View::of(&self.store, at.session, Some(at.seq)).await?;
        let record = view.record();
        let Ok(asked) = record.body::<Asked>() else { return Err(Error::NotAQuestion(at)) };
        let shown = view.content(&asked.shown).await?;
        let bad = |why| rath_core::Error::from(rath_core::ErrorKind::Record { point: at, why });
        Ok(Question::new(record, asked, shown).map_err(bad)?)
    }

    /// Whether the question is still open.
    pub async fn is_open(&self, question: &Question) -> Result<bool> {
        let open = View::of(&self.store, question.session, None).await?.pending().asks;
        Ok(open.iter().any(|ask| ask.record == question.record))
    }
}
