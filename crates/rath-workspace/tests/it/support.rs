//! Children of this binary, which are killed, and the store's own check.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rath_core::verify::Report;
use rath_store::Embedded;

/// What the store at a path says of itself.
pub(crate) fn verify(path: &Path) -> Report {
    Embedded::open_here(path, "test").unwrap().verify(None, &mut |_, _| {}).unwrap()
}

/// Starts one test of this binary as a process of its own, to work in `dir`.
pub(crate) fn child(test: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("RATH_TEST_CHILD", dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The directory, in a child; `None` in the test run itself.
pub(crate) fn child_dir() -> Option<PathBuf> {
    std::env::var_os("RATH_TEST_CHILD").map(Into::into)
}
