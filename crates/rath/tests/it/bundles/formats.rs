//! Bundles of earlier formats stay readable.

use std::path::Path;

use rath::bundle::{Export, Graph};
use rath::prelude::*;

use super::{embedded, export, import, is_sound, records_in};

#[tokio::test]
async fn a_bundle_of_format_1_is_taken_in_and_goes_out_as_one_of_format_2() {
    let dir = tempfile::tempdir().unwrap();
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/bundles/format-1.zip");
    let store = embedded(dir.path(), "store");
    let imported = import(&store, &old).await.unwrap();
    assert_eq!((imported.graph.bundle, imported.records), (1, 319));
    assert_eq!(records_in(&store).await, 319);
    is_sound(dir.path(), "store");

    let again = Export { graph: true, ..Export::of(imported.graph.of[0], None) };
    let said = export(&again, &store, &dir.path().join("new")).await;
    assert_eq!(said, Graph { bundle: 2, ..imported.graph });
    let records = std::fs::read_to_string(dir.path().join("new/records.jsonl")).unwrap();
    assert!(records.lines().all(|line| line.starts_with("{\"header\":{\"actor\":")), "as they are");
    let other = Memory::new();
    assert_eq!(import(&other, &dir.path().join("new")).await.unwrap().records, 319);
}
