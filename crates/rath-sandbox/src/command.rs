//! What a sandbox is asked to run.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How much of each output stream is kept unless the command says otherwise.
pub const OUTPUT_LIMIT: u64 = 16 << 20;

/// How long a command may take to end by itself when it is stopped, unless it says otherwise.
pub const GRACE: Duration = Duration::from_secs(2);

/// A command, and the bounds it runs in.
#[derive(Clone, Debug)]
pub struct Command {
    /// What runs.
    pub program: Program,
    /// Variables on top of the sandbox's: set, or removed where there is no value. A later one wins.
    pub env: Vec<(OsString, Option<OsString>)>,
    /// Begin with an empty environment instead of the sandbox's.
    pub clean_env: bool,
    /// Where it runs, relative to the workspace. Empty for the workspace itself.
    pub cwd: PathBuf,
    /// What it reads.
    pub stdin: Stdin,
    /// A terminal that becomes its own, in place of the three streams.
    pub terminal: Option<Arc<OwnedFd>>,
    /// The other end of that terminal, from which its output is read.
    pub shown_by: Option<Arc<OwnedFd>>,
    /// Stop it after this long.
    pub timeout: Option<Duration>,
    /// When it is stopped: how long it may take between the request to end (SIGTERM) and the end (SIGKILL).
    pub grace: Duration,
    /// How many bytes of each stream are kept. The rest is read and counted, and the cut shows.
    pub output_limit: u64,
}

/// What runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A program with its arguments; the first one is its name.
    Argv(Vec<OsString>),
    /// A line for `/bin/sh -c`; never a login shell.
    Shell(String),
}

/// What a command reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stdin {
    /// Nothing.
    #[default]
    Null,
    /// These bytes, then the end.
    Bytes(Vec<u8>),
    /// What this process reads.
    Inherit,
}

impl Command {
    /// Runs a program.
    pub fn argv<A: Into<OsString>>(argv: impl IntoIterator<Item = A>) -> Self {
        Self::new(Program::Argv(argv.into_iter().map(Into::into).collect()))
    }

    /// Runs a shell line.
    pub fn shell(line: impl Into<String>) -> Self {
        Self::new(Program::Shell(line.into()))
    }

    fn new(program: Program) -> Self {
        Self {
            program,
            env: Vec::new(),
            clean_env: false,
            cwd: PathBuf::new(),
            stdin: Stdin::Null,
            terminal: None,
            shown_by: None,
            timeout: None,
            grace: GRACE,
            output_limit: OUTPUT_LIMIT,
        }
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), Some(value.into())));
        self
    }

    /// Removes a variable of the sandbox.
    #[must_use]
    pub fn unset(mut self, name: impl Into<OsString>) -> Self {
        self.env.push((name.into(), None));
        self
    }

    /// Begins with an empty environment.
    #[must_use]
    pub fn clean_env(mut self) -> Self {
        self.clean_env = true;
        self
    }

    /// Runs in a directory of the workspace.
    #[must_use]
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = cwd.into();
        self
    }

    /// Gives it something to read.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Stdin::Bytes(bytes.into());
        self
    }

    /// Gives it a terminal. It runs without a time limit of the sandbox's.
    #[must_use]
    pub fn terminal(mut self, terminal: impl Into<Arc<OwnedFd>>) -> Self {
        self.terminal = Some(terminal.into());
        self
    }

    /// Reads what the terminal shows from its other end, as standard output.
    #[must_use]
    pub fn shown_by(mut self, other_end: impl Into<Arc<OwnedFd>>) -> Self {
        self.shown_by = Some(other_end.into());
        self
    }

    /// Stops it after this long.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets how long it may take to end when it is stopped.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Keeps at most this many bytes of each stream.
    #[must_use]
    pub fn output_limit(mut self, limit: u64) -> Self {
        self.output_limit = limit;
        self
    }
}
