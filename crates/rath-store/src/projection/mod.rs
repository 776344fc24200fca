//! Projections of the embedded store: databases that are derived from the records and can be rebuilt from them.
//!
//! The search index is a projection with its own tables (`search`). Every other [`Projection`] has a database
//! `projections/NAME.db` with one table of entries. The files in that directory are the list of existing projections.
//! An erasure removes its records from the projections that this process knows, and removes the databases of all
//! others, which are rebuilt when they are next used. The index of record ids is not a separate file but a table of the
//! store's database: `verify` checks it in the same read transaction as the records, and an erasure removes its rows in
//! the same commit.

mod database;
mod entries;
mod erasure;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rath_core::kind_mask;
use rath_core::store::{Error, Projection, ReadFn, Result, Scan, check_projection_name};

pub(crate) use database::{Database, Layout, Opened, mark, marks_of, remove};

use crate::embedded::{Embedded, read, schema};
use entries::Entries;

/// "rthp" in ASCII.
const APPLICATION: i64 = 0x7274_6870;

/// The projections that this process has used, by name.
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

/// An error of a projection.
#[derive(Debug)]
pub(crate) enum ProjectionError {
    /// An error of the projection's database.
    Database(rusqlite::Error),
    /// An error of the store.
    Store(Error),
}

impl From<rusqlite::Error> for ProjectionError {
    fn from(error: rusqlite::Error) -> Self {
        ProjectionError::Database(error)
    }
}

impl From<Error> for ProjectionError {
    fn from(error: Error) -> Self {
        ProjectionError::Store(error)
    }
}

impl ProjectionError {
    /// Whether the database is damaged, so that it should be recreated.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, ProjectionError::Database(error) if database::is_damage(error))
    }

    /// Whether the database can be read but not written, for example because the disk is full.
    pub(crate) fn is_not_writable(&self) -> bool {
        matches!(self, ProjectionError::Database(error) if database::is_not_writable(error))
    }
}

impl From<ProjectionError> for Error {
    fn from(error: ProjectionError) -> Self {
        match error {
            ProjectionError::Database(error) => schema::doing("working with the database of a projection")(error),
            ProjectionError::Store(error) => error,
        }
    }
}

/// The schema and the paths of a projection with entries.
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
    /// Updates a projection and reads from its storage. If the database cannot be written, processes all records into
    /// memory, for this call only.
    pub(crate) fn project_here(&self, projection: &Arc<dyn Projection>, read: ReadFn) -> Result<()> {
        check_projection_name(&**projection)?;
        self.known.add(projection);
        let layout = self.layout_of(&**projection);
        let mut opened = Database::open(&layout)?;
        for attempt in 0..2 {
            let (Some(mut database), None) = (opened.database, opened.why) else { break };
            match self.fold_into(&mut database, &**projection) {
                Ok(()) => {
                    let snapshot = database.db.unchecked_transaction().map_err(ProjectionError::from)?;
                    return read(&Entries::of(&snapshot));
                }
                Err(error) if error.is_damage() && attempt == 0 => opened = database.recreate()?,
                Err(error) if error.is_not_writable() => break,
                Err(error) => return Err(error.into()),
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

    fn fold_into(
        &self,
        database: &mut Database,
        projection: &dyn Projection,
    ) -> std::result::Result<(), ProjectionError> {
        let kinds = projection.kinds();
        let mut fold = |chunk: &rusqlite::Transaction<'_>, rows: &[read::SegmentRow]| {
            let mut entries = Entries::of(chunk);
            let mut count = 0;
            for row in rows {
                let mut records = row.readable();
                records.retain(|record| kinds.is_empty() || kinds.contains(record.kind()));
                count += records.len() as u64;
                entries.run(|entries| projection.apply(&records, entries))?;
            }
            Ok((rows.len(), count))
        };
        database.catch_up(self, &mut fold, &mut |_| {})
    }

    /// The names of all projections that have a database in this store.
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
