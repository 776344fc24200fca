//! What the documentation and the transcripts show is what happens.

use std::path::Path;

use crate::transcript::check;

fn project(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn the_readme_is_true() {
    // It shows what a machine with all of it shows.
    let local = rath::sandbox::Local::new();
    let diagnosis = local.diagnose();
    if diagnosis.tier != Some(rath::sandbox::Tier::Ns) {
        let why: Vec<String> = diagnosis.refusals.iter().map(ToString::to_string).collect();
        rath_testkit::Requirement::Sandbox.skip(why.join("; "));
        return;
    }
    check(&project("README.md"));
}

#[test]
fn the_page_about_runs_is_true() {
    if crate::local::isolates() {
        check(&project("docs/runs.md"));
    }
}

#[test]
fn the_page_about_checkpoints_is_true() {
    check(&project("docs/ledger/checkpoints.md"));
}

#[test]
fn the_pages_about_bundles_and_imports_are_true() {
    check(&project("docs/ledger/bundles.md"));
    check(&project("docs/ledger/import.md"));
}

#[test]
fn the_page_about_search_is_true() {
    check(&project("docs/ledger/search.md"));
}

#[test]
fn the_page_about_erasure_is_true() {
    check(&project("docs/ledger/erasure.md"));
}

#[test]
fn the_transcripts_are_true() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        if file.ends_with("runs.md") && !crate::local::isolates() {
            continue;
        }
        check(&file);
    }
}
