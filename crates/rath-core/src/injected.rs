//! Messages that a request contains in addition to those of its context view, by reference.

use serde::{Deserialize, Serialize};

use crate::blob::{Blob, BlobRef, Content};
use crate::body::{System, User};
use crate::error::{ErrorKind, Result};
use crate::id::RecordId;
use crate::message::{Message, MessageBody};
use crate::reader::Reader;
use crate::store::{self, BoxFuture};
use crate::view::View;

/// A message that a request contains in addition to those of its context view: a memory, a document, a record of
/// another session.
///
/// A request refers to it by record or by blob (exactly one of the two), and does not store it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injected {
    /// Its position: before the context view's message of this index, or after the last message if there are fewer.
    pub at: u64,
    /// The conversation record to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<RecordId>,
    /// The text to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<BlobRef>,
    /// Whether the text of the blob is a system message instead of a user message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub system: bool,
}

/// Chooses the messages to inject into a request: recalled memories or retrieved documents, for example.
///
/// It is called before each request. What it returns is recorded with the request, so a rebuild does not call it again.
pub trait Injector: Send + Sync + 'static {
    /// The messages for the next request of the session at `view`.
    fn inject<'a>(&'a self, view: &'a View) -> BoxFuture<'a, Result<Vec<Injection>>>;
}

/// A message to inject, with its blob if that is not stored yet.
#[derive(Clone, Debug)]
pub struct Injection {
    /// The message, by reference.
    pub injected: Injected,
    /// A blob to store.
    pub blob: Option<Blob>,
}

impl Injection {
    /// A conversation record, at this position among the messages of the context view.
    pub fn record(at: u64, record: RecordId) -> Self {
        Self { injected: Injected { at, record: Some(record), blob: None, system: false }, blob: None }
    }

    /// A text as a user message, at this position among the messages of the context view.
    pub fn text(at: u64, text: impl Into<String>) -> Self {
        let blob = Blob::new(text.into().into_bytes(), "text/plain; charset=utf-8");
        let injected = Injected { at, record: None, blob: Some(blob.reference.clone()), system: false };
        Self { injected, blob: Some(blob) }
    }

    /// Turns the text into a system message.
    #[must_use]
    pub fn as_instruction(mut self) -> Self {
        self.injected.system = true;
        self
    }
}

/// Inserts injected messages at their positions among those of a context view.
pub(crate) async fn inject(view: &View, messages: Vec<Message>, injected: &[Injected]) -> Result<Vec<Message>> {
    if injected.is_empty() {
        return Ok(messages);
    }
    let mut by_position: Vec<&Injected> = injected.iter().collect();
    by_position.sort_by_key(|injected| injected.at);
    let mut by_position = by_position.into_iter().peekable();
    let mut all = Vec::with_capacity(messages.len() + injected.len());
    for (at, message) in (0..).zip(messages) {
        while let Some(next) = by_position.next_if(|next| next.at <= at) {
            all.push(read(view, next).await?);
        }
        all.push(message);
    }
    for next in by_position {
        all.push(read(view, next).await?);
    }
    Ok(all)
}

async fn read(view: &View, injected: &Injected) -> Result<Message> {
    let reader: &Reader = &view.reader;
    match (&injected.record, &injected.blob) {
        (Some(id), None) => {
            let record = reader.record_of(*id).await?;
            let origin = record.point();
            let body = MessageBody::read(record.kind(), 0, record.body_bytes());
            let body = body.map_err(|why| ErrorKind::Record { point: origin, why })?;
            Ok(Message::new(origin, body))
        }
        (None, Some(blob)) => {
            let text = Content::Text(reader.text(&Content::Blob(blob.clone())).await?);
            let body = match injected.system {
                true => MessageBody::System(System { text }),
                false => MessageBody::User(User { text, post: None, attached: Vec::new() }),
            };
            Ok(Message::new(view.reference().point(), body))
        }
        _ => Err(store::Error::NotFound("record or blob of an injected message".into()).into()),
    }
}
