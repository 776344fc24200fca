//! Every error code has a page, and every page a code.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(project.join(path)).unwrap();
    let mut codes = BTreeSet::new();
    for file in [
        "crates/rath-core/src/store.rs",
        "crates/rath-core/src/io_error_kind.rs",
        "crates/rath-core/src/error.rs",
        "crates/rath-workspace/src/error.rs",
        "crates/rath-sandbox/src/error.rs",
        "crates/rath/src/workspaces/error.rs",
        "crates/rath-audit/src/bundle/mod.rs",
        "crates/rath-audit/src/import/mod.rs",
    ] {
        let text = read(file);
        let list = text.split("pub fn code(&self)").nth(1).unwrap().split("\n    }\n").next().unwrap().to_owned();
        let quoted = list.split('"').skip(1).step_by(2).map(str::to_owned);
        codes.extend(quoted);
    }
    let combinators = read("crates/rath/src/workflow/codes.rs");
    codes.extend(combinators.split('"').skip(1).step_by(2).map(str::to_owned));
    codes.insert("nothing-failed".into());
    let pages: BTreeSet<String> = std::fs::read_dir(project.join("docs/errors"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(codes, pages);
    let out = Command::new(env!("CARGO_BIN_EXE_rath")).args(["explain", "--json"]).output().unwrap();
    let shipped: BTreeSet<String> = crate::workspace::lines(&crate::workspace::text(&out.stdout))
        .iter()
        .map(|code| code["code"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(shipped, pages);
}
