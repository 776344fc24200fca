//! The part of the context that a rule shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Session;
use crate::blob::Content;
use crate::body::{Attached, System, ToolResult, User};
use crate::context::{self, Item, Shape};
use crate::error::{ErrorKind, Result};
use crate::id::Digest;
use crate::kind::Kind;
use crate::message::{Message, Said};
use crate::model::Rule;
use crate::reader::Reader;
use crate::view::View;

impl Session {
    /// The messages that `rule` shows of the context now.
    pub(crate) async fn shown_by(&self, rule: Rule) -> Result<Vec<Message>> {
        self.view().await?.shown_by(rule).await
    }

    /// The same with long texts read from their blobs.
    pub(crate) async fn whole_shown_by(&self, rule: Rule) -> Result<Vec<Message>> {
        self.view().await?.whole_shown_by(rule).await
    }

    /// What comes with these messages.
    pub(crate) async fn attached_to(&self, messages: &[Message]) -> Result<BTreeMap<Digest, Arc<[u8]>>> {
        attached(&self.reader(), messages).await
    }

    /// The youngest message that `rule` shows, its text whole. Costs one or two records, not the conversation.
    pub(crate) async fn latest_shown_by(&self, rule: Rule) -> Result<Option<Message>> {
        let reader = self.reader();
        let newest = self.0.context.items.newest_first().next();
        let in_step = |item: &Item| item.newest > self.0.state.entered_generation();
        let message = match newest {
            Some(item) if rule == Rule::Whole || in_step(item) => read_item(&reader, item).await?,
            None if self.0.context.base.is_none() => None,
            // It stands before what is at hand.
            _ => self.shown_by(rule).await?.pop(),
        };
        match message {
            Some(Message { origin, said }) => Ok(Some(Message { origin, said: whole(&reader, said).await? })),
            None => Ok(None),
        }
    }
}

/// The words of one item.
async fn read_item(reader: &Reader, item: &Item) -> Result<Option<Message>> {
    let record = reader.record(item.origin).await?;
    let bad = |why| ErrorKind::Record { point: item.origin, why };
    let mut said = match record.kind() {
        Kind::Detached => context::copy_of(reader, item).await?.said().map_err(bad)?,
        kind => Said::read(kind, item.part, record.body_bytes()).map_err(bad)?,
    };
    if let Said::Tool(result @ ToolResult { shown: None, finished: Some(_), .. }) = &mut said {
        *result = context::with_output(reader, &record, result.clone()).await?;
    }
    Ok(Some(Message { origin: item.origin, said }))
}

/// The same with long texts read from their blobs.
async fn whole(reader: &Reader, mut said: Said) -> Result<Said> {
    let texts: Vec<&mut Content> = match &mut said {
        Said::System(System { text }) | Said::User(User { text, .. }) | Said::Summary { text } => vec![text],
        Said::Tool(ToolResult { shown, .. }) => shown.iter_mut().collect(),
        Said::Assistant(turn) => turn.texts(),
        Said::Marker { .. } | Said::Erased => Vec::new(),
    };
    for text in texts {
        if matches!(text, Content::Blob(_)) {
            *text = Content::Text(reader.text(text).await?);
        }
    }
    Ok(said)
}

/// The pictures and documents that come with these messages, by digest.
async fn attached(reader: &Reader, messages: &[Message]) -> Result<BTreeMap<Digest, Arc<[u8]>>> {
    let mut files = BTreeMap::new();
    for message in messages {
        let Said::User(User { attached, .. }) = &message.said else { continue };
        for Attached { content, .. } in attached {
            files.insert(content.digest, reader.blob(content.digest).await?);
        }
    }
    Ok(files)
}

impl View {
    /// The messages that `rule` shows of the context here.
    pub async fn shown_by(&self, rule: Rule) -> Result<Vec<Message>> {
        let (items, messages) = self.items_and_messages().await?;
        if rule == Rule::Whole {
            return Ok(messages);
        }
        let entered = self.state().entered_generation();
        let own = |item: &Item| item.newest > entered;
        let first_own = items.iter().position(own).unwrap_or(items.len());
        let from = match rule {
            Rule::LastAnswer => {
                let said = |item: &&Item| {
                    matches!(&item.shape, Shape::Words | Shape::Summary(_))
                        || matches!(&item.shape, Shape::Turn(calls) if calls.is_empty())
                };
                items[..first_own].iter().rposition(|item| said(&item)).unwrap_or(first_own)
            }
            _ => first_own,
        };
        let shown = items.iter().zip(messages).enumerate();
        let shown = shown.filter(|(at, (item, _))| *at == from && rule == Rule::LastAnswer || own(item));
        Ok(shown.map(|(_, (_, message))| message).collect())
    }
    /// The same with long texts read from their blobs.
    pub async fn whole_shown_by(&self, rule: Rule) -> Result<Vec<Message>> {
        let mut messages = self.shown_by(rule).await?;
        let mut long: BTreeMap<Digest, String> = BTreeMap::new();
        for message in &mut messages {
            message.said.contents(&mut |content| {
                if let Content::Blob(blob) = content {
                    long.entry(blob.digest).or_default();
                }
            });
        }
        for (digest, text) in &mut long {
            *text = String::from_utf8_lossy(&self.reader.blob(*digest).await?).into_owned();
        }
        if long.is_empty() {
            return Ok(messages);
        }
        for message in &mut messages {
            message.said.contents(&mut |content| {
                if let Content::Blob(blob) = content {
                    *content = Content::Text(long.get(&blob.digest).cloned().unwrap_or_default());
                }
            });
        }
        Ok(messages)
    }

    /// The pictures and documents that come with these messages, by digest.
    pub async fn attached_to(&self, messages: &[Message]) -> Result<BTreeMap<Digest, Arc<[u8]>>> {
        attached(&self.reader, messages).await
    }
}
