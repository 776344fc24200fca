//! Reading the newest message of a session without the rest of the conversation.

use super::Session;
use crate::body::ToolResult;
use crate::context::{self, Item};
use crate::context_view::StandardView;
use crate::error::{ErrorKind, Result};
use crate::kind::Kind;
use crate::message::{Message, MessageBody};
use crate::reader::Reader;

impl Session {
    /// The newest message that `view` shows. The outer `None` means that it is not cached and the caller must read the
    /// whole conversation; the inner `None` means that there is no message.
    pub(crate) async fn newest_message(&self, view: StandardView) -> Result<Option<Option<Message>>> {
        let reader = self.reader();
        let in_step = |item: &Item| item.newest > self.0.state.entered_generation();
        match self.0.context.items.newest_first().next() {
            Some(item) if view == StandardView::Whole || in_step(item) => {
                Ok(Some(Some(read_item(&reader, item).await?)))
            }
            None if self.0.context.base.is_none() => Ok(Some(None)),
            _ => Ok(None),
        }
    }
}

/// Reads the message of one context item.
pub(super) async fn read_item(reader: &Reader, item: &Item) -> Result<Message> {
    let record = reader.record(item.origin).await?;
    let bad = |why| ErrorKind::Record { point: item.origin, why };
    let mut body = match record.kind() {
        Kind::Detached => context::copy_of(reader, item).await?.body().map_err(bad)?,
        kind => MessageBody::read(kind, item.part, record.body_bytes()).map_err(bad)?,
    };
    if let MessageBody::Tool(result @ ToolResult { shown: None, finished: Some(_), .. }) = &mut body {
        *result = context::with_output(reader, &record, result.clone()).await?;
    }
    Ok(Message::new(item.origin, body))
}
