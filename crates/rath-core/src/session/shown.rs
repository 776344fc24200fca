//! The newest message of a session, read without the rest of the conversation.

use super::Session;
use crate::body::ToolResult;
use crate::context::{self, Item};
use crate::context_view::StandardView;
use crate::error::{ErrorKind, Result};
use crate::kind::Kind;
use crate::message::{Message, Said};
use crate::reader::Reader;

impl Session {
    /// The newest message that `view` shows, and `None` if it is not at hand: then the whole conversation says it.
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

/// The message of one item.
pub(super) async fn read_item(reader: &Reader, item: &Item) -> Result<Message> {
    let record = reader.record(item.origin).await?;
    let bad = |why| ErrorKind::Record { point: item.origin, why };
    let mut said = match record.kind() {
        Kind::Detached => context::copy_of(reader, item).await?.said().map_err(bad)?,
        kind => Said::read(kind, item.part, record.body_bytes()).map_err(bad)?,
    };
    if let Said::Tool(result @ ToolResult { shown: None, finished: Some(_), .. }) = &mut said {
        *result = context::with_output(reader, &record, result.clone()).await?;
    }
    Ok(Message::new(item.origin, said))
}
