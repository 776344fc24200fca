//! [`Message`]: a context item with its content.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::blob::Content;
use crate::body::{Assistant, Block, Body as _, Branch, Compressed, Merged, System, ToolResult, Trimmed, User};
use crate::id::{Point, SessionId};
use crate::kind::Kind;
use crate::record::RecordError;

/// A context item with its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// The record that it comes from.
    pub origin: Point,
    /// The content.
    #[serde(rename = "said")]
    pub body: MessageBody,
    /// For a model's turn and the results of its calls: the agent in whose step it was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

impl Message {
    /// A message without an agent.
    pub fn new(origin: Point, body: MessageBody) -> Self {
        Self { origin, body, agent: None }
    }
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum MessageBody {
    /// A system message: standing instructions.
    System(System),
    /// A user message.
    User(User),
    /// A model's turn.
    Assistant(Assistant),
    /// The result of a tool call.
    Tool(ToolResult),
    /// A summary in place of compressed items.
    Summary {
        /// The text of the summary.
        text: Content,
    },
    /// The start of a merged branch's items.
    Marker {
        /// The id of the merged branch.
        branch: SessionId,
        /// Why it was forked.
        why: Option<String>,
    },
    /// The body was erased.
    Erased,
}

impl MessageBody {
    /// Parses the body of a record of this kind as a message. For a merge, `part` selects the branch.
    pub(crate) fn read(kind: &Kind, part: u32, body: Option<&[u8]>) -> Result<Self, RecordError> {
        fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, RecordError> {
            serde_json::from_slice(body).map_err(|e| RecordError::Unreadable(e.to_string()))
        }
        let Some(body) = body else { return Ok(MessageBody::Erased) };
        Ok(match kind {
            Kind::System => MessageBody::System(parse(body)?),
            Kind::User => MessageBody::User(parse(body)?),
            Kind::Assistant => MessageBody::Assistant(parse(body)?),
            Kind::ToolResult => MessageBody::Tool(parse(body)?),
            Kind::Trimmed => MessageBody::Tool(parse::<Trimmed>(body)?.into_result()),
            Kind::Compressed => MessageBody::Summary { text: parse::<Compressed>(body)?.summary },
            Kind::Merged => match parse::<Merged>(body)?.branches.into_iter().nth(part as usize) {
                Some(Branch { session, why, .. }) => MessageBody::Marker { branch: session, why },
                None => MessageBody::Erased,
            },
            other => return Err(RecordError::Kind { is: other.clone(), wanted: Kind::User }),
        })
    }

    /// Calls `each` with every content that may be in a blob.
    pub(crate) fn visit_text(&mut self, each: &mut dyn FnMut(&mut Content)) {
        match self {
            MessageBody::System(body) => body.visit_text(each),
            MessageBody::User(body) => body.visit_text(each),
            MessageBody::Assistant(body) => body.visit_text(each),
            MessageBody::Tool(body) => body.visit_text(each),
            MessageBody::Summary { text } => each(text),
            MessageBody::Marker { .. } | MessageBody::Erased => {}
        }
    }

    /// The role shown in transcripts.
    pub fn role(&self) -> &'static str {
        match self {
            MessageBody::System(_) => "system",
            MessageBody::User(_) => "user",
            MessageBody::Assistant(_) => "assistant",
            MessageBody::Tool(_) => "tool",
            MessageBody::Summary { .. } => "summary",
            MessageBody::Marker { .. } => "branch",
            MessageBody::Erased => "erased",
        }
    }
}

impl fmt::Display for MessageBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MessageBody::System(System { text }) | MessageBody::Summary { text } => text.fmt(f),
            MessageBody::User(User { text, attached, .. }) => {
                text.fmt(f)?;
                attached.iter().try_for_each(|attached| write!(f, "\n{attached}"))
            }
            MessageBody::Assistant(turn) => {
                for (i, block) in turn.blocks.iter().enumerate() {
                    if i > 0 {
                        writeln!(f)?;
                    }
                    match block {
                        Block::Text { text } => text.fmt(f)?,
                        Block::Reasoning { text } => write!(f, "(thinks: {text})")?,
                        Block::ToolUse { id, name, arguments } => write!(f, "→ {name}({arguments}) [{id}]")?,
                        Block::Image { image } => write!(f, "[picture, {} bytes]", image.bytes)?,
                        Block::Unknown(block) => write!(f, "[{block}]")?,
                    }
                }
                Ok(())
            }
            MessageBody::Tool(ToolResult { call, shown, attached, failed, .. }) => {
                let outcome = if *failed { " failed" } else { "" };
                write!(f, "[{call}]{outcome} ")?;
                shown.as_ref().map_or(Ok(()), |text| text.fmt(f))?;
                attached.iter().try_for_each(|attached| write!(f, "\n{attached}"))
            }
            MessageBody::Marker { branch, why } => match why {
                Some(why) => write!(f, "from {} ({why})", branch.short()),
                None => write!(f, "from {}", branch.short()),
            },
            MessageBody::Erased => f.write_str("(erased)"),
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.body.to_string();
        let mut lines = text.lines();
        write!(f, "{:>9}  {}", self.body.role(), lines.next().unwrap_or_default())?;
        lines.try_for_each(|line| write!(f, "\n           {line}"))
    }
}

/// A context item as a `detached` record copies it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Copied {
    /// The kind of the record that it comes from.
    pub(crate) kind: String,
    /// The index of this item among the items of its record.
    #[serde(default)]
    pub(crate) part: u32,
    /// The record's body as JSON text; `None` if it was erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<String>,
    /// The agent in whose step it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
}

impl Copied {
    pub(crate) fn body(&self) -> Result<MessageBody, RecordError> {
        MessageBody::read(&Kind::named(&self.kind), self.part, self.body.as_deref().map(str::as_bytes))
    }
}
