//! The tool `shell`.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::time::Duration;

use rath_core::body::{BackgroundStatus, CallOutcome, StreamChunk};
use rath_core::{Call, Evidence, ToolOutcome};
use rath_macros::tool;
use rath_sandbox::{CommandEvent, ExitStatus, Finished, OUTPUT_LIMIT, Running};

use super::background::{PollResult, describe_background, status_of};
use super::cut::{MOST_SHOWN, middle};
use super::tool_workspace::ToolWorkspace;
use crate::recorder::{evidence_of, note_order};
use crate::toolkit::Resource;

/// The default time limit of a command.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The longest time limit of a command.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Runs a command with `/bin/sh` in the workspace, and shows its output. Each call is a new shell: `cd` and variables
/// are not kept. Give exactly one of `command`, `poll` and `kill`.
#[tool(effect = "workspace", paths = "")]
pub async fn shell(
    /// The command line.
    command: Option<String>,
    /// Stop the command after this many seconds. Default: 120; in the background one day.
    timeout_s: Option<u64>,
    /// Run the command in the background, e.g. a server. The result contains its id.
    background: Option<bool>,
    /// The id of a background command, to show its new output and whether it has ended. Or the id of a truncated
    /// output, to show the next part of the omitted text.
    poll: Option<String>,
    /// The id of a background command to stop.
    kill: Option<String>,
    call: &Call,
    workspace: Resource<ToolWorkspace>,
) -> ToolOutcome {
    let (mut text, failed, mut evidence) = match (command, poll, kill) {
        (Some(line), None, None) => run(&line, timeout_s, background == Some(true), call, &workspace).await,
        (None, Some(id), None) => match workspace.truncated.read_on(&id, MOST_SHOWN) {
            Some(Ok(text)) => (text, false, Evidence::default()),
            Some(Err(why)) => failed(why),
            None => poll_reply(&id, workspace.background.poll(&id), &workspace),
        },
        (None, None, Some(id)) => poll_reply(&id, workspace.background.kill(&id).await, &workspace),
        _ => failed("give exactly one of `command`, `poll` and `kill`"),
    };
    for gone in workspace.take_gone() {
        let words = describe_background(&gone);
        push_line(&mut text, &format!("[{words}; start it again if you need it]"));
        evidence.remarks.push(words);
        evidence.background.push(gone);
    }
    ToolOutcome { failed, evidence: Some(Box::new(evidence)), ..ToolOutcome::done(text) }
}

/// The text that the model is shown, whether the call failed, and the evidence to record.
type ShellResult = (String, bool, Evidence);

fn failed(why: impl ToString) -> ShellResult {
    (why.to_string(), true, Evidence::default())
}

/// Runs a command to its end, or starts it in the background.
async fn run(
    line: &str,
    timeout_s: Option<u64>,
    in_background: bool,
    call: &Call,
    workspace: &ToolWorkspace,
) -> ShellResult {
    let timeout = timeout_s.map(Duration::from_secs).unwrap_or(if in_background { LONGEST } else { TIMEOUT });
    let timeout = timeout.clamp(Duration::from_secs(1), LONGEST);
    let running = match workspace.sandbox().exec(workspace.shell(line).timeout(timeout)).await {
        Ok(running) => running,
        Err(error) => return failed(error),
    };
    if in_background {
        let id = workspace.background.keep(&call.id, running);
        let text = format!("Running as {id}. Show its output with poll \"{id}\", stop it with kill \"{id}\".");
        let running = status_of(&id, BackgroundStatus::Running);
        let remarks = vec![describe_background(&running)];
        return (text, false, Evidence { background: vec![running], remarks, ..Evidence::default() });
    }
    watch(running, call, timeout, workspace).await
}

/// Waits for the end of a command. Kills the command when the call is cancelled.
async fn watch(mut running: Running, call: &Call, timeout: Duration, workspace: &ToolWorkspace) -> ShellResult {
    let (mut both, mut order) = (Vec::new(), Vec::new());
    let mut stop = pin!(call.cancel.cancelled());
    let mut stopped = false;
    loop {
        let event = poll_fn(|context| {
            if !stopped && stop.as_mut().poll(context).is_ready() {
                stopped = true;
                running.stop();
            }
            pin!(running.next()).poll(context)
        });
        match event.await {
            Some(event) => {
                note_order(&event, &mut order);
                if let CommandEvent::Output { bytes, .. } = event {
                    both.extend(bytes);
                }
            }
            None => break,
        }
    }
    match running.finish().await {
        Ok(finished) => reply(finished, &both, order, timeout, workspace),
        Err(error) => failed(error),
    }
}

