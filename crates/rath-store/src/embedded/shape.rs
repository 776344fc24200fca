//! Whether the database has the tables, indexes and triggers that we make, as we make them, and nothing besides.
//!
//! A trigger takes part in every write, so a foreign one makes what is acknowledged untrue; nobody writes beside it.

use std::collections::BTreeMap;
use std::path::Path;

use rath_core::store::{Error, Result, Trouble};
use rusqlite::Connection;

use super::riders;
use super::schema::{self, ADDED_IN_3, FORMAT, TABLES, sql};

/// What makes each thing in a database, by its kind and name. White space does not count.
fn things(db: &Connection) -> rusqlite::Result<BTreeMap<(String, String), String>> {
    let query = "SELECT type, name, coalesce(sql, '') FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
    let mut query = db.prepare(query)?;
    let things = query.query_map([], |row| {
        let made: String = row.get(2)?;
        Ok(((row.get(0)?, row.get(1)?), made.split_whitespace().collect::<Vec<_>>().join(" ")))
    })?;
    things.collect()
}

/// What we make.
fn ours() -> rusqlite::Result<BTreeMap<(String, String), String>> {
    let db = Connection::open_in_memory()?;
    db.execute_batch(&format!("{TABLES} {ADDED_IN_3} {}", riders::TABLE))?;
    things(&db)
}

/// What is not ours in the database, is not as we made it, or is missing; a store of an older format has less.
pub(super) fn differences(db: &Connection) -> Result<Vec<String>> {
    let (ours, found, format) = (ours().map_err(sql)?, things(db).map_err(sql)?, schema::format(db)?);
    let mut differences = Vec::new();
    for (thing @ (kind, name), made) in &found {
        match ours.get(thing) {
            None => differences.push(format!("the database has a {kind} {name:?} that rath did not make")),
            Some(as_ours) if as_ours != made => {
                differences.push(format!("{kind} {name:?} of the database was changed"))
            }
            Some(_) => {}
        }
    }
    let missing = ours.keys().filter(|thing| format == FORMAT && !found.contains_key(thing));
    differences.extend(missing.map(|(kind, name)| format!("{kind} {name:?} of the database is missing")));
    Ok(differences)
}

/// Refuses to write where somebody else would write too.
pub(super) fn check_triggers(db: &Connection, path: &Path) -> Result<()> {
    let triggers = "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'";
    if db.query_row(triggers, [], |row| row.get::<_, i64>(0)).map_err(sql)? == 0 {
        return Ok(());
    }
    let ours = ours().map_err(sql)?;
    let found = things(db).map_err(sql)?;
    match found.iter().find(|(thing, made)| thing.0 == "trigger" && ours.get(thing) != Some(made)) {
        None => Ok(()),
        Some(((_, name), _)) => Err(Error::trouble(
            format!("opening {} to write", path.display()),
            Trouble::Damaged,
            format!("it has a trigger {name:?} that rath did not make, which would change what is written"),
        )),
    }
}
