//! Words of records that are to be gone for good.

use std::collections::{BTreeSet, HashSet};

use rath_core::Point;
use rusqlite::{OptionalExtension as _, TransactionBehavior, params};

use super::ask;
use super::index::{Entry, Index};
use crate::embedded::Embedded;
use crate::projection::Trouble;

impl Index {
    /// Takes the words of these records out, and remembers never to put them in again. When it returns, no page and no
    /// log of the index has them. Where a record's text can no longer be read nobody knows which words were its own:
    /// then the whole index is emptied.
    pub(super) fn forget(&mut self, store: &Embedded, points: &[Point]) -> std::result::Result<(), Trouble> {
        let mut words = BTreeSet::new();
        let whole = self.take_out(store, points, &mut words)? && !self.is_a_signpost(&words)?;
        self.db.execute_batch("INSERT INTO words (words, rank) VALUES ('secure-delete', 0)")?;
        if !whole {
            self.clear()?;
        }
        Ok(self.flush()?)
    }

    /// Takes out what can be read; false when something cannot.
    fn take_out(
        &mut self,
        store: &Embedded,
        points: &[Point],
        words: &mut BTreeSet<String>,
    ) -> std::result::Result<bool, Trouble> {
        let taking = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        taking.execute_batch("INSERT INTO words (words, rank) VALUES ('secure-delete', 1)")?;
        let mut readable = true;
        {
            let mut remember = taking.prepare_cached("INSERT OR IGNORE INTO forgotten VALUES (?1, ?2)")?;
            let mut known = taking.prepare_cached("SELECT value FROM marks WHERE name = 'cursor'")?;
            let reached: i64 = known.query_row([], |row| row.get(0)).optional()?.unwrap_or(0);
            let mut delete =
                taking.prepare_cached("INSERT INTO words (words, rowid, text, tags) VALUES ('delete', ?1, ?2, ?3)")?;
            for point in points {
                let found = store.read(|db| ask::number(db, *point))?;
                let Some((number, segment)) = found else {
                    readable = false;
                    continue;
                };
                let Some(record) = segment.record(point.seq).ok().flatten() else {
                    readable = false;
                    continue;
                };
                // A store that was set back gives the number to another record.
                let first_time = remember.execute(params![number, record.id().0.0])? > 0;
                if !first_time || segment.cursor > reached {
                    continue;
                }
                let entry = match Some(record).filter(|record| record.body_bytes().is_some()) {
                    Some(record) => Some(store.read(|db| Ok(Entry::of(&record, store, db)))?),
                    None => None,
                };
                match entry.filter(|entry| !entry.lost) {
                    Some(entry) => {
                        delete.execute(params![number, entry.text, entry.tags])?;
                        words.extend(entry.text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned));
                    }
                    None => readable = false,
                }
            }
        }
        taking.commit()?;
        Ok(readable)
    }

    /// Whether the beginning of a word that no record has any more still leads from page to page of the index.
    fn is_a_signpost(&self, words: &BTreeSet<String>) -> rusqlite::Result<bool> {
        let mut pages = self.db.prepare("SELECT term FROM words_idx")?;
        let signs: HashSet<Vec<u8>> =
            pages.query_map([], |row| row.get::<_, Vec<u8>>(0))?.collect::<rusqlite::Result<_>>()?;
        let mut stands = self.db.prepare("SELECT 1 FROM words WHERE words MATCH ?1 LIMIT 1")?;
        for word in words {
            // The index writes `0` before a word. Three letters tell nobody anything, nor does one of a script with many.
            let sign = format!("0{word}").into_bytes();
            let least = 2 + if word.is_ascii() { 3 } else { word.chars().next().map_or(0, char::len_utf8) };
            if (least..=sign.len()).any(|end| signs.contains(&sign[..end]))
                && !stands.exists([format!("text : \"{word}\"")])?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
