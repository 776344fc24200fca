//! Looking at a session while it is held.

use std::fmt;

use super::Session;
use crate::body::ToolFinished;
use crate::error::Result;
use crate::history::History;
use crate::id::Point;
use crate::message::{Message, Said};
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

    /// The session as it is.
    pub async fn view(&self) -> Result<View> {
        self.at(self.0.head.seq).await
    }

    /// What a model is shown, item by item.
    pub async fn context(&self) -> Result<Vec<Message>> {
        self.view().await?.context().await
    }

    /// Every record behind the head, parents before children.
    pub async fn history(&self) -> Result<History> {
        self.view().await?.history().await
    }

    /// The sessions this one stands on, itself last.
    pub async fn lineage(&self) -> Result<Vec<Ancestor>> {
        self.view().await?.lineage().await
    }

    /// The last thing a model said.
    pub async fn text(&self) -> Result<Option<String>> {
        self.view().await?.text().await
    }

    /// The record at `seq` of this line.
    pub async fn record_at(&self, seq: u64) -> Result<Record> {
        Ok(self.reader().record(Point { session: self.id(), seq }).await?)
    }

    /// The records of this line of these kinds, in order.
    pub(super) async fn own_records(&self, kinds: &[crate::kind::Kind]) -> Result<Vec<Record>> {
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

    /// A reader that also sees what is not published.
    pub(crate) fn reader(&self) -> Reader {
        let mut reader = Reader::new(self.0.store.clone());
        self.add_tails(&mut reader);
        reader.keep_at_hand(&self.0.records);
        reader
    }

    pub(super) fn add_tails(&self, reader: &mut Reader) {
        for ancestor in self.0.ancestors.iter() {
            let published = ancestor.hold.published.load(std::sync::atomic::Ordering::Acquire);
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

/// Reads like a transcript. Shows the records at hand; [`Session::context`] reads all of it.
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
                let mut said = Said::read(record.kind(), 0, record.body_bytes()).unwrap_or(Said::Erased);
                if let Said::Tool(result) = &mut said
                    && result.shown.is_none()
                {
                    let finished = self.0.records.iter().find(|record| Some(record.id()) == result.finished);
                    if let Some(finished) = finished.and_then(|record| record.body::<ToolFinished>().ok()) {
                        result.show(&finished);
                    }
                }
                writeln!(f, "{}", Message::new(record.point(), said))?;
            } else {
                writeln!(f, "        ·  {}", crate::summary::of(&record))?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({}, {} records, {} at risk)", self.id(), self.0.head.seq + 1, self.at_risk())
    }
}
