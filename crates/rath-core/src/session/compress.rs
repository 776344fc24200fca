//! Replacing context items with a summary.

use super::{Session, encode};
use crate::blob::Content;
use crate::body::{Body as _, Compressed, Replaced};
use crate::error::Result;
use crate::id::RecordId;

impl Session {
    /// Replaces `count` context items, starting at position `at`, with `summary`. The range must not separate a call
    /// from its result. The history keeps all records.
    pub async fn compress(&mut self, at: usize, count: usize, summary: impl Into<Content>) -> Result<RecordId> {
        self.items().await?.check_range(at, count)?;
        self.replace(at, count, summary.into()).await
    }

    /// Like [`compress`](Self::compress), for ranges that need no check.
    pub(super) async fn replace(&mut self, at: usize, count: usize, summary: Content) -> Result<RecordId> {
        let all = self.items().await?.to_vec();
        let replaces =
            Replaced { at: at as u64, count: count as u64, first: all[at].origin, last: all[at + count - 1].origin };
        let mut body = Compressed { replaces, summary };
        let mut blobs = Vec::new();
        body.visit_text(&mut |content| content.spill(&mut blobs));
        let record = self.push(Compressed::KIND, &encode(&body), &[], blobs, &body)?;
        self.0.context.items.compress(at, count, record.point())?;
        Ok(record.id())
    }
}
