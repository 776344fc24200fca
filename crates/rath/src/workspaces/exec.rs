//! Running a command, and recording it as a tool call with the versions before and after.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use rath_core::body::{CallOutcome, Effect, StreamChunk, ToolFinished, ToolStarted};
use rath_core::files::{Change, Changes, Version};
use rath_core::{Reference, Session, fresh_name};
use rath_sandbox::{Command, CommandEvent, CommandLine, Finished, Running, Stdin};
use serde_json::json;

use super::open_workspace::OpenWorkspace;
use super::setup::{setup_failed, stopped};
use super::{Result, Workspaces};
use crate::recorder::{CallRecord, evidence_of, note_order};

/// The tool name under which commands are recorded.
const EXEC: &str = "exec";

/// The tool name under which setup commands are recorded.
pub(super) const SETUP: &str = "setup";

/// The time limit of a setup command.
const SETUP_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// The result of a command, which is recorded.
#[derive(Clone, Debug)]
pub struct ExecReport {
    /// Its `tool_finished` record.
    pub record: Reference,
    /// The exit status, output and duration of the command.
    pub finished: Finished,
    /// The version of the files before the command.
    pub before: Version,
    /// The version after.
    pub after: Version,
    /// The changes between the two.
    pub changed: Vec<Change>,
    /// External edits that were found before the command started.
    pub outside: Vec<Change>,
    /// Whether the command was isolated from the machine.
    pub isolated: bool,
    /// Remarks, such as paths that could not be saved or changed while they were saved.
    pub remarks: Vec<String>,
}

impl Workspaces {
    /// Runs a command in the session's workspace. Calls `seen` with the output as it arrives.
    ///
    /// The call is durable before the command starts. If this process dies, the next call finds it open, kills its
    /// leftover processes and records its outcome as lost.
    pub async fn exec(
        &self,
        session: &mut Session,
        command: Command,
        seen: impl FnMut(&CommandEvent),
    ) -> Result<ExecReport> {
        self.exec_until(session, command, seen, std::future::pending()).await
    }

    /// As [`exec`](Self::exec), but kills the command when `stop` completes. The outcome is recorded as cancelled.
    pub async fn exec_until(
        &self,
        session: &mut Session,
        command: Command,
        seen: impl FnMut(&CommandEvent),
        stop: impl Future<Output = ()>,
    ) -> Result<ExecReport> {
        let mut stop = pin!(stop);
        self.prepare(session, stop.as_mut()).await?;
        self.call(session, EXEC, command, seen, stop).await
    }

