//! What some tests need of the machine. Without it they are skipped, and say so; where the machine must have it, as in
//! CI, they fail.

use std::fmt;
use std::io::Write as _;

/// The variable that lists what the machine must have: `RATH_REQUIRE=sandbox,python,git`.
pub const REQUIRE: &str = "RATH_REQUIRE";

/// What a test may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// Namespaces that isolate commands.
    Sandbox,
    /// `python3`.
    Python,
    /// `git`.
    Git,
    /// `npm`, for the mock of the providers.
    Npm,
    /// The tiny models with real weights.
    Models,
    /// Recorded answers of providers.
    Recordings,
    /// To be run by root.
    Root,
    /// To be run by a plain user.
    PlainUser,
    /// Mounts: overlays, small disks.
    Mounts,
    /// Gigabytes of free disk.
    Disk,
}

impl Requirement {
    /// Its name in `RATH_REQUIRE`.
    pub fn name(self) -> &'static str {
        match self {
            Requirement::Sandbox => "sandbox",
            Requirement::Python => "python",
            Requirement::Git => "git",
            Requirement::Npm => "npm",
            Requirement::Models => "models",
            Requirement::Recordings => "recordings",
            Requirement::Root => "root",
            Requirement::PlainUser => "plain-user",
            Requirement::Mounts => "mounts",
            Requirement::Disk => "disk",
        }
    }

    /// Reports that this test is skipped. The line is on standard output even if the test passes, so that the test run
    /// counts it.
    ///
    /// # Panics
    /// If `RATH_REQUIRE` names it.
    pub fn skip(self, why: impl fmt::Display) {
        let required = std::env::var(REQUIRE).unwrap_or_default();
        let name = self.name();
        assert!(!required.split(',').any(|one| one.trim() == name), "{REQUIRE} names {name}, but: {why}");
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("a test");
        let _ = writeln!(std::io::stdout(), "\nskipped: {test}: needs {name}: {why}");
    }
}
