//! Whether the database has the tables, indexes and triggers that we make, as we make them, and nothing besides.
//!
//! A trigger takes part in every write, so a foreign one makes what is acknowledged untrue; nobody writes beside it.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use rath_core::store::{Error, Result, Trouble};
use rusqlite::Connection;

use super::schema::{self, FORMAT, STEPS, sql};

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

/// What we make in a store of this format.
fn made_by(steps: &[(i64, &str)], format: i64) -> rusqlite::Result<Connection> {
    let db = Connection::open_in_memory()?;
    steps.iter().filter(|(since, _)| *since <= format).try_for_each(|(_, step)| db.execute_batch(step))?;
    Ok(db)
}

fn ours(format: i64) -> rusqlite::Result<BTreeMap<(String, String), String>> {
    things(&made_by(STEPS, format)?)
}

/// What is not ours in the database, is not as we made it, or is missing. What a later version made is not known here.
pub(super) fn differences(db: &Connection) -> Result<Vec<String>> {
    match schema::format(db)? {
        later if later > FORMAT => Ok(Vec::new()),
        format => Ok(compare(&ours(format).map_err(sql)?, &things(db).map_err(sql)?)),
    }
}

fn compare(ours: &BTreeMap<(String, String), String>, found: &BTreeMap<(String, String), String>) -> Vec<String> {
    let mut differences = Vec::new();
    for (thing @ (kind, name), made) in found {
        match ours.get(thing) {
            None => differences.push(format!("the database has a {kind} {name:?} that rath did not make")),
            Some(as_ours) if as_ours != made => {
                differences.push(format!("{kind} {name:?} of the database was changed"))
            }
            Some(_) => {}
        }
    }
    let missing = ours.keys().filter(|thing| !found.contains_key(thing));
    differences.extend(missing.map(|(kind, name)| format!("{kind} {name:?} of the database is missing")));
    differences
}

/// Whether the database has every table and column that this version reads.
pub(super) fn has_all_columns(db: &Connection) -> Result<bool> {
    let ours = made_by(STEPS, FORMAT).map_err(sql)?;
    let query = "SELECT t.name, c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'table'";
    let columns = |db: &Connection| -> rusqlite::Result<HashSet<(String, String)>> {
        let mut query = db.prepare(query)?;
        let columns = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        columns.collect()
    };
    Ok(columns(&ours).map_err(sql)?.is_subset(&columns(db).map_err(sql)?))
}

/// Refuses to write where somebody else would write too.
pub(super) fn check_triggers(db: &Connection, path: &Path) -> Result<()> {
    let triggers = "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'";
    if db.query_row(triggers, [], |row| row.get::<_, i64>(0)).map_err(sql)? == 0 {
        return Ok(());
    }
    let ours = ours(schema::format(db)?).map_err(sql)?;
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// The formats that there are, and one that adds a column.
    fn with_a_column() -> Vec<(i64, &'static str)> {
        let mut steps = STEPS.to_vec();
        steps.push((FORMAT + 1, "ALTER TABLE sessions ADD COLUMN waits INTEGER NOT NULL DEFAULT 0;"));
        steps
    }

    #[test]
    fn a_column_is_the_same_in_a_new_store_and_in_one_that_was_raised() {
        let steps = with_a_column();
        let new = made_by(&steps, FORMAT + 1).unwrap();
        for from in 1..=FORMAT {
            let raised = made_by(&steps, from).unwrap();
            // An older store, opened for reading, is as its format made it.
            assert_eq!(compare(&ours(from).unwrap(), &things(&raised).unwrap()), [""; 0]);
            let missing = steps.iter().filter(|(to, _)| *to > from);
            missing.for_each(|(_, step)| raised.execute_batch(step).unwrap());
            assert_eq!(compare(&things(&new).unwrap(), &things(&raised).unwrap()), [""; 0]);
        }
    }

    #[test]
    fn a_column_that_the_format_does_not_have_is_found() {
        let db = made_by(&with_a_column(), FORMAT + 1).unwrap();
        let found = compare(&ours(FORMAT).unwrap(), &things(&db).unwrap());
        assert_eq!(found, ["table \"sessions\" of the database was changed"]);
    }

    #[test]
    fn a_column_that_an_older_store_lacks_is_read_as_null() {
        for (format, expected) in [(FORMAT, None), (FORMAT + 1, Some(0))] {
            let db = made_by(&with_a_column(), format).unwrap();
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
    fn a_store_of_a_later_format_is_readable_while_it_has_what_is_read() {
        let later = made_by(&with_a_column(), FORMAT + 1).unwrap();
        assert!(has_all_columns(&later).unwrap());
        later.execute_batch("ALTER TABLE sessions RENAME COLUMN title TO name").unwrap();
        assert!(!has_all_columns(&later).unwrap());
    }
}
