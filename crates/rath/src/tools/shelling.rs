//! `shell`: a command.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::time::Duration;

use rath_core::body::{BackgroundStatus, CallOutcome, Stretch};
use rath_core::{Call, Evidence, ToolOutcome};
use rath_macros::tool;
use rath_sandbox::{Ended, Event, Finished, OUTPUT_LIMIT, Running};

use super::background::{News, in_words, status_of};
use super::cut::{MOST_SHOWN, middle};
use super::desk::Desk;
use crate::recorder::{evidence_of, note_order};
use crate::toolkit::State;

/// How long a command may take unless the model says otherwise.
const TIMEOUT: Duration = Duration::from_secs(120);

/// How long any command may take.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Runs a command with `/bin/sh` in the workspace, and shows what it puts out. Each call is a shell of its own: `cd` and
/// variables do not last. Give exactly one of `command`, `poll` and `kill`.
#[tool(effect = "workspace", paths = "")]
pub async fn shell(
    /// The command line.
    command: Option<String>,
    /// Stop it after this many seconds. 120 if not given; in the background there is no such limit.
    timeout_s: Option<u64>,
    /// Let it run on in the background, e.g. a server. The reply has its id.
    background: Option<bool>,
    /// The id of a command in the background: show what it put out since you last looked, and whether it has ended. The id
    /// of an output that was cut: show the next part of what was left out.
    poll: Option<String>,
    /// The id of a command in the background: stop it.
    kill: Option<String>,
    call: &Call,
    desk: State<Desk>,
) -> ToolOutcome {
    let (mut text, failed, mut evidence) = match (command, poll, kill) {
        (Some(line), None, None) => run(&line, timeout_s, background == Some(true), call, &desk).await,
        (None, Some(id), None) => match desk.left_out.read_on(&id, MOST_SHOWN) {
            Some(Ok(text)) => (text, false, Evidence::default()),
            Some(Err(why)) => failed(why),
            None => told(&id, desk.background.poll(&id), &desk),
        },
        (None, None, Some(id)) => told(&id, desk.background.kill(&id).await, &desk),
        _ => failed("give exactly one of `command`, `poll` and `kill`"),
    };
    for gone in desk.take_gone() {
        let words = in_words(&gone);
        say(&mut text, &format!("[{words}; start it again if you need it]"));
        evidence.remarks.push(words);
        evidence.background.push(gone);
    }
    ToolOutcome { failed, evidence: Some(Box::new(evidence)), ..ToolOutcome::done(text) }
}

/// What the model is shown, whether the call failed, and what is recorded besides.
type Said = (String, bool, Evidence);

fn failed(why: impl ToString) -> Said {
    (why.to_string(), true, Evidence::default())
}

/// Runs a command to its end, or lets it run on.
async fn run(line: &str, timeout_s: Option<u64>, in_background: bool, call: &Call, desk: &Desk) -> Said {
    let timeout = timeout_s.map(Duration::from_secs).unwrap_or(if in_background { LONGEST } else { TIMEOUT });
    let timeout = timeout.clamp(Duration::from_secs(1), LONGEST);
    let running = match desk.sandbox().exec(desk.shell(line).timeout(timeout)).await {
        Ok(running) => running,
        Err(error) => return failed(error),
    };
    if in_background {
        let id = desk.background.keep(&call.id, running);
        let text = format!("It runs as {id}. See what it does with poll \"{id}\", stop it with kill \"{id}\".");
        let running = status_of(&id, BackgroundStatus::Running);
        let remarks = vec![in_words(&running)];
        return (text, false, Evidence { background: vec![running], remarks, ..Evidence::default() });
    }
    watch(running, call, timeout, desk).await
}

