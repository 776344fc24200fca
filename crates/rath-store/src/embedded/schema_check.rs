//! Compares the schema of the database with the expected schema of its format.
//!
//! A foreign trigger runs in every write and can change what was acknowledged, so a database with one is not opened for
//! writing.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use rath_core::store::{Error, IoErrorKind, Result};
use rusqlite::Connection;

use super::schema::{self, FORMAT, STEPS, sql};

/// The SQL text of each table, index and trigger, by type and name, with white space normalized.
fn schema_objects(db: &Connection) -> rusqlite::Result<BTreeMap<(String, String), String>> {
    let query = "SELECT type, name, coalesce(sql, '') FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
    let mut query = db.prepare(query)?;
    let objects = query.query_map([], |row| {
        let made: String = row.get(2)?;
        Ok(((row.get(0)?, row.get(1)?), made.split_whitespace().collect::<Vec<_>>().join(" ")))
    })?;
    objects.collect()
}

/// An empty database in memory with the tables of a format.
fn database_of(steps: &[(i64, &str)], format: i64) -> rusqlite::Result<Connection> {
    let db = Connection::open_in_memory()?;
    steps.iter().filter(|(since, _)| *since <= format).try_for_each(|(_, step)| db.execute_batch(step))?;
    Ok(db)
}

fn expected(format: i64) -> rusqlite::Result<BTreeMap<(String, String), String>> {
    schema_objects(&database_of(STEPS, format)?)
}

/// Describes each table, index and trigger that is unexpected, changed or missing. Returns nothing for a store of a
/// later format, because its expected schema is unknown.
pub(super) fn differences(db: &Connection) -> Result<Vec<String>> {
    match schema::format(db)? {
        later if later > FORMAT => Ok(Vec::new()),
        format => Ok(compare(&expected(format).map_err(sql)?, &schema_objects(db).map_err(sql)?)),
    }
}

fn compare(expected: &BTreeMap<(String, String), String>, found: &BTreeMap<(String, String), String>) -> Vec<String> {
    let mut differences = Vec::new();
    for (thing @ (kind, name), made) in found {
        match expected.get(thing) {
            None => differences.push(format!("the database has a {kind} {name:?} that rath did not make")),
            Some(expected) if expected != made => {
                differences.push(format!("{kind} {name:?} of the database was changed"))
            }
            Some(_) => {}
        }
    }
    let missing = expected.keys().filter(|thing| !found.contains_key(thing));
    differences.extend(missing.map(|(kind, name)| format!("{kind} {name:?} of the database is missing")));
    differences
}

/// Whether the database has every table and column that this version reads.
pub(super) fn has_all_columns(db: &Connection) -> Result<bool> {
    let expected = database_of(STEPS, FORMAT).map_err(sql)?;
    let query = "SELECT t.name, c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'table'";
    let columns = |db: &Connection| -> rusqlite::Result<HashSet<(String, String)>> {
        let mut query = db.prepare(query)?;
        let columns = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        columns.collect()
    };
    Ok(columns(&expected).map_err(sql)?.is_subset(&columns(db).map_err(sql)?))
}

/// Returns an error if the database has a trigger that is not part of the expected schema.
pub(super) fn check_triggers(db: &Connection, path: &Path) -> Result<()> {
    let triggers = "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'";
    if db.query_row(triggers, [], |row| row.get::<_, i64>(0)).map_err(sql)? == 0 {
        return Ok(());
    }
    let expected = expected(schema::format(db)?).map_err(sql)?;
    let found = schema_objects(db).map_err(sql)?;
    match found.iter().find(|(thing, made)| thing.0 == "trigger" && expected.get(thing) != Some(made)) {
        None => Ok(()),
        Some(((_, name), _)) => Err(Error::with_kind(
            format!("opening {} to write", path.display()),
            IoErrorKind::Damaged,
            format!("it has a trigger {name:?} that rath did not make, which would change what is written"),
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// The existing formats, and one more that adds a column.
    fn with_a_column() -> Vec<(i64, &'static str)> {
        let mut steps = STEPS.to_vec();
        steps.push((FORMAT + 1, "ALTER TABLE sessions ADD COLUMN waits INTEGER NOT NULL DEFAULT 0;"));
        steps
    }

    #[test]
    fn an_added_column_is_the_same_in_a_new_store_and_in_an_upgraded_one() {
        let steps = with_a_column();
        let new = database_of(&steps, FORMAT + 1).unwrap();
        for from in 1..=FORMAT {
            let upgraded = database_of(&steps, from).unwrap();
            // An older store that is opened for reading has the schema of its format.
            assert_eq!(compare(&expected(from).unwrap(), &schema_objects(&upgraded).unwrap()), [""; 0]);
            let missing = steps.iter().filter(|(to, _)| *to > from);
            missing.for_each(|(_, step)| upgraded.execute_batch(step).unwrap());
            assert_eq!(compare(&schema_objects(&new).unwrap(), &schema_objects(&upgraded).unwrap()), [""; 0]);
        }
    }

    #[test]
    fn a_column_that_is_not_part_of_the_format_is_reported() {
        let db = database_of(&with_a_column(), FORMAT + 1).unwrap();
        let found = compare(&expected(FORMAT).unwrap(), &schema_objects(&db).unwrap());
        assert_eq!(found, ["table \"sessions\" of the database was changed"]);
    }

    #[test]
    fn a_column_that_an_older_store_lacks_is_read_as_null() {
        for (format, expected) in [(FORMAT, None), (FORMAT + 1, Some(0))] {
            let db = database_of(&with_a_column(), format).unwrap();
            db.pragma_update(None, "user_version", format).unwrap();
            db.execute_batch("INSERT INTO projections (name, cursor) VALUES ('ids', 7)").unwrap();
            db.execute_batch(
                "INSERT INTO sessions (id, head, seq, time, generation, birth, born, born_generation, closed, fence)
                VALUES (x'01', x'02', 0, 0, 0, 0, 0, 0, 0, 1)",
            )
            .unwrap();
            let columns = schema::columns(&db, "id, seq", &[("waits", FORMAT + 1)]).unwrap();
            let query = format!("SELECT {columns} FROM sessions");
            let found: Option<i64> = db.query_row(&query, [], |row| row.get(2)).unwrap();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_store_of_a_later_format_is_readable_if_it_has_all_columns() {
        let later = database_of(&with_a_column(), FORMAT + 1).unwrap();
        assert!(has_all_columns(&later).unwrap());
        later.execute_batch("ALTER TABLE sessions RENAME COLUMN title TO name").unwrap();
        assert!(!has_all_columns(&later).unwrap());
    }
}
