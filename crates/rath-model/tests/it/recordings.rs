//! Recorded traffic with real providers. Nobody here wrote it, and it is not part of the project.

use std::path::Path;

use rath_model::recordings::check;

#[test]
fn recorded_answers_are_read_as_the_vendors_clients_read_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/providers");
    if !folder.is_dir() {
        eprintln!("skipped: no recordings in {}", folder.display());
        return;
    }
    let report = check(&folder).unwrap();
    assert!(report.differ() == 0 && report.equal() > 0, "{report}");
}
