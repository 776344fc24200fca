//! Commands in the documentation are run, and must print what the page shows.

use std::path::{Path, PathBuf};

use crate::transcript::check;

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Checks pages whose commands run in the sandbox. They show what a machine with user namespaces prints.
fn check_in_sandbox(pages: &[&str]) {
    let local = rath::sandbox::Local::new();
    let diagnosis = local.diagnose();
    if diagnosis.level != Some(rath::sandbox::IsolationLevel::Ns) {
        let reasons: Vec<String> = diagnosis.refusals.iter().map(ToString::to_string).collect();
        rath_testkit::Requirement::Sandbox.skip(reasons.join("; "));
        return;
    }
    pages.iter().for_each(|page| check(&project(page)));
}

#[test]
fn the_readme_shows_real_output() {
    check_in_sandbox(&["README.md"]);
}

#[test]
fn the_first_run_shows_real_output() {
    check_in_sandbox(&["docs/start/first-run.md"]);
}

#[test]
fn the_guides_to_approvals_and_ci_show_real_output() {
    check_in_sandbox(&["docs/guides/approvals.md", "docs/guides/ci.md"]);
}

#[test]
fn the_guides_to_files_and_the_sandbox_show_real_output() {
    check_in_sandbox(&["docs/guides/files.md", "docs/guides/sandbox.md"]);
}

#[test]
fn the_guides_to_backup_and_checkpoints_show_real_output() {
    check(&project("docs/guides/backup.md"));
    check(&project("docs/guides/checkpoints.md"));
}

#[test]
fn the_guides_to_bundles_and_imports_show_real_output() {
    check(&project("docs/guides/bundles.md"));
    check(&project("docs/guides/import.md"));
}

#[test]
fn the_guide_to_search_shows_real_output() {
    check(&project("docs/guides/search.md"));
}

#[test]
fn the_guide_to_erasure_shows_real_output() {
    check(&project("docs/guides/erasure.md"));
}

#[test]
fn the_transcripts_show_real_output() {
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
