//! Requirements of tests on the machine. A test whose requirement is not met reports that it is skipped. Where the
//! requirement must be met, as in CI, the test fails instead.

use std::fmt;
use std::io::Write as _;

/// The environment variable that lists the requirements that the machine must meet: `RATH_REQUIRE=sandbox,python,git`.
pub const REQUIRE: &str = "RATH_REQUIRE";

/// A requirement of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// Namespaces that isolate commands.
    Sandbox,
    /// `python3`.
    Python,
    /// `git`.
    Git,
    /// `npm`, for the provider mock.
    Npm,
    /// The tiny models with real weights.
    Models,
    /// Recorded answers of providers.
    Recordings,
    /// Running as root.
    Root,
    /// Running as an unprivileged user.
    PlainUser,
    /// Mounting overlays and small disks.
    Mounts,
    /// Several gigabytes of free disk space.
    Disk,
}

impl Requirement {
    /// The name in `RATH_REQUIRE`.
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

    /// Reports that this test is skipped because the requirement is not met. Prints the line to standard output even if
    /// the test passes, so that `cargo xtask test` counts it.
    ///
    /// # Panics
    /// If `RATH_REQUIRE` contains the requirement.
    pub fn skip(self, why: impl fmt::Display) {
        let required = std::env::var(REQUIRE).unwrap_or_default();
        let name = self.name();
        assert!(!required.split(',').any(|one| one.trim() == name), "{REQUIRE} contains {name}, but: {why}");
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("a test");
        let _ = writeln!(std::io::stdout(), "\nskipped: {test}: needs {name}: {why}");
    }
}
