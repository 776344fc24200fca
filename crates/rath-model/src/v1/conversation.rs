//! Version 1: the conversation in an order that every API accepts, and the texts around it. Frozen: see [`super`].

use std::borrow::Cow;

use rath_core::body::{Assistant, Block, ToolResult};
use rath_core::{BlobRef, Content, MessageBody};
use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};
use serde::Serialize;

use super::attached::File;
use crate::request_input::RequestInput;

/// One item of a conversation.
#[derive(Debug)]
pub(crate) enum ConversationItem<'a> {
    /// Standing instructions.
    System(Cow<'a, str>),
    /// A message to the model.
    User(Cow<'a, str>),
    /// Files attached to a message. They follow its text, if it has text.
    Files(Vec<File<'a>>),
    /// A turn of the model, with the results of its calls.
    Turn(AssistantTurn<'a>),
}

/// A turn of the model.
#[derive(Debug)]
pub(crate) struct AssistantTurn<'a> {
    /// The turn's native JSON, if it can be sent back verbatim.
    pub(crate) sent: Option<&'a str>,
    /// The parts to rebuild the turn from, if it cannot.
    pub(crate) parts: Vec<TurnPart<'a>>,
    /// The turn's calls, with their results.
    pub(crate) calls: Vec<ToolExchange<'a>>,
}

/// A part of a turn that every API understands.
#[derive(Debug)]
pub(crate) enum TurnPart<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// The call with this index.
    Call(usize),
}

/// A call and its result.
#[derive(Debug)]
pub(crate) struct ToolExchange<'a> {
    pub(crate) id: Cow<'a, str>,
    pub(crate) name: &'a str,
    pub(crate) arguments: Cow<'a, str>,
    pub(crate) result: Cow<'a, str>,
    pub(crate) failed: bool,
}

/// The message that is added if the conversation would end with a turn of the model.
const GO_ON: &str = "Go on.";
const NO_RESULT: &str = "The call was not finished; it has no result.";
const NO_OUTPUT: &str = "(no output)";
/// Estimated overhead of a message in a request, in bytes.
const AROUND: usize = 128;

impl<'a> RequestInput<'a> {
    /// The conversation for this API. It never ends with a turn of the model.
    pub(crate) fn conversation(&self, api: &str) -> Vec<ConversationItem<'a>> {
        let mut conversation = Conversation::default();
        for message in self.messages {
            match &message.body {
                MessageBody::System(body) => conversation.all.push(ConversationItem::System(text(&body.text))),
                MessageBody::User(body) => {
                    conversation.user(text(&body.text));
                    if !body.attached.is_empty() {
                        conversation
                            .all
                            .push(ConversationItem::Files(body.attached.iter().map(|file| self.file(file)).collect()));
                    }
                }
                MessageBody::Assistant(turn) => conversation.turn(turn, self.verbatim(turn, api)),
                MessageBody::Tool(result) => conversation.result(result),
                MessageBody::Summary { text: words } => {
                    conversation.user(format!("A summary of what was said before:\n\n{}", text(words)).into());
                }
                MessageBody::Marker { why: Some(why), .. } => {
                    conversation.user(format!("What follows is of a branch: {why}").into())
                }
                MessageBody::Marker { why: None, .. } => conversation.user("What follows is of a branch.".into()),
                MessageBody::Erased => {}
            }
        }
        conversation.close()
    }

    /// Serializes a request into a buffer of about the right size.
    pub(crate) fn write(&self, request: &impl Serialize) -> serde_json::Result<Vec<u8>> {
        let said: usize = self.messages.iter().map(|message| AROUND + length(&message.body)).sum();
        let files: usize = self.files.values().map(|file| file.len() / 3 * 4).sum();
        // An eighth more for characters that JSON escapes.
        let mut json = Vec::with_capacity(AROUND + self.prompt.len() + said + said / 8 + files);
        serde_json::to_writer(&mut json, request)?;
        Ok(json)
    }

    /// The turn's native JSON, if this API and model produced it.
    fn verbatim(&self, turn: &'a Assistant, api: &str) -> Option<&'a str> {
        let sent = turn.sent.as_ref().filter(|sent| sent.api == api && sent.model == self.model)?;
        match &sent.json {
            Content::Text(json) => Some(json),
            Content::Blob(_) => None,
        }
    }
}

#[derive(Default)]
struct Conversation<'a> {
    all: Vec<ConversationItem<'a>>,
    /// Calls without a result, by id: the index of their turn and of the call in it.
    open: HashMap<&'a str, (usize, usize)>,
    names: HashSet<Cow<'a, str>>,
}