/// Waits for the end of a command, or stops it with the call.
async fn watch(mut running: Running, call: &Call, timeout: Duration, desk: &Desk) -> Said {
    let (mut both, mut order) = (Vec::new(), Vec::new());
    let mut stop = pin!(call.cancel.cancelled());
    let mut stopped = false;
    loop {
        let event = poll_fn(|context| {
            if !stopped && stop.as_mut().poll(context).is_ready() {
                stopped = true;
                running.kill();
            }
            pin!(running.next()).poll(context)
        });
        match event.await {
            Some(event) => {
                note_order(&event, &mut order);
                if let Event::Output { bytes, .. } = event {
                    both.extend(bytes);
                }
            }
            None => break,
        }
    }
    match running.finish().await {
        Ok(finished) => reply(finished, &both, order, timeout, desk),
        Err(error) => failed(error),
    }
}

fn reply(finished: Finished, both: &[u8], order: Vec<Stretch>, timeout: Duration, desk: &Desk) -> Said {
    let (mut text, continued) = shortened(both, desk);
    if finished.stdout.cut || finished.stderr.cut {
        say(&mut text, &format!("[only the first {OUTPUT_LIMIT} bytes of each stream were kept]"));
    }
    let mut outcome = None;
    if finished.timed_out {
        outcome = Some(CallOutcome::TimedOut);
        say(&mut text, &format!("stopped: it took longer than {} s; give a longer timeout_s", timeout.as_secs()));
    } else if finished.killed {
        outcome = Some(CallOutcome::Cancelled);
        say(&mut text, "stopped by request");
    } else if !finished.ended.well() {
        say(&mut text, &ending(finished.ended));
    }
    if let Some(beyond) = &finished.beyond {
        say(&mut text, &format!("stopped at a limit: {beyond}"));
    }
    if finished.escaped > 0 {
        let many = finished.escaped;
        say(
            &mut text,
            &format!("{many} processes that it left behind were stopped; use `background` to keep one running"),
        );
    }
    if text.is_empty() {
        text.push_str("It ended well and put out nothing.");
    }
    let failed = finished.timed_out || finished.killed || !finished.ended.well();
    (text, failed, with_rest(Evidence { outcome, ..evidence_of(finished, order) }, continued))
}

/// As much of an output as a model is shown, and the id under which the rest can be read.
fn shortened(output: &[u8], desk: &Desk) -> (String, Option<String>) {
    let mut continued = None;
    let text = middle(&String::from_utf8_lossy(output), MOST_SHOWN, |left_out| {
        let id = desk.left_out.keep(left_out);
        let advice = format!("To see them, poll \"{id}\"");
        continued = Some(id);
        advice
    });
    (text, continued)
}

fn with_rest(mut evidence: Evidence, continued: Option<String>) -> Evidence {
    evidence.remarks.extend(continued.as_ref().map(|id| format!("{id} has what was left out")));
    evidence.continued.extend(continued);
    evidence
}

/// What a command in the background did.
fn told(id: &str, news: Result<News, String>, desk: &Desk) -> Said {
    let news = match news {
        Ok(news) => news,
        Err(why) => return failed(why),
    };
    let (mut text, continued) = shortened(&news.output, desk);
    if news.cut {
        let advice = "what it puts out from now on is lost; start it with `> FILE 2>&1` to keep all";
        say(&mut text, &format!("[only the first {OUTPUT_LIMIT} bytes of each stream are kept: {advice}]"));
    }
    let id = id.trim();
    let ended = news.ended.is_some().then(|| status_of(id, BackgroundStatus::Ended));
    match news.ended {
        None if text.is_empty() => text = format!("{id} still runs, and put out nothing new."),
        None => say(&mut text, &format!("{id} still runs.")),
        Some(Ok(ended)) => say(&mut text, &format!("{id} has ended: {}.", ending(ended))),
        Some(Err(why)) => say(&mut text, &format!("{id} is gone: {why}")),
    }
    let remarks = ended.iter().map(in_words).collect();
    let background = ended.into_iter().collect();
    (text, false, with_rest(Evidence { remarks, background, ..Evidence::default() }, continued))
}

fn ending(ended: Ended) -> String {
    match ended {
        Ended::Exited(code) => format!("exit code {code}"),
        Ended::Signalled { signal, .. } => format!("killed by signal {signal}"),
    }
}

/// Adds a line.
fn say(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
}