    async fn call(
        &self,
        session: &mut Session,
        tool: &str,
        command: Command,
        mut seen: impl FnMut(&CommandEvent),
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<ExecReport> {
        let (mut opened, found) = self.open(session).await?;
        let sandbox = self.sandbox(session, &mut opened).await?;
        let isolated = sandbox.capabilities().isolated;
        // Effects outside the files are ruled out only by isolation.
        let effect = if isolated { Effect::Workspace } else { Effect::Irreversible };
        let started = ToolStarted::new(format!("exec-{}", fresh_name()), tool, effect);
        let call = CallRecord::start(
            session,
            ToolStarted {
                arguments: Some(describe(&command).into()),
                isolated: Some(isolated),
                workspace: Some(found.saved.version.clone()),
                outside: Changes::of(found.outside.clone()),
                ..started
            },
        )?;
        session.publish().await?;
        let before = found.saved.version;
        opened.note(&before)?;
        let mut running = match sandbox.exec(self.confined(session, &opened, command)).await {
            Ok(running) => running,
            Err(error) => {
                if error.code() == "sandbox-lost" {
                    self.lost_sandbox(session, &mut opened, error.to_string())?;
                }
                let failed = ToolFinished {
                    workspace: Some(before),
                    remarks: vec![error.to_string()],
                    ..call.ended(CallOutcome::Failed)
                };
                session.append(failed)?;
                session.publish().await?;
                self.keep_open(session, opened)?;
                return Err(error.into());
            }
        };
        let (mut stopped, mut order) = (false, Vec::new());
        while let Some(event) = next_or_stop(&mut running, stop.as_mut(), &mut stopped).await {
            note_order(&event, &mut order);
            seen(&event);
        }
        let finished = match running.finish().await {
            Ok(finished) => finished,
            Err(error) if error.code() == "sandbox-lost" => {
                self.lost_sandbox(session, &mut opened, error.to_string())?;
                self.close_lost_calls(session, &mut opened).await?;
                self.put_back(session, opened);
                return Err(error.into());
            }
            Err(error) => return Err(error.into()),
        };
        let mut ending = self.ending(&call, &finished, order).await?;
        let saved = match opened.workspace.save() {
            // A setup command must not change versioned files: the session's version is restored.
            Ok(mut saved) if tool == SETUP && !saved.version.same_files(&before) => {
                saved.version = opened.restore(Some(&saved.version), &before).await?.version;
                saved
            }
            Ok(saved) => saved,
            Err(error) => {
                // The outcome is recorded even though the files could not be saved.
                ending.remarks.push(format!("the files were not saved: {error}"));
                session.append(ending)?;
                session.publish().await?;
                return Err(error.into());
            }
        };
        let changed = opened.workspace.changes(&before, &saved.version)?;
        let mut remarks: Vec<String> =
            saved.skipped.iter().map(|skipped| format!("not versioned: {} ({})", skipped.path, skipped.why)).collect();
        remarks.extend(saved.unstable.iter().map(|path| format!("changed while it was saved: {path}")));
        remarks.truncate(100);
        ending.workspace = Some(saved.version.clone());
        ending.changed = Changes::of(changed.clone());
        ending.remarks.clone_from(&remarks);
        session.append(ending)?;
        session.publish().await?;
        let record = session.head();
        self.keep_open(session, opened)?;
        Ok(ExecReport {
            record,
            finished,
            before,
            after: saved.version,
            changed,
            outside: found.outside,
            isolated,
            remarks,
        })
    }

    /// Runs the setup command of a copy if it was not run yet: once for a shared layer, or in the copy itself.
    pub(super) async fn prepare(
        &self,
        session: &mut Session,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<()> {
        let placement = session.state().placement.as_ref().filter(|placement| !placement.in_place);
        let Some(line) = placement.and_then(|placement| placement.setup.clone()) else { return Ok(()) };
        // Creating the copy may run the setup command.
        let (opened, _) = or_stop(self.open(session), stop.as_mut()).await.unwrap_or_else(|| Err(stopped(&line)))?;
        let paths = opened.paths().clone();
        self.keep_open(session, opened)?;
        if paths.set_up_line().as_ref() == Some(&line) {
            return Ok(());
        }
        let command = Command::shell(&line).timeout(SETUP_TIMEOUT);
        let done = self.call(session, SETUP, command, |_| {}, stop).await?;
        match done.finished.ended.success() {
            true => paths.note_setup_line(&line),
            false => Err(setup_failed(&line, &done.finished)),
        }
    }

    /// Adds the environment for a copy. The copy is below the store's directory, which may be in a repository of the
    /// user: git must not find that repository.
    fn confined(&self, session: &Session, opened: &OpenWorkspace, command: Command) -> Command {
        let in_place = session.state().placement.as_ref().is_some_and(|placement| placement.in_place);
        let is_directory = !in_place && opened.workspace.overlay().is_none();
        match opened.workspace.directory().parent().filter(|_| is_directory) {
            Some(parent) => command.env("GIT_CEILING_DIRECTORIES", parent),
            None => command,
        }
    }

    /// The `tool_finished` body of a command, without its files.
    pub(super) async fn ending(
        &self,
        call: &CallRecord,
        finished: &Finished,
        order: Vec<StreamChunk>,
    ) -> Result<ToolFinished> {
        let outcome = match finished {
            Finished { timed_out: true, .. } => CallOutcome::TimedOut,
            Finished { killed: true, .. } => CallOutcome::Cancelled,
            Finished { ended, .. } if ended.success() => CallOutcome::Done,
            _ => CallOutcome::Failed,
        };
        let duration_us = Some(finished.duration.as_micros() as u64);
        // No model is shown the output: the streams are all of it.
        let ending = call.end_of_command(&*self.store, outcome, evidence_of(finished.clone(), order)).await?;
        Ok(ToolFinished { duration_us, ..ending })
    }
}

/// The output of a future, or `None` if `stop` completes first.
async fn or_stop<T>(doing: impl Future<Output = T>, mut stop: Pin<&mut impl Future<Output = ()>>) -> Option<T> {
    let mut doing = pin!(doing);
    poll_fn(|context| match stop.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => doing.as_mut().poll(context).map(Some),
    })
    .await
}

/// The next event of the command. Kills the command when `stop` completes.
async fn next_or_stop(
    running: &mut Running,
    mut stop: Pin<&mut impl Future<Output = ()>>,
    stopped: &mut bool,
) -> Option<CommandEvent> {
    poll_fn(|context| {
        if !*stopped && stop.as_mut().poll(context).is_ready() {
            *stopped = true;
            running.stop();
        }
        // Recreating the future on every poll loses nothing: undelivered events stay in `running`.
        pin!(running.next()).poll(context)
    })
    .await
}

/// The command as JSON for the record. Values of variables are left out, because they may be secrets.
fn describe(command: &Command) -> String {
    let mut line = match &command.program {
        CommandLine::Argv(argv) => {
            let argv: Vec<_> = argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            json!({ "argv": argv })
        }
        CommandLine::Shell(shell) => json!({ "shell": shell }),
    };
    if !command.cwd.as_os_str().is_empty() {
        line["cwd"] = json!(command.cwd.to_string_lossy());
    }
    if !command.env.is_empty() {
        let names: Vec<_> = command.env.iter().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
        line["env"] = json!(names);
    }
    if let Stdin::Bytes(bytes) = &command.stdin {
        line["stdin_bytes"] = json!(bytes.len());
    }
    if let Some(timeout) = command.timeout {
        line["timeout_s"] = json!(timeout.as_secs_f64());
    }
    line.to_string()
}