impl<'a> Conversation<'a> {
    fn user(&mut self, words: Cow<'a, str>) {
        if !words.trim().is_empty() {
            self.all.push(ConversationItem::User(words));
        }
    }

    fn turn(&mut self, turn: &'a Assistant, sent: Option<&'a str>) {
        let sent = sent.filter(|_| {
            let mut ids = HashSet::default();
            turn.calls().all(|(id, _)| ids.insert(id) && !self.names.contains(id))
        });
        let (mut parts, mut calls) = (Vec::new(), Vec::new());
        for block in &turn.blocks {
            match block {
                Block::Text { text: words } => parts.push(TurnPart::Text(text(words))),
                Block::Image { image } => {
                    parts
                        .push(TurnPart::Text(format!("[picture, {}, {} bytes]", image.media_type, image.bytes).into()));
                }
                Block::Reasoning { .. } | Block::Unknown(_) => {}
                Block::ToolUse { id, name, arguments } => {
                    self.open.insert(id, (self.all.len(), calls.len()));
                    let id = self.name(id, sent.is_some());
                    parts.push(TurnPart::Call(calls.len()));
                    let (arguments, result) = (text(arguments), NO_RESULT.into());
                    calls.push(ToolExchange { id, name, arguments, result, failed: true });
                }
            }
        }
        parts.retain(|part| !matches!(part, TurnPart::Text(words) if words.trim().is_empty()));
        if sent.is_some() || !parts.is_empty() {
            self.all.push(ConversationItem::Turn(AssistantTurn { sent, parts, calls }));
        }
    }

    /// An id for a call that is unique and that every API accepts. Ids of one vendor can be too long for another, or
    /// contain characters that it rejects.
    fn name(&mut self, id: &'a str, verbatim: bool) -> Cow<'a, str> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let is_good = verbatim || (!id.is_empty() && id.len() <= 40 && id.bytes().all(fits));
        let name = match is_good && !self.names.contains(id) {
            true => Cow::Borrowed(id),
            false => {
                let free = (self.names.len()..).map(|number| format!("call_{number}"));
                Cow::Owned(free.into_iter().find(|name| !self.names.contains(name.as_str())).unwrap_or_default())
            }
        };
        self.names.insert(name.clone());
        name
    }

    /// Adds a result to the latest call with its id, even if other messages are between them. A result whose call is
    /// not shown becomes a message.
    fn result(&mut self, result: &'a ToolResult) {
        let shown = result.shown.as_ref().map(text).filter(|shown| !shown.is_empty());
        let shown = shown.unwrap_or(Cow::Borrowed(NO_OUTPUT));
        let position = self.open.remove(result.call.as_str());
        let called = position.and_then(|(item, call)| match self.all.get_mut(item)? {
            ConversationItem::Turn(turn) => turn.calls.get_mut(call),
            _ => None,
        });
        match called {
            Some(called) => (called.result, called.failed) = (shown, result.failed),
            None => self.user(format!("The result of an earlier call:\n\n{shown}").into()),
        }
    }

    fn close(mut self) -> Vec<ConversationItem<'a>> {
        let last = self.all.iter().rfind(|item| !matches!(item, ConversationItem::System(_)));
        let waits = match last {
            Some(ConversationItem::User(_) | ConversationItem::Files(_)) => true,
            Some(ConversationItem::Turn(turn)) => !turn.calls.is_empty(),
            _ => false,
        };
        if !waits {
            self.all.push(ConversationItem::User(GO_ON.into()));
        }
        self.all
    }
}

fn text(content: &Content) -> Cow<'_, str> {
    match content {
        Content::Text(text) => Cow::Borrowed(text),
        Content::Blob(BlobRef { bytes, digest, .. }) => Cow::Owned(format!("[{bytes} bytes, blob {digest:?}]")),
    }
}

/// The length of a message's text, in bytes.
fn length(said: &MessageBody) -> usize {
    let of = |content: &Content| match content {
        Content::Text(text) => text.len(),
        Content::Blob(_) => 0,
    };
    let in_block = |block: &Block| match block {
        Block::Text { text } | Block::ToolUse { arguments: text, .. } => of(text),
        Block::Image { .. } | Block::Reasoning { .. } | Block::Unknown(_) => 0,
    };
    match said {
        MessageBody::System(body) => of(&body.text),
        MessageBody::User(body) => of(&body.text),
        MessageBody::Assistant(turn) => match &turn.sent {
            Some(sent) => of(&sent.json),
            None => turn.blocks.iter().map(|block| AROUND + in_block(block)).sum(),
        },
        MessageBody::Tool(result) => result.shown.as_ref().map_or(0, of),
        MessageBody::Summary { text } => of(text),
        MessageBody::Marker { .. } | MessageBody::Erased => 0,
    }
}
