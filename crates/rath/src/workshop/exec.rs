//! Running a command: a tool call with the files before and after.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use rath_core::body::{CallOutcome, Effect, Stretch, ToolFinished, ToolStarted};
use rath_core::files::{Change, Changes, Version};
use rath_core::{Reference, Session, fresh_name};
use rath_sandbox::{Command, Event, Finished, Program, Running, Stdin};
use serde_json::json;

use super::setup::{setup_failed, stopped};
use super::site::Site;
use super::{Result, Workshop};
use crate::recorder::{CallRecord, evidence_of, note_order};

/// The tool that a command is on the record.
const EXEC: &str = "exec";

/// The tool that a setup is.
pub(super) const SETUP: &str = "setup";

/// How long a setup may take.
const NO_HURRY: Duration = Duration::from_secs(24 * 3600);

/// A call that has ended, on the record.
#[derive(Clone, Debug)]
pub struct Done {
    /// Its `tool_finished`.
    pub record: Reference,
    /// How the command ended.
    pub finished: Finished,
    /// The files before.
    pub before: Version,
    /// The files after.
    pub after: Version,
    /// What it changed.
    pub changed: Vec<Change>,
    /// What somebody else had changed before it began.
    pub outside: Vec<Change>,
    /// Whether it was kept away from the machine.
    pub isolated: bool,
    /// What should be known: paths that could not be saved, files that would not hold still.
    pub remarks: Vec<String>,
}

impl Workshop {
    /// Runs a command where the session works. `seen` is shown the output as it comes.
    ///
    /// The call is durable before the command starts. If this process dies, the next call finds it open, stops what
    /// is left of it and records that nobody saw it end.
    pub async fn exec(&self, session: &mut Session, command: Command, seen: impl FnMut(&Event)) -> Result<Done> {
        self.exec_until(session, command, seen, std::future::pending()).await
    }

    /// As [`exec`](Self::exec); when `stop` comes first the command is stopped, and that is recorded.
    pub async fn exec_until(
        &self,
        session: &mut Session,
        command: Command,
        seen: impl FnMut(&Event),
        stop: impl Future<Output = ()>,
    ) -> Result<Done> {
        let mut stop = pin!(stop);
        self.make_ready(session, stop.as_mut()).await?;
        self.call(session, EXEC, command, seen, stop).await
    }

