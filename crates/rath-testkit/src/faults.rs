//! Processes whose files fail: a command gets `rath-faults` loaded before it, which writes down what it does to its files
//! and lets calls fail as it is told.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Rules for `rath-faults`, which says how one is written; and what it writes down.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    rules: String,
    trace: Option<PathBuf>,
}

impl Faults {
    /// These rules, a line each.
    pub fn new(rules: impl Into<String>) -> Self {
        Self { rules: rules.into(), trace: None }
    }

    /// Writes down what happens, into this file.
    #[must_use]
    pub fn traced(mut self, into: impl Into<PathBuf>) -> Self {
        self.trace = Some(into.into());
        self
    }

    /// Has the command's process meet them below `root`.
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

/// Gives a process that met [`Faults`] below `root` other ones. Said by that process itself.
pub fn change(root: &Path, rules: &str) {
    // An empty write would not be one.
    std::fs::write(root.join("faults"), format!("{rules}\n")).unwrap();
}

/// The library, which cargo builds beside the tests that depend on it.
fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let beside = tests.parent().unwrap();
    let places = [beside, beside.parent().unwrap()].map(|dir| dir.join("librath_faults.so"));
    places.into_iter().find(|place| place.exists()).expect("librath_faults.so is not beside the tests")
}
