//! Running a command: a tool call with the files before and after.

use std::future::poll_fn;
use std::pin::{Pin, pin};

use rath_core::body::{CallOutcome, Effect, Exit, Output, Stretch, ToolFinished, ToolStarted};
use rath_core::files::{Change, Changes, Version};
use rath_core::{Blob, INLINE_LIMIT, Reference, Session, fresh_name};
use rath_sandbox::{Captured, Command, Ended, Event, Finished, Program, Running, Stdin, Stream};
use serde_json::json;

use super::site::Site;
use super::{Result, Workshop};

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
        mut seen: impl FnMut(&Event),
        stop: impl Future<Output = ()>,
    ) -> Result<Done> {
        let (mut site, found) = self.enter(session).await?;
        let sandbox = self.sandbox(session, &mut site).await?;
        let isolated = sandbox.capabilities().isolated;
        let call = format!("exec-{}", fresh_name());
        session.append(ToolStarted {
            call: call.clone(),
            tool: "exec".into(),
            arguments: Some(describe(&command).into()),
            // What a command does outside the files can be taken back only where it cannot get there.
            effect: if isolated { Effect::Workspace } else { Effect::Irreversible },
            isolated: Some(isolated),
            workspace: Some(found.saved.version.clone()),
            outside: Changes::of(found.outside.clone()),
        })?;
        session.publish().await?;
        let before = found.saved.version;
        site.note(&before)?;
        let mut running = match sandbox.exec(self.confined(session, &site, command)).await {
            Ok(running) => running,
            Err(error) => {
                let failed = ToolFinished {
                    isolated: Some(isolated),
                    workspace: Some(before),
                    remarks: vec![error.to_string()],
                    ..ToolFinished::new(call, CallOutcome::Failed)
                };
                session.append(failed)?;
                session.publish().await?;
                self.keep(session, site)?;
                return Err(error.into());
            }
        };
        let (mut stop, mut stopped, mut order) = (pin!(stop), false, Vec::new());
        while let Some(event) = next_or_stop(&mut running, stop.as_mut(), &mut stopped).await {
            note_order(&event, &mut order);
            seen(&event);
        }
        let finished = running.finish().await?;
        let mut ending = self.ending(call, &finished, order).await?;
        ending.isolated = Some(isolated);
        let saved = match site.workspace.save() {
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

    /// The command as it may run where the session works. A copy lies below the directory of its store, which may be a
    /// repository of the user's: git must not take the copy for a part of it.
    fn confined(&self, session: &Session, site: &Site, command: Command) -> Command {
        let in_place = session.state().placement.as_ref().is_some_and(|placement| placement.in_place);
        match site.workspace.directory().parent().filter(|_| !in_place) {
            Some(parent) => command.env("GIT_CEILING_DIRECTORIES", parent),
            None => command,
        }
    }

    /// What is to be recorded of a command that has ended, but for its files.
    async fn ending(&self, call: String, finished: &Finished, order: Vec<Stretch>) -> Result<ToolFinished> {
        let outcome = match finished {
            Finished { timed_out: true, .. } => CallOutcome::TimedOut,
            Finished { killed: true, .. } => CallOutcome::Cancelled,
            Finished { ended, .. } if ended.well() => CallOutcome::Done,
            _ => CallOutcome::Failed,
        };
        let exit = match finished.ended {
            Ended::Exited(code) => Exit::Code(code),
            Ended::Signalled { signal, .. } => Exit::Signal(signal),
        };
        let mut output = Vec::new();
        for (stream, captured) in [("stdout", &finished.stdout), ("stderr", &finished.stderr)] {
            output.extend(self.output(stream, captured).await?);
        }
        Ok(ToolFinished {
            exit: Some(exit),
            // With one stream there is nothing to tell.
            order: if output.len() > 1 { order } else { Vec::new() },
            output,
            duration_us: Some(finished.duration.as_micros() as u64),
            left_behind: u64::from(finished.escaped),
            ..ToolFinished::new(call, outcome)
        })
    }

    /// What a stream held: text in place while it is short, else a blob with the bytes.
    async fn output(&self, stream: &str, captured: &Captured) -> Result<Option<Output>> {
        if captured.total == 0 {
            return Ok(None);
        }
        let (mut text, mut blob) = (None, None);
        match std::str::from_utf8(&captured.bytes) {
            Ok(short) if short.len() <= INLINE_LIMIT => text = Some(short.to_owned()),
            _ => {
                let media_type = match std::str::from_utf8(&captured.bytes) {
                    Ok(_) => "text/plain; charset=utf-8",
                    Err(_) => "application/octet-stream",
                };
                let bytes = Blob::new(captured.bytes.as_slice(), media_type);
                blob = Some(bytes.reference.clone());
                self.store.blob_put(vec![bytes]).await?;
            }
        }
        let cut_from = captured.cut.then_some(captured.total);
        Ok(Some(Output { stream: stream.into(), text, blob, cut_from }))
    }
}

/// How many stretches are kept; a command that changes between its streams more often is known by its streams alone.
const MOST_STRETCHES: usize = 1000;

/// Notes in which order the streams were written, as far as it was seen.
fn note_order(event: &Event, order: &mut Vec<Stretch>) {
    let Event::Output { stream, bytes } = event else { return };
    let (stream, bytes) = (if *stream == Stream::Stdout { "stdout" } else { "stderr" }, bytes.len() as u64);
    if let Some(last) = order.last_mut().filter(|last| last.stream == stream) {
        last.bytes += bytes;
    } else if order.len() < MOST_STRETCHES {
        order.push(Stretch { stream: stream.into(), bytes });
    }
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