    async fn call(
        &self,
        session: &mut Session,
        tool: &str,
        command: Command,
        mut seen: impl FnMut(&Event),
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Done> {
        let (mut site, found) = self.enter(session).await?;
        let sandbox = self.sandbox(session, &mut site).await?;
        let isolated = sandbox.capabilities().isolated;
        // What a command does outside the files can be taken back only where it cannot get there.
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
        site.note(&before)?;
        let mut running = match sandbox.exec(self.confined(session, &site, command)).await {
            Ok(running) => running,
            Err(error) => {
                if error.code() == "sandbox-lost" {
                    self.lost_sandbox(session, &mut site, error.to_string())?;
                }
                let failed = ToolFinished {
                    workspace: Some(before),
                    remarks: vec![error.to_string()],
                    ..call.ended(CallOutcome::Failed)
                };
                session.append(failed)?;
                session.publish().await?;
                self.keep(session, site)?;
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
                self.lost_sandbox(session, &mut site, error.to_string())?;
                self.close_lost_calls(session, &mut site).await?;
                self.open_again(session, site);
                return Err(error.into());
            }
            Err(error) => return Err(error.into()),
        };
        let mut ending = self.ending(&call, &finished, order).await?;
        let saved = match site.workspace.save() {
            // A session begins with its version, whatever its setup did to the files.
            Ok(mut saved) if tool == SETUP && !saved.version.same_files(&before) => {
                saved.version = site.restore(Some(&saved.version), &before).await?.version;
                saved
            }
            Ok(saved) => saved,
            Err(error) => {
                // How it ended is known even where its files cannot be.
                ending.remarks.push(format!("the files were not saved: {error}"));
                session.append(ending)?;
                session.publish().await?;
                return Err(error.into());
            }
        };
        let changed = site.workspace.changes(&before, &saved.version)?;
        let mut remarks: Vec<String> =
            saved.skipped.iter().map(|skipped| format!("not versioned: {} ({})", skipped.path, skipped.why)).collect();
        remarks.extend(saved.restless.iter().map(|path| format!("changed while it was saved: {path}")));
        remarks.truncate(100);
        ending.workspace = Some(saved.version.clone());
        ending.changed = Changes::of(changed.clone());
        ending.remarks.clone_from(&remarks);
        session.append(ending)?;
        session.publish().await?;
        let record = session.head();
        self.keep(session, site)?;
        Ok(Done { record, finished, before, after: saved.version, changed, outside: found.outside, isolated, remarks })
    }

    /// Has a copy made ready for work before the first command there: by a layer that others share, or by running the
    /// line in it.
    pub(super) async fn make_ready(
        &self,
        session: &mut Session,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<()> {
        let placement = session.state().placement.as_ref().filter(|placement| !placement.in_place);
        let Some(line) = placement.and_then(|placement| placement.setup.clone()) else { return Ok(()) };
        // Making the copy may run the line.
        let (site, _) = or_stop(self.enter(session), stop.as_mut()).await.unwrap_or_else(|| Err(stopped(&line)))?;
        let paths = site.paths().clone();
        self.keep(session, site)?;
        if paths.set_up().as_ref() == Some(&line) {
            return Ok(());
        }
        let command = Command::shell(&line).timeout(NO_HURRY);
        let done = self.call(session, SETUP, command, |_| {}, stop).await?;
        match done.finished.ended.well() {
            true => paths.note_set_up(&line),
            false => Err(setup_failed(&line, &done.finished)),
        }
    }

    /// The command as it may run where the session works. A copy lies below the directory of its store, which may be a
    /// repository of the user's: git must not take the copy for a part of it.
    fn confined(&self, session: &Session, site: &Site, command: Command) -> Command {
        let in_place = session.state().placement.as_ref().is_some_and(|placement| placement.in_place);
        let is_directory = !in_place && site.workspace.overlay().is_none();
        match site.workspace.directory().parent().filter(|_| is_directory) {
            Some(parent) => command.env("GIT_CEILING_DIRECTORIES", parent),
            None => command,
        }
    }

    /// What is to be recorded of a command that has ended, but for its files.
    pub(super) async fn ending(
        &self,
        call: &CallRecord,
        finished: &Finished,
        order: Vec<Stretch>,
    ) -> Result<ToolFinished> {
        let outcome = match finished {
            Finished { timed_out: true, .. } => CallOutcome::TimedOut,
            Finished { killed: true, .. } => CallOutcome::Cancelled,
            Finished { ended, .. } if ended.well() => CallOutcome::Done,
            _ => CallOutcome::Failed,
        };
        let duration_us = Some(finished.duration.as_micros() as u64);
        // Nobody is shown anything: the streams are the whole output.
        let ending = call.end_of_command(&*self.store, outcome, evidence_of(finished.clone(), order)).await?;
        Ok(ToolFinished { duration_us, ..ending })
    }
}

/// What something comes to, or nothing when `stop` comes first.
async fn or_stop<T>(doing: impl Future<Output = T>, mut stop: Pin<&mut impl Future<Output = ()>>) -> Option<T> {
    let mut doing = pin!(doing);
    poll_fn(|context| match stop.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => doing.as_mut().poll(context).map(Some),
    })
    .await
}

/// The next thing the command does; stops it when `stop` comes.
async fn next_or_stop(
    running: &mut Running,
    mut stop: Pin<&mut impl Future<Output = ()>>,
    stopped: &mut bool,
) -> Option<Event> {
    poll_fn(|context| {
        if !*stopped && stop.as_mut().poll(context).is_ready() {
            *stopped = true;
            running.kill();
        }
        // Asking anew at every wake-up loses nothing: what was said and not taken stays.
        pin!(running.next()).poll(context)
    })
    .await
}

/// The command as it is recorded. Values of variables are not: they may be secrets.
fn describe(command: &Command) -> String {
    let mut line = match &command.program {
        Program::Argv(argv) => {
            let argv: Vec<_> = argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            json!({ "argv": argv })
        }
        Program::Shell(shell) => json!({ "shell": shell }),
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
