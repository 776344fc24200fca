//! Removing the words of records that are about to be erased.

use std::collections::{BTreeSet, HashSet};

use rath_core::Point;
use rusqlite::{OptionalExtension as _, TransactionBehavior, params};

use super::index::{Entry, Index};
use super::query;
use crate::embedded::Embedded;
use crate::projection::ProjectionError;

impl Index {
    /// Removes the words of these records, and lists the records so that they are not indexed again. When it returns,
    /// neither the index nor its log has these words. If the text of a record can no longer be read, its words are
    /// unknown, and the whole index is emptied.
    pub(super) fn forget(&mut self, store: &Embedded, points: &[Point]) -> std::result::Result<(), ProjectionError> {
        let mut words = BTreeSet::new();
        let is_clean = self.remove_words(store, points, &mut words)? && !self.leaks_prefix(&words)?;
        self.db.execute_batch("INSERT INTO words (words, rank) VALUES ('secure-delete', 0)")?;
        if !is_clean {
            self.clear()?;
        }
        Ok(self.truncate_wal()?)
    }

    /// Removes the words of all records that can be read. Returns `false` if one cannot be read.
    fn remove_words(
        &mut self,
        store: &Embedded,
        points: &[Point],
        words: &mut BTreeSet<String>,
    ) -> std::result::Result<bool, ProjectionError> {
        let removal = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        removal.execute_batch("INSERT INTO words (words, rank) VALUES ('secure-delete', 1)")?;
        let mut readable = true;
        {
            let mut remember = removal.prepare_cached("INSERT OR IGNORE INTO forgotten VALUES (?1, ?2)")?;
            let mut known = removal.prepare_cached("SELECT value FROM marks WHERE name = 'cursor'")?;
            let reached: i64 = known.query_row([], |row| row.get(0)).optional()?.unwrap_or(0);
            let mut delete =
                removal.prepare_cached("INSERT INTO words (words, rowid, text, tags) VALUES ('delete', ?1, ?2, ?3)")?;
            for point in points {
                let found = store.read(|db| query::row_of(db, *point))?;
                let Some((number, segment)) = found else {
                    readable = false;
                    continue;
                };
                let Some(record) = segment.record(point.seq).ok().flatten() else {
                    readable = false;
                    continue;
                };
                // The list has the id too, because a restored store may give the row number to another record.
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
        removal.commit()?;
        Ok(readable)
    }

    /// Whether an inner page of the index still has a prefix of a removed word that no other record has.
    fn leaks_prefix(&self, words: &BTreeSet<String>) -> rusqlite::Result<bool> {
        let mut pages = self.db.prepare("SELECT term FROM words_idx")?;
        let prefixes: HashSet<Vec<u8>> =
            pages.query_map([], |row| row.get::<_, Vec<u8>>(0))?.collect::<rusqlite::Result<_>>()?;
        let mut occurs = self.db.prepare("SELECT 1 FROM words WHERE words MATCH ?1 LIMIT 1")?;
        for word in words {
            // FTS5 writes `0` before each word. Prefixes of up to three ASCII letters, or of one other character,
            // reveal nothing.
            let key = format!("0{word}").into_bytes();
            let least = 2 + if word.is_ascii() { 3 } else { word.chars().next().map_or(0, char::len_utf8) };
            if (least..=key.len()).any(|end| prefixes.contains(&key[..end]))
                && !occurs.exists([format!("text : \"{word}\"")])?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
