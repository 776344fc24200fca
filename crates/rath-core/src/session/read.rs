//! Reading an open session.

use std::fmt;

use super::Session;
use crate::body::ToolFinished;
use crate::error::Result;
use crate::history::History;
use crate::id::Point;
use crate::message::{Message, MessageBody};
use crate::reader::Reader;
use crate::record::Record;
use crate::view::{Ancestor, View};

impl Session {
    /// The session as it was after its record `seq`.
    pub async fn at(&self, seq: u64) -> Result<View> {
        let view = View::at(self.reader(), Point { session: self.id(), seq }).await?;
        let mut view = view.arrived(self.0.arrival.filter(|arrival| arrival.covers(seq)));
        view.unpublished = self.fork_base();
        Ok(view)
    }

    /// The session at its head.
    pub async fn view(&self) -> Result<View> {
        self.at(self.0.head.seq).await
    }

    /// The messages that a model is shown.
    pub async fn context(&self) -> Result<Vec<Message>> {
        self.view().await?.context().await
    }

    /// All records that the head descends from, parents before children.
    pub async fn history(&self) -> Result<History> {
        self.view().await?.history().await
    }

    /// This session's ancestors, parents before children, and the session itself as the last.
    pub async fn lineage(&self) -> Result<Vec<Ancestor>> {
        self.view().await?.lineage().await
    }

    /// The text of the model's last turn that has any.
    pub async fn text(&self) -> Result<Option<String>> {
        self.view().await?.text().await
    }

    /// The record at `seq` of this session.
    pub async fn record_at(&self, seq: u64) -> Result<Record> {
        Ok(self.reader().record(Point { session: self.id(), seq }).await?)
    }

    /// The records of these kinds in this session, without ancestors, in order.
    pub async fn own_records(&self, kinds: &[crate::kind::Kind]) -> Result<Vec<Record>> {
        let (reader, mut records, mut from) = (self.reader(), Vec::new(), 0);
        loop {
            let page = reader.page(self.id(), from, self.0.head.seq, kinds).await?;
            records.extend(page.records);
            match page.more {
                true => from = page.position,
                false => return Ok(records),
            }
        }
    }

    /// A reader that also returns unpublished records.
    pub(crate) fn reader(&self) -> Reader {
        let mut reader = Reader::new(self.0.store.clone());
        self.add_tails(&mut reader);
        reader.set_cached(&self.0.records);
        reader
    }

    pub(super) fn add_tails(&self, reader: &mut Reader) {
        for ancestor in self.0.ancestors.iter() {
            let published = ancestor.lease.published.load(std::sync::atomic::Ordering::Acquire);
            reader.add_tail(in_order(ancestor.records.iter().take_while(|record| record.seq() >= published)));
        }
        reader.add_tail(in_order(self.unpublished()));
    }
}

fn in_order<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<Record> {
    let mut records: Vec<_> = records.cloned().collect();
    records.reverse();
    records
}

/// Formats the cached records as a transcript. [`Session::context`] reads the whole conversation.
impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {}", self.id().short())?;
        if let Some(title) = self.title() {
            write!(f, " \"{title}\"")?;
        }
        writeln!(f, ", {} records", self.0.head.seq + 1)?;
        let records = in_order(self.0.records.iter());
        match records.first().map_or(self.0.head.seq + 1, Record::seq) {
            0 => {}
            earlier => writeln!(f, "        ⋮  {earlier} earlier records in the store")?,
        }
        for record in records {
            if record.kind().is_conversation() {
                let mut body = MessageBody::read(record.kind(), 0, record.body_bytes()).unwrap_or(MessageBody::Erased);
                if let MessageBody::Tool(result) = &mut body
                    && result.shown.is_none()
                {
                    let finished = self.0.records.iter().find(|record| Some(record.id()) == result.finished);
                    if let Some(finished) = finished.and_then(|record| record.body::<ToolFinished>().ok()) {
                        result.show(&finished);
                    }
                }
                writeln!(f, "{}", Message::new(record.point(), body))?;
            } else {
                writeln!(f, "        ·  {}", crate::summary::of(&record))?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({}, {} records, {} unpublished)", self.id(), self.0.head.seq + 1, self.unpublished_count())
    }
}
