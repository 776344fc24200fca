//! Foreign tables and triggers in the database, and wrong lengths in its index.

use pollster::block_on;
use rath_core::verify::FindingKind;
use rath_core::{Actor, Session};
use rath_store::Embedded;
use rath_testkit::copy_dir;
use rusqlite::Connection;

use crate::support::{fresh, sample_sessions, verify};

#[test]
fn foreign_schema_objects_are_reported_and_a_foreign_trigger_prevents_writing() {
    let (store, dir) = fresh();
    sample_sessions(&store);
    drop(store);
    let original = dir.path().join("store");
    for (change, writes) in [
        (
            "CREATE TRIGGER gone AFTER INSERT ON segments BEGIN DELETE FROM segments WHERE cursor = new.cursor; END",
            false,
        ),
        ("DROP TRIGGER riders_leave; CREATE TRIGGER riders_leave AFTER DELETE ON blobs BEGIN SELECT 1; END", false),
        ("DROP TRIGGER riders_leave", true),
        ("CREATE VIEW all_of_it AS SELECT * FROM segments", true),
        ("CREATE TABLE mine (a)", true),
        ("DROP INDEX sessions_origin", true),
        ("UPDATE packs SET length = length + 1", true),
        ("UPDATE packs SET length = length - 1", true),
        ("UPDATE blobs SET bytes = bytes + 1", true),
        ("UPDATE blobs SET bytes = 0", true),
    ] {
        let copy = tempfile::tempdir_in(dir.path()).unwrap().keep();
        copy_dir(&original, &copy);
        Connection::open(copy.join("rath.db")).unwrap().execute_batch(change).unwrap();
        let findings = verify(&copy).findings;
        let found = findings.first().unwrap_or_else(|| panic!("{change}: nothing was found"));
        assert_eq!(found.what, FindingKind::Index, "{change}: {findings:?}");
        let written = Embedded::open(&copy).map(|store| {
            let mut session = Session::create(&store, Actor::person("ada"));
            session.user("Hello?").unwrap();
            block_on(session.publish()).map_err(|error| error.code().to_owned())
        });
        match written {
            Ok(written) if writes => assert_eq!(written, Ok(()), "{change}"),
            Ok(written) => assert_eq!(written, Err("store-damaged".into()), "{change}"),
            Err(error) => assert_eq!((writes, error.code()), (false, "store-damaged"), "{change}"),
        }
    }
}
