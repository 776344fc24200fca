//! Fault injection for the file operations of a process. The library `rath-faults` is preloaded into a command; it
//! makes file operations fail by rules, and can record them in a trace.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The rules for `rath-faults`, which documents their syntax, and the file for the trace.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    rules: String,
    trace: Option<PathBuf>,
}

impl Faults {
    /// Rules, one per line.
    pub fn new(rules: impl Into<String>) -> Self {
        Self { rules: rules.into(), trace: None }
    }

    /// Records the file operations in the file `into`.
    #[must_use]
    pub fn traced(mut self, into: impl Into<PathBuf>) -> Self {
        self.trace = Some(into.into());
        self
    }

    /// Applies the rules to the command's file operations below `root`.
    pub fn load<'a>(&self, command: &'a mut Command, root: &Path) -> &'a mut Command {
        command.env("LD_PRELOAD", library());
        command.env("RATH_FAULTS_ROOT", root.canonicalize().unwrap());
        command.env("RATH_FAULTS_RULES", &self.rules);
        if let Some(trace) = &self.trace {
            command.env("RATH_FAULTS_TRACE", trace);
        }
        command
    }
}

/// Replaces the rules for `root` in the calling process, which must have been started with [`Faults`].
pub fn change(root: &Path, rules: &str) {
    // The line feed ensures that there is a write, also for empty rules.
    std::fs::write(root.join("faults"), format!("{rules}\n")).unwrap();
}

/// The path of the library, which cargo builds next to the tests that depend on it.
fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let dir = tests.parent().unwrap();
    let paths = [dir, dir.parent().unwrap()].map(|dir| dir.join("librath_faults.so"));
    paths.into_iter().find(|path| path.exists()).expect("librath_faults.so is not next to the tests")
}
