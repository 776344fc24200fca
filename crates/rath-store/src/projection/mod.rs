//! Projections of the embedded store: what is folded from records into databases beside the ledger.
//!
//! The search index is one, with tables of its own (`search`). Every other [`Projection`] has a database
//! `projections/NAME.db` with a table of entries. The files in that directory are the list of projections that exist: an
//! erasure tells those that this process knows, and removes the storage of the others, which is folded again when
//! they are asked. The index of record ids is one, too, and lies in the ledger: `verify` checks it there in the same moment as
//! the records, and an erasure takes its rows out in the same commit.

mod database;
mod entries;
mod erasing;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rath_core::kind_mask;
use rath_core::store::{Error, Projection, Reading, Result, Scan, check_projection_name};

pub(crate) use database::{Database, Layout, Opened, mark, marks_of, remove};

use crate::embedded::{Embedded, read, schema};
use entries::Entries;

/// "rthp" in ASCII.
const APPLICATION: i64 = 0x7274_6870;

/// The projections that this process has asked, by their names.
#[derive(Default)]
pub(crate) struct Known(Mutex<BTreeMap<String, Arc<dyn Projection>>>);

impl Known {
    fn add(&self, projection: &Arc<dyn Projection>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(projection.name().to_owned(), projection.clone());
    }

    fn get(&self, name: &str) -> Option<Arc<dyn Projection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

/// Why the database of a projection did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The database said no.
    Database(rusqlite::Error),
    /// The ledger did.
    Store(Error),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Trouble::Database(error)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Store(error)
    }
}

impl Trouble {
    /// Whether a new database would help.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Trouble::Database(error) if database::is_damage(error))
    }

    /// Whether the database is as it was, and nothing can be added to it.
    pub(crate) fn is_out_of_room(&self) -> bool {
        matches!(self, Trouble::Database(error) if database::is_out_of_room(error))
    }
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Database(error) => schema::doing("working with the database of a projection")(error),
            Trouble::Store(error) => error,
        }
    }
}

/// The storage of a projection.
fn layout(root: &Path, name: &str, version: u32, kinds: u64) -> Layout {
    let dir = root.join("projections");
    Layout {
        title: format!("the projection {name}"),
        path: dir.join(format!("{name}.db")),
        lock: dir.join(format!("{name}.lock")),
        application: APPLICATION,
        version: i64::from(version),
        tables: entries::TABLE,
        empty: "DELETE FROM entries",
        kinds,
    }
}

impl Embedded {
    /// Brings a projection up to date and reads from its storage. Where nothing can be written everything is folded in
    /// memory, for this once.
    pub(crate) fn project_here(&self, projection: &Arc<dyn Projection>, read: Reading) -> Result<()> {
        check_projection_name(&**projection)?;
        self.known.add(projection);
        let layout = self.layout_of(&**projection);
        let mut opened = Database::open(&layout)?;
        for attempt in 0..2 {
            let (Some(mut database), None) = (opened.database, opened.why) else { break };
            match self.fold_into(&mut database, &**projection) {
                Ok(()) => {
                    let moment = database.db.unchecked_transaction().map_err(Trouble::from)?;
                    return read(&Entries::of(&moment));
                }
                Err(trouble) if trouble.is_damage() && attempt == 0 => opened = database.anew()?,
                Err(trouble) if trouble.is_out_of_room() => break,
                Err(trouble) => return Err(trouble.into()),
            }
        }
        let mut storage = BTreeMap::new();
        let mut scan = Scan::all().kinds(projection.kinds());
        loop {
            let page = self.read(|db| read::page(db, &scan))?;
            projection.apply(&page.records, &mut storage)?;
            if !page.more {
                return read(&storage);
            }
            scan = Scan::store(page.cursor).kinds(projection.kinds());
        }
    }

    fn layout_of(&self, projection: &dyn Projection) -> Layout {
        layout(&self.paths.root, projection.name(), projection.version(), kind_mask(projection.kinds()))
    }

    fn fold_into(&self, database: &mut Database, projection: &dyn Projection) -> std::result::Result<(), Trouble> {
        let kinds = projection.kinds();
        let mut fold = |piece: &rusqlite::Transaction<'_>, rows: &[read::SegmentRow]| {
            let mut entries = Entries::of(piece);
            let mut count = 0;
            for row in rows {
                let mut records = row.readable();
                records.retain(|record| kinds.is_empty() || kinds.contains(record.kind()));
                count += records.len() as u64;
                entries.or_broken(|entries| projection.apply(&records, entries))?;
            }
            Ok((rows.len(), count))
        };
        database.catch_up(self, &mut fold, &mut |_| {})
    }

    /// The projections that have storage here, whoever made it.
    fn stored_projections(&self) -> Result<Vec<String>> {
        let dir = self.paths.root.join("projections");
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::machine(format!("reading {}", dir.display()), error)),
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter_map(|name| name.strip_suffix(".db").map(str::to_owned)).collect();
        names.sort_unstable();
        Ok(names)
    }
}
