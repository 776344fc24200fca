//! Context items with their words, as a model or a person reads them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::blob::Content;
use crate::body::{Assistant, Block, Body as _, Branch, Compressed, Merged, System, ToolResult, Trimmed, User};
use crate::id::{Point, SessionId};
use crate::kind::Kind;
use crate::record::Fault;

/// One item of a context, read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// The record it comes from.
    pub origin: Point,
    /// What it says.
    pub said: Said,
    /// The agent whose step it was said in, for a turn of a model and for results of its calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

impl Message {
    /// A message of no agent's step.
    pub fn new(origin: Point, said: Said) -> Self {
        Self { origin, said, agent: None }
    }
}

/// What an item of a context says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Said {
    /// Standing instructions.
    System(System),
    /// A person.
    User(User),
    /// A model.
    Assistant(Assistant),
    /// A tool.
    Tool(ToolResult),
    /// A summary in place of what was compressed.
    Summary {
        /// Its text.
        text: Content,
    },
    /// Here begin the items of a merged branch.
    Marker {
        /// The branch.
        branch: SessionId,
        /// Why it was forked.
        why: Option<String>,
    },
    /// The body was erased.
    Erased,
}

impl Said {
    /// Reads a body of this kind as a context item; `part` chooses among the branches of a merge.
    pub(crate) fn read(kind: &Kind, part: u32, body: Option<&[u8]>) -> Result<Self, Fault> {
        fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Fault> {
            serde_json::from_slice(body).map_err(|e| Fault::Unreadable(e.to_string()))
        }
        let Some(body) = body else { return Ok(Said::Erased) };
        Ok(match kind {
            Kind::System => Said::System(parse(body)?),
            Kind::User => Said::User(parse(body)?),
            Kind::Assistant => Said::Assistant(parse(body)?),
            Kind::ToolResult => Said::Tool(parse(body)?),
            Kind::Trimmed => Said::Tool(parse::<Trimmed>(body)?.into_result()),
            Kind::Compressed => Said::Summary { text: parse::<Compressed>(body)?.summary },
            Kind::Merged => match parse::<Merged>(body)?.branches.into_iter().nth(part as usize) {
                Some(Branch { session, why, .. }) => Said::Marker { branch: session, why },
                None => Said::Erased,
            },
            other => return Err(Fault::Kind { is: other.clone(), wanted: Kind::User }),
        })
    }

    /// Shows the parts that may be long to `each`.
    pub(crate) fn contents(&mut self, each: &mut dyn FnMut(&mut Content)) {
        match self {
            Said::System(body) => body.contents(each),
            Said::User(body) => body.contents(each),
            Said::Assistant(body) => body.contents(each),
            Said::Tool(body) => body.contents(each),
            Said::Summary { text } => each(text),
            Said::Marker { .. } | Said::Erased => {}
        }
    }

    /// The word before it in a transcript.
    pub fn role(&self) -> &'static str {
        match self {
            Said::System(_) => "system",
            Said::User(_) => "user",
            Said::Assistant(_) => "assistant",
            Said::Tool(_) => "tool",
            Said::Summary { .. } => "summary",
            Said::Marker { .. } => "branch",
            Said::Erased => "erased",
        }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Said::System(System { text }) | Said::Summary { text } => text.fmt(f),
            Said::User(User { text, attached, .. }) => {
                text.fmt(f)?;
                attached.iter().try_for_each(|attached| write!(f, "\n{attached}"))
            }
            Said::Assistant(turn) => {
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
            Said::Tool(ToolResult { call, shown, attached, failed, .. }) => {
                let outcome = if *failed { " failed" } else { "" };
                write!(f, "[{call}]{outcome} ")?;
                shown.as_ref().map_or(Ok(()), |text| text.fmt(f))?;
                attached.iter().try_for_each(|attached| write!(f, "\n{attached}"))
            }
            Said::Marker { branch, why } => match why {
                Some(why) => write!(f, "from {} ({why})", branch.short()),
                None => write!(f, "from {}", branch.short()),
            },
            Said::Erased => f.write_str("(erased)"),
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.said.to_string();
        let mut lines = text.lines();
        write!(f, "{:>9}  {}", self.said.role(), lines.next().unwrap_or_default())?;
        lines.try_for_each(|line| write!(f, "\n           {line}"))
    }
}

/// An item as `detached` copies it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Copied {
    /// The kind of the record it comes from.
    pub(crate) kind: String,
    /// Which of several items of that record.
    #[serde(default)]
    pub(crate) part: u32,
    /// The record's body, as JSON text; absent when erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<String>,
    /// The agent in whose step it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
}

impl Copied {
    pub(crate) fn said(&self) -> Result<Said, Fault> {
        Said::read(&Kind::named(&self.kind), self.part, self.body.as_deref().map(str::as_bytes))
    }
}
