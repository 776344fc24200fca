//! [`ModelInput`]: the input of one model request. Messages are read from the session when they are needed.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use crate::blob::Content;
use crate::body::{Attachment, ToolResult, User};
use crate::context_view::{ContextView, StandardView};
use crate::error::Result;
use crate::id::{Digest, RecordId};
use crate::injected::{self, Injected};
use crate::message::{Message, MessageBody};
use crate::model::Parameters;
use crate::reader::Reader;
use crate::session::Session;
use crate::state::State;
use crate::tool::ToolSpec;
use crate::view::View;

/// The input of one model request: what the agent adds (prompt, tools, parameters), and the messages that its context
/// view chooses.
#[derive(Debug)]
pub struct ModelInput<'a> {
    source: InputSource<'a>,
    spec: RequestSpec<'a>,
    /// The number of model turns so far in this step.
    pub turn: u64,
    /// The number of this request for the current turn, starting at 1.
    pub attempt: u32,
}

/// Where the messages are read: an open session, or a view of a stored one.
#[derive(Clone, Copy, Debug)]
pub enum InputSource<'a> {
    /// The head of an open session.
    Session(&'a Session),
    /// A view of a stored session.
    View(&'a View),
}

impl<'a> From<&'a Session> for InputSource<'a> {
    fn from(session: &'a Session) -> Self {
        Self::Session(session)
    }
}

impl<'a> From<&'a View> for InputSource<'a> {
    fn from(view: &'a View) -> Self {
        Self::View(view)
    }
}

/// What an agent adds to a request, in addition to the session's messages.
#[derive(Clone, Copy, Debug)]
pub struct RequestSpec<'a> {
    /// The agent's name.
    pub agent: &'a str,
    /// The agent's prompt.
    pub prompt: &'a str,
    /// The tools it may call.
    pub tools: &'a [ToolSpec],
    /// Sampling and output parameters.
    pub parameters: &'a Parameters,
    /// The context view that chooses the session's messages.
    pub view: &'a dyn ContextView,
    /// Messages in addition to those of the view.
    pub injected: &'a [Injected],
    /// The digest of the agent's configuration: prompt, parameters, tools.
    pub config: Digest,
}

impl<'a> Deref for ModelInput<'a> {
    type Target = RequestSpec<'a>;
    fn deref(&self) -> &RequestSpec<'a> {
        &self.spec
    }
}

impl<'a> ModelInput<'a> {
    /// The input for a request with `spec` at the current record of `source`.
    pub fn of(source: impl Into<InputSource<'a>>, spec: RequestSpec<'a>) -> Self {
        let source = source.into();
        let (turn, attempt) = source.state().run().map_or((0, 1), |run| (run.turns, run.attempts + 1));
        Self { source, spec, turn, attempt }
    }

    /// Reads the messages, oldest first. Long texts stay references to blobs.
    pub async fn messages(&self) -> Result<Vec<Message>> {
        self.read(false).await
    }

    /// Like [`messages`](Self::messages), with long texts read from their blobs.
    pub async fn whole_messages(&self) -> Result<Vec<Message>> {
        self.read(true).await
    }

    async fn read(&self, whole: bool) -> Result<Vec<Message>> {
        let session_view;
        let view = match self.source {
            InputSource::Session(session) => {
                session_view = session.view().await?;
                &session_view
            }
            InputSource::View(view) => view,
        };
        let messages = self.spec.view.messages(view).await?;
        let mut messages = injected::inject(view, messages, self.injected).await?;
        if whole {
            read_long_texts(&view.reader, &mut messages).await?;
        }
        Ok(messages)
    }

    /// The images and documents attached to these messages, by digest.
    pub async fn attached(&self, messages: &[Message]) -> Result<BTreeMap<Digest, Arc<[u8]>>> {
        let of_session;
        let reader = match self.source {
            InputSource::Session(session) => {
                of_session = session.reader();
                &of_session
            }
            InputSource::View(view) => &view.reader,
        };
        let mut files = BTreeMap::new();
        for message in messages {
            let (MessageBody::User(User { attached, .. }) | MessageBody::Tool(ToolResult { attached, .. })) =
                &message.body
            else {
                continue;
            };
            for Attachment { content, .. } in attached {
                files.insert(content.digest, reader.blob(content.digest).await?);
            }
        }
        Ok(files)
    }

    /// The newest message with its long texts. Its `agent` may be missing. With a built-in view on an open session this
    /// reads only one or two records.
    pub async fn latest(&self) -> Result<Option<Message>> {
        if let (InputSource::Session(session), Some(standard), []) =
            (self.source, StandardView::named(self.spec.view.name()), self.injected)
            && let Some(latest) = session.newest_message(standard).await?
        {
            let mut latest: Vec<Message> = latest.into_iter().collect();
            read_long_texts(&session.reader(), &mut latest).await?;
            return Ok(latest.pop());
        }
        Ok(self.whole_messages().await?.pop())
    }

    /// The id of the session's current record. Together with the configuration it determines the messages.
    pub fn head(&self) -> RecordId {
        match self.source {
            InputSource::Session(session) => session.head().id,
            InputSource::View(view) => view.record().id(),
        }
    }
}

impl InputSource<'_> {
    fn state(&self) -> &State {
        match self {
            Self::Session(session) => session.state(),
            Self::View(view) => view.state(),
        }
    }
}

/// Replaces references to blobs with their text. Each blob is read once.
async fn read_long_texts(reader: &Reader, messages: &mut [Message]) -> Result<()> {
    let mut long: BTreeMap<Digest, String> = BTreeMap::new();
    for message in &mut *messages {
        message.body.visit_text(&mut |content| {
            if let Content::Blob(blob) = content {
                long.entry(blob.digest).or_default();
            }
        });
    }
    if long.is_empty() {
        return Ok(());
    }
    for (digest, text) in &mut long {
        *text = String::from_utf8_lossy(&reader.blob(*digest).await?).into_owned();
    }
    for message in messages {
        message.body.visit_text(&mut |content| {
            if let Content::Blob(blob) = content {
                *content = Content::Text(long.get(&blob.digest).cloned().unwrap_or_default());
            }
        });
    }
    Ok(())
}
