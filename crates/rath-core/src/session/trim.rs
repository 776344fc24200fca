//! Replacing the text of a tool result with a shorter one.

use super::{Session, encode};
use crate::blob::Content;
use crate::body::{Body as _, Trimmed};
use crate::context::BadRange;
use crate::error::Result;
use crate::id::RecordId;
use crate::message::MessageBody;

impl Session {
    /// From now on, shows the model `shown` instead of the tool result at position `at` of the context. The call and
    /// its result stay a pair, and the history keeps all records.
    pub async fn trim(&mut self, at: usize, shown: impl Into<Content>) -> Result<RecordId> {
        let item = self.items().await?.to_vec().into_iter().nth(at);
        let Some((item, call)) = item.and_then(|item| Some((item.clone(), item.result_of()?.to_owned()))) else {
            return Err(BadRange::NotAResult { at }.into());
        };
        let original = super::messages::read_item(&self.reader(), &item).await?.body;
        let failed = matches!(original, MessageBody::Tool(result) if result.failed);
        let (result, part) = item.untrimmed();
        let mut body = Trimmed { result, part, call, failed, shown: shown.into() };
        let mut blobs = Vec::new();
        body.visit_text(&mut |content| content.spill(&mut blobs));
        let record = self.push(Trimmed::KIND, &encode(&body), &[], blobs, &body)?;
        self.0.context.items.trim((result, part), record.point());
        Ok(record.id())
    }
}
