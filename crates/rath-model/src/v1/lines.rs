//! Version 1: the conversation in the order that every API takes, and the texts around it. Frozen: see [`super`].

use std::borrow::Cow;

use rath_core::body::{Assistant, Block, ToolResult};
use rath_core::{BlobRef, Content, Said};
use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};
use serde::Serialize;

use super::attached::File;
use crate::talk::Talk;

/// A piece of a conversation.
#[derive(Debug)]
pub(crate) enum Line<'a> {
    /// Standing instructions.
    System(Cow<'a, str>),
    /// What is said to the model.
    User(Cow<'a, str>),
    /// What comes with it: always after what is said, if anything is.
    Files(Vec<File<'a>>),
    /// What the model said, with the results of its calls.
    Turn(Spoken<'a>),
}

/// A turn of the model.
#[derive(Debug)]
pub(crate) struct Spoken<'a> {
    /// As it goes back verbatim.
    pub(crate) sent: Option<&'a str>,
    /// As it is rebuilt.
    pub(crate) parts: Vec<Spoke<'a>>,
    /// Its calls.
    pub(crate) calls: Vec<Called<'a>>,
}

/// A part of a turn that any API understands.
#[derive(Debug)]
pub(crate) enum Spoke<'a> {
    /// Words.
    Text(Cow<'a, str>),
    /// The call of this number.
    Call(usize),
}

/// A call and its result.
#[derive(Debug)]
pub(crate) struct Called<'a> {
    pub(crate) id: Cow<'a, str>,
    pub(crate) name: &'a str,
    pub(crate) arguments: Cow<'a, str>,
    pub(crate) result: Cow<'a, str>,
    pub(crate) failed: bool,
}

/// What is said where the API wants somebody to have spoken last.
const GO_ON: &str = "Go on.";
const NO_RESULT: &str = "The call was not finished; it has no result.";
const NO_OUTPUT: &str = "(no output)";
/// What an API has around a message, in bytes.
const AROUND: usize = 128;

impl<'a> Talk<'a> {
    /// The conversation for this API. It never ends with a turn of the model.
    pub(crate) fn lines(&self, api: &str) -> Vec<Line<'a>> {
        let mut lines = Lines::default();
        for message in self.messages {
            match &message.said {
                Said::System(body) => lines.all.push(Line::System(text(&body.text))),
                Said::User(body) => {
                    lines.user(text(&body.text));
                    if !body.attached.is_empty() {
                        lines.all.push(Line::Files(body.attached.iter().map(|file| self.file(file)).collect()));
                    }
                }
                Said::Assistant(turn) => lines.turn(turn, self.verbatim(turn, api)),
                Said::Tool(result) => lines.result(result),
                Said::Summary { text: words } => {
                    lines.user(format!("A summary of what was said before:\n\n{}", text(words)).into());
                }
                Said::Marker { why: Some(why), .. } => lines.user(format!("What follows is of a branch: {why}").into()),
                Said::Marker { why: None, .. } => lines.user("What follows is of a branch.".into()),
                Said::Erased => {}
            }
        }
        lines.close()
    }

    /// A request of it as JSON, written into about as much room as it takes.
    pub(crate) fn write(&self, request: &impl Serialize) -> serde_json::Result<Vec<u8>> {
        let said: usize = self.messages.iter().map(|message| AROUND + length(&message.said)).sum();
        let files: usize = self.files.values().map(|file| file.len() / 3 * 4).sum();
        // Quotes and line ends take two bytes.
        let mut json = Vec::with_capacity(AROUND + self.prompt.len() + said + said / 8 + files);
        serde_json::to_writer(&mut json, request)?;
        Ok(json)
    }

    /// The turn as it was sent, where this API and model sent it.
    fn verbatim(&self, turn: &'a Assistant, api: &str) -> Option<&'a str> {
        let sent = turn.sent.as_ref().filter(|sent| sent.api == api && sent.model == self.model)?;
        match &sent.json {
            Content::Text(json) => Some(json),
            Content::Blob(_) => None,
        }
    }
}

#[derive(Default)]
struct Lines<'a> {
    all: Vec<Line<'a>>,
    /// Calls without a result: the line of their turn and their number in it.
    open: HashMap<&'a str, (usize, usize)>,
    names: HashSet<Cow<'a, str>>,
}

impl<'a> Lines<'a> {
    fn user(&mut self, words: Cow<'a, str>) {
        if !words.trim().is_empty() {
            self.all.push(Line::User(words));
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
                Block::Text { text: words } => parts.push(Spoke::Text(text(words))),
                Block::Image { image } => {
                    parts.push(Spoke::Text(format!("[picture, {}, {} bytes]", image.media_type, image.bytes).into()));
                }
                Block::Reasoning { .. } | Block::Unknown(_) => {}
                Block::ToolUse { id, name, arguments } => {
                    self.open.insert(id, (self.all.len(), calls.len()));
                    let id = self.name(id, sent.is_some());
                    parts.push(Spoke::Call(calls.len()));
                    let (arguments, result) = (text(arguments), NO_RESULT.into());
                    calls.push(Called { id, name, arguments, result, failed: true });
                }
            }
        }
        parts.retain(|part| !matches!(part, Spoke::Text(words) if words.trim().is_empty()));
        if sent.is_some() || !parts.is_empty() {
            self.all.push(Line::Turn(Spoken { sent, parts, calls }));
        }
    }

    /// A name for a call that no other has and that every API takes: those of one vendor are too long, or hold the
    /// wrong characters, for another.
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

    /// A result belongs to the youngest call of its name, and stands with it whatever was said in between. One whose
    /// call is not shown is told in words.
    fn result(&mut self, result: &'a ToolResult) {
        let shown = result.shown.as_ref().map(text).filter(|shown| !shown.is_empty());
        let shown = shown.unwrap_or(Cow::Borrowed(NO_OUTPUT));
        let place = self.open.remove(result.call.as_str());
        let called = place.and_then(|(line, call)| match self.all.get_mut(line)? {
            Line::Turn(turn) => turn.calls.get_mut(call),
            _ => None,
        });
        match called {
            Some(called) => (called.result, called.failed) = (shown, result.failed),
            None => self.user(format!("The result of an earlier call:\n\n{shown}").into()),
        }
    }

    fn close(mut self) -> Vec<Line<'a>> {
        let last = self.all.iter().rfind(|line| !matches!(line, Line::System(_)));
        let waits = match last {
            Some(Line::User(_) | Line::Files(_)) => true,
            Some(Line::Turn(turn)) => !turn.calls.is_empty(),
            _ => false,
        };
        if !waits {
            self.all.push(Line::User(GO_ON.into()));
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

/// How long what was said is, in bytes.
fn length(said: &Said) -> usize {
    let of = |content: &Content| match content {
        Content::Text(text) => text.len(),
        Content::Blob(_) => 0,
    };
    let in_block = |block: &Block| match block {
        Block::Text { text } | Block::ToolUse { arguments: text, .. } => of(text),
        Block::Image { .. } | Block::Reasoning { .. } | Block::Unknown(_) => 0,
    };
    match said {
        Said::System(body) => of(&body.text),
        Said::User(body) => of(&body.text),
        Said::Assistant(turn) => match &turn.sent {
            Some(sent) => of(&sent.json),
            None => turn.blocks.iter().map(|block| AROUND + in_block(block)).sum(),
        },
        Said::Tool(result) => result.shown.as_ref().map_or(0, of),
        Said::Summary { text } => of(text),
        Said::Marker { .. } | Said::Erased => 0,
    }
}
