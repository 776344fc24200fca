//! Replacing context by a summary.

use super::{Session, encode};
use crate::blob::Content;
use crate::body::{Body as _, Compressed, Replaced};
use crate::error::Result;
use crate::id::RecordId;

impl Session {
    /// Replaces `count` context items from position `at` by `summary`. A call and its result leave together. The
    /// history keeps everything.
    pub async fn compress(&mut self, at: usize, count: usize, summary: impl Into<Content>) -> Result<RecordId> {
        self.items().await?.check_range(at, count)?;
        self.replace(at, count, summary.into()).await
    }

    /// As [`compress`](Self::compress), for ranges known to be whole.
    pub(super) async fn replace(&mut self, at: usize, count: usize, summary: Content) -> Result<RecordId> {
        let all = self.items().await?.to_vec();
        let replaces =
            Replaced { at: at as u64, count: count as u64, first: all[at].origin, last: all[at + count - 1].origin };
        let mut body = Compressed { replaces, summary };
        let mut blobs = Vec::new();
        body.contents(&mut |content| content.spill(&mut blobs));
        let record = self.push(Compressed::KIND, &encode(&body), &[], blobs, &body)?;
        self.0.context.items.compress(at, count, record.point())?;
        Ok(record.id())
    }
}
