//! Commands.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::{GRACE, OUTPUT_LIMIT};

/// A command to run in a sandbox.
#[derive(Clone, Debug)]
pub struct Command {
    /// The program or the shell line.
    pub program: CommandLine,
    /// Changes to the sandbox's environment variables: `Some` sets a variable, `None` removes it. A later entry wins.
    pub env: Vec<(OsString, Option<OsString>)>,
    /// Start with an empty environment instead of the sandbox's.
    pub clean_env: bool,
    /// The working directory, relative to the workspace. Empty for the workspace itself.
    pub cwd: PathBuf,
    /// Standard input.
    pub stdin: Stdin,
    /// A pseudoterminal that becomes the controlling terminal of the command and replaces its three standard streams.
    pub terminal: Option<Arc<OwnedFd>>,
    /// The master end of that pseudoterminal, from which the output is captured.
    pub pty_master: Option<Arc<OwnedFd>>,
    /// Stop the command after this time. `None`: the sandbox's limit.
    pub timeout: Option<Duration>,
    /// Time between SIGTERM and SIGKILL when the command is stopped.
    pub grace: Duration,
    /// Number of bytes of each output stream that are kept. Further output is read, counted and dropped: see
    /// [`CapturedOutput`](crate::CapturedOutput).
    pub output_limit: u64,
}

/// What a command runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandLine {
    /// The program name, followed by the arguments.
    Argv(Vec<OsString>),
    /// A line for `/bin/sh -c`. The shell is not a login shell.
    Shell(String),
}

/// Standard input of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stdin {
    /// Empty (`/dev/null`).
    #[default]
    Null,
    /// These bytes, then end of file.
    Bytes(Vec<u8>),
    /// The standard input of this process.
    Inherit,
}

impl Command {
    /// Runs a program.
    pub fn argv<A: Into<OsString>>(argv: impl IntoIterator<Item = A>) -> Self {
        Self::new(CommandLine::Argv(argv.into_iter().map(Into::into).collect()))
    }

    /// Runs a shell line.
    pub fn shell(line: impl Into<String>) -> Self {
        Self::new(CommandLine::Shell(line.into()))
    }

    fn new(program: CommandLine) -> Self {
        Self {
            program,
            env: Vec::new(),
            clean_env: false,
            cwd: PathBuf::new(),
            stdin: Stdin::Null,
            terminal: None,
            pty_master: None,
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

    /// Removes a variable.
    #[must_use]
    pub fn unset(mut self, name: impl Into<OsString>) -> Self {
        self.env.push((name.into(), None));
        self
    }

    /// Starts with an empty environment.
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

    /// Sets the bytes of standard input.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Stdin::Bytes(bytes.into());
        self
    }

    /// Runs the command on a pseudoterminal. The sandbox's time limit does not apply.
    #[must_use]
    pub fn terminal(mut self, terminal: impl Into<Arc<OwnedFd>>) -> Self {
        self.terminal = Some(terminal.into());
        self
    }

    /// Captures the output from the master end of the pseudoterminal, as standard output.
    #[must_use]
    pub fn pty_master(mut self, other_end: impl Into<Arc<OwnedFd>>) -> Self {
        self.pty_master = Some(other_end.into());
        self
    }

    /// Stops the command after this time.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the time between SIGTERM and SIGKILL when the command is stopped.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Keeps at most this number of bytes of each output stream.
    #[must_use]
    pub fn output_limit(mut self, limit: u64) -> Self {
        self.output_limit = limit;
        self
    }
}