fn reply(
    finished: Finished,
    both: &[u8],
    order: Vec<StreamChunk>,
    timeout: Duration,
    workspace: &ToolWorkspace,
) -> ShellResult {
    let (mut text, rest_ids) = shortened(both, workspace);
    if finished.stdout.cut || finished.stderr.cut {
        push_line(&mut text, &format!("[only the first {OUTPUT_LIMIT} bytes of each stream were kept]"));
    }
    let mut outcome = None;
    if finished.timed_out {
        outcome = Some(CallOutcome::TimedOut);
        push_line(&mut text, &format!("stopped: it took longer than {} s; give a longer timeout_s", timeout.as_secs()));
    } else if finished.killed {
        outcome = Some(CallOutcome::Cancelled);
        push_line(&mut text, "stopped by request");
    } else if !finished.ended.success() {
        push_line(&mut text, &ending(finished.ended));
    }
    if let Some(limit) = &finished.limit_exceeded {
        push_line(&mut text, &format!("stopped at a limit: {limit}"));
    }
    if finished.killed_orphans > 0 {
        let many = finished.killed_orphans;
        push_line(
            &mut text,
            &format!("{many} leftover processes were stopped; use `background` to keep a process running"),
        );
    }
    if text.is_empty() {
        text.push_str("Exit code 0, no output.");
    }
    let failed = finished.timed_out || finished.killed || !finished.ended.success();
    (text, failed, with_rest(Evidence { outcome, ..evidence_of(finished, order) }, rest_ids))
}

/// Truncates an output to what a model is shown. Returns also the id for reading the rest.
fn shortened(output: &[u8], workspace: &ToolWorkspace) -> (String, Option<String>) {
    let mut rest_ids = None;
    let text = middle(&String::from_utf8_lossy(output), MOST_SHOWN, |left_out| {
        let id = workspace.truncated.keep(left_out);
        let advice = format!("To see them, poll \"{id}\"");
        rest_ids = Some(id);
        advice
    });
    (text, rest_ids)
}

fn with_rest(mut evidence: Evidence, rest_ids: Option<String>) -> Evidence {
    evidence.remarks.extend(rest_ids.as_ref().map(|id| format!("{id} has the omitted output")));
    evidence.rest_ids.extend(rest_ids);
    evidence
}

/// The result of polling or killing a background command.
fn poll_reply(id: &str, update: Result<PollResult, String>, workspace: &ToolWorkspace) -> ShellResult {
    let update = match update {
        Ok(update) => update,
        Err(why) => return failed(why),
    };
    let (mut text, rest_ids) = shortened(&update.output, workspace);
    if update.cut {
        let advice = "later output is lost; start the command with `> FILE 2>&1` to keep all of it";
        push_line(&mut text, &format!("[only the first {OUTPUT_LIMIT} bytes of each stream are kept: {advice}]"));
    }
    let id = id.trim();
    let ended = update.ended.is_some().then(|| status_of(id, BackgroundStatus::Ended));
    match update.ended {
        None if text.is_empty() => text = format!("{id} is still running, with no new output."),
        None => push_line(&mut text, &format!("{id} is still running.")),
        Some(Ok(ended)) => push_line(&mut text, &format!("{id} has ended: {}.", ending(ended))),
        Some(Err(why)) => push_line(&mut text, &format!("{id} was lost: {why}")),
    }
    let remarks = ended.iter().map(describe_background).collect();
    let background = ended.into_iter().collect();
    (text, false, with_rest(Evidence { remarks, background, ..Evidence::default() }, rest_ids))
}

fn ending(ended: ExitStatus) -> String {
    match ended {
        ExitStatus::Exited(code) => format!("exit code {code}"),
        ExitStatus::Signalled { signal, .. } => format!("killed by signal {signal}"),
    }
}

/// Appends a line.
fn push_line(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
}
