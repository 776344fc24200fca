//! Child processes of the tests, and the store's integrity check.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rath_core::verify::VerifyReport;
use rath_store::Embedded;

/// The result of the integrity check of a store.
pub(crate) fn verify(path: &Path) -> VerifyReport {
    Embedded::open_as(path, "test").unwrap().verify(None, &mut |_, _| {}).unwrap()
}

/// Starts one test of this binary in a child process that works in `dir`.
pub(crate) fn child(test: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("RATH_TEST_CHILD", dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The directory in a child process; `None` in the test run itself.
pub(crate) fn child_dir() -> Option<PathBuf> {
    std::env::var_os("RATH_TEST_CHILD").map(Into::into)
}
