//! What a request shows a model: what the agent brings, and the messages of a session, read when they are needed.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use crate::blob::Content;
use crate::body::{Attached, ToolResult, User};
use crate::context_view::{ContextView, StandardView};
use crate::error::Result;
use crate::id::{Digest, RecordId};
use crate::injected::{self, Injected};
use crate::message::{Message, Said};
use crate::model::Parameters;
use crate::reader::Reader;
use crate::session::Session;
use crate::state::State;
use crate::tool::ToolSpec;
use crate::view::View;

/// What a model is shown: what the agent brings, and the messages that its context view chooses.
#[derive(Debug)]
pub struct Shown<'a> {
    source: Source<'a>,
    asking: Asking<'a>,
    /// How many turns the model has had in this step.
    pub turn: u64,
    /// Counts the requests for this turn, from 1.
    pub attempt: u32,
}

/// Where the messages are read: a session that is held, or a view of a stored one.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// At the head of this session.
    Session(&'a Session),
    /// At this place.
    View(&'a View),
}

impl<'a> From<&'a Session> for Source<'a> {
    fn from(session: &'a Session) -> Self {
        Self::Session(session)
    }
}

impl<'a> From<&'a View> for Source<'a> {
    fn from(view: &'a View) -> Self {
        Self::View(view)
    }
}

/// What an agent adds to a request, in addition to the session.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// The agent's name.
    pub agent: &'a str,
    /// Its prompt.
    pub prompt: &'a str,
    /// The tools it may call.
    pub tools: &'a [ToolSpec],
    /// What is asked for besides.
    pub parameters: &'a Parameters,
    /// Chooses the messages of the session.
    pub view: &'a dyn ContextView,
    /// Messages that the view does not give.
    pub injected: &'a [Injected],
    /// The digest of the agent's configuration: prompt, parameters, tools.
    pub config: Digest,
}

impl<'a> Deref for Shown<'a> {
    type Target = Asking<'a>;
    fn deref(&self) -> &Asking<'a> {
        &self.asking
    }
}

impl<'a> Shown<'a> {
    /// What `asking` shows of a session as it is now, or as a view sees it.
    pub fn of(source: impl Into<Source<'a>>, asking: Asking<'a>) -> Self {
        let source = source.into();
        let (turn, attempt) = source.state().run().map_or((0, 1), |run| (run.turns, run.attempts + 1));
        Self { source, asking, turn, attempt }
    }

    /// The conversation, in order. Reads as much as there is.
    pub async fn messages(&self) -> Result<Vec<Message>> {
        self.read(false).await
    }

    /// The conversation with its long texts, which [`messages`](Self::messages) leaves where they are.
    pub async fn whole_messages(&self) -> Result<Vec<Message>> {
        self.read(true).await
    }

    async fn read(&self, whole: bool) -> Result<Vec<Message>> {
        let held;
        let view = match self.source {
            Source::Session(session) => {
                held = session.view().await?;
                &held
            }
            Source::View(view) => view,
        };
        let messages = self.asking.view.messages(view).await?;
        let mut messages = injected::inject(view, messages, self.injected).await?;
        if whole {
            read_long_texts(&view.reader, &mut messages).await?;
        }
        Ok(messages)
    }

    /// The pictures and documents that come with these messages, by digest.
    pub async fn attached(&self, messages: &[Message]) -> Result<BTreeMap<Digest, Arc<[u8]>>> {
        let of_session;
        let reader = match self.source {
            Source::Session(session) => {
                of_session = session.reader();
                &of_session
            }
            Source::View(view) => &view.reader,
        };
        let mut files = BTreeMap::new();
        for message in messages {
            let (Said::User(User { attached, .. }) | Said::Tool(ToolResult { attached, .. })) = &message.said else {
                continue;
            };
            for Attached { content, .. } in attached {
                files.insert(content.digest, reader.blob(content.digest).await?);
            }
        }
        Ok(files)
    }

    /// The newest message with its long texts; its agent may not be said. Costs one or two records where a standard view shows a session.
    pub async fn latest(&self) -> Result<Option<Message>> {
        if let (Source::Session(session), Some(standard), []) =
            (self.source, StandardView::named(self.asking.view.name()), self.injected)
            && let Some(latest) = session.newest_message(standard).await?
        {
            let mut latest: Vec<Message> = latest.into_iter().collect();
            read_long_texts(&session.reader(), &mut latest).await?;
            return Ok(latest.pop());
        }
        Ok(self.whole_messages().await?.pop())
    }

    /// The head of the session: with the configuration, it determines what is shown.
    pub fn head(&self) -> RecordId {
        match self.source {
            Source::Session(session) => session.head().id,
            Source::View(view) => view.record().id(),
        }
    }
}

impl Source<'_> {
    fn state(&self) -> &State {
        match self {
            Self::Session(session) => session.state(),
            Self::View(view) => view.state(),
        }
    }
}

/// Puts long texts in the place of the blobs that hold them. Each blob is read once.
async fn read_long_texts(reader: &Reader, messages: &mut [Message]) -> Result<()> {
    let mut long: BTreeMap<Digest, String> = BTreeMap::new();
    for message in &mut *messages {
        message.said.contents(&mut |content| {
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
        message.said.contents(&mut |content| {
            if let Content::Blob(blob) = content {
                *content = Content::Text(long.get(&blob.digest).cloned().unwrap_or_default());
            }
        });
    }
    Ok(())
}
