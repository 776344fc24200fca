//! A command in the session's sandbox.

use rath_core::{Error, ErrorKind, Result, Session};
use rath_sandbox::{Command as SandboxCommand, ExitStatus};

use super::{Validation, Validator};
use crate::workspaces::{self, ExecReport, Workspaces};

/// How much of a failed command's output becomes the reason: the last 2,000 characters.
const REASON_LENGTH: usize = 2_000;

/// Accepts the work if a shell command exits with code 0 in the session's workspace, with score 1. Otherwise the score is
/// 0, and the reason is the end of the command's output.
pub fn command(line: impl Into<String>) -> CommandCheck {
    CommandCheck { line: line.into() }
}

/// See [`command`].
#[derive(Clone, Debug)]
pub struct CommandCheck {
    line: String,
}

impl Validator for CommandCheck {
    fn name(&self) -> String {
        self.line.clone()
    }

    fn can_resume(&self) -> bool {
        false
    }

    async fn validate(&self, mut session: Session) -> Result<(Session, Validation)> {
        let workspaces = match session.resources().get::<Workspaces>() {
            Ok(workspaces) => workspaces,
            Err(missing) => return Err(Error::workflow(missing, session)),
        };
        let cancel = session.cancel_token();
        let command = SandboxCommand::shell(&self.line);
        match workspaces.exec_until(&mut session, command, |_| {}, cancel.cancelled()).await {
            Ok(_) if cancel.is_cancelled() => {
                let why = cancel.why().unwrap_or_default().to_string();
                Err(Error::new(ErrorKind::Cancelled { why }, vec![session]))
            }
            Ok(report) => Ok((session, validation_of(&report))),
            Err(workspaces::Error::Session(error)) => Err(error.with_sessions(vec![session])),
            Err(error) => Err(Error::workflow(error, session)),
        }
    }
}

fn validation_of(report: &ExecReport) -> Validation {
    let finished = &report.finished;
    if finished.ended.success() && !finished.timed_out && finished.limit_exceeded.is_none() {
        return Validation::accept().score(1.0);
    }
    let ended = match finished.ended {
        _ if finished.timed_out => "timed out".to_owned(),
        ExitStatus::Exited(code) => format!("exit code {code}"),
        ExitStatus::Signalled { signal, .. } => format!("killed by signal {signal}"),
    };
    let output = [&finished.stdout.bytes[..], &finished.stderr.bytes[..]].concat();
    let output = String::from_utf8_lossy(&output);
    let output = output.trim();
    let start = output.char_indices().rev().nth(REASON_LENGTH - 1).map_or(0, |(at, _)| at);
    match &output[start..] {
        "" => Validation::reject(format!("{ended}, no output")).score(0.0),
        output => Validation::reject(format!("{ended}\n{output}")).score(0.0),
    }
}
