//! Shows the events of a run as they happen.

use std::collections::HashMap;
use std::sync::Arc;

use rath::agent::{Event, Observer, RunEvent};
use rath::body::{CallOutcome, Exit, Restored, ToolFinished};
use rath::inspect::transcript::{ChangeSummary, Differences};
use rath::model::Delta;
use rath::{SessionId, Store, Time, Usage};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::{Screen, headline};
use crate::output::{self, style};
use crate::transcript::{difference, paths, span, unusual_end};

/// How many lines of a call's output are shown.
const MAX_LINES: usize = 4;
/// The maximum length of a shown line of output, in characters.
const MAX_WIDTH: usize = 160;

/// Shows the events of a run.
pub(crate) struct Progress {
    updates: UnboundedSender<Update>,
    screen: Screen,
}

/// An update of what is shown.
enum Update {
    Event(RunEvent),
    /// Sent back when all earlier updates are shown.
    Settle {
        answered: bool,
        done: oneshot::Sender<()>,
    },
}

impl Progress {
    /// Shows the events of the session `first` and its branches. With `quiet`, shows nothing. With `asks_here`, questions
    /// are not shown, because the person is asked at the terminal.
    pub(crate) fn new(store: Arc<dyn Store>, first: SessionId, agent: &str, quiet: bool, asks_here: bool) -> Self {
        let (updates, received) = unbounded_channel();
        let screen = Screen::new();
        let printer = ProgressPrinter {
            store,
            screen: screen.clone(),
            main: first,
            agent: agent.to_owned(),
            streamed: HashMap::new(),
            open: Vec::new(),
            used: Usage::default(),
            withheld: None,
            retried: None,
            quiet,
            asks_here,
        };
        tokio::spawn(printer.run(received));
        Self { updates, screen }
    }

    /// Receives the events of a run.
    pub(crate) fn listener(&self) -> Observer {
        let updates = self.updates.clone();
        Observer::new(move |event| {
            let _ = updates.send(Update::Event(event));
        })
    }

    pub(crate) fn screen(&self) -> &Screen {
        &self.screen
    }

    /// Waits until all events are shown. With `answered`, the final answer is left out, because it is printed as the result.
    pub(crate) async fn settle(&self, answered: bool) {
        let (done, shown) = oneshot::channel();
        if self.updates.send(Update::Settle { answered, done }).is_ok() {
            let _ = shown.await;
        }
    }
}

struct ProgressPrinter {
    store: Arc<dyn Store>,
    screen: Screen,
    /// The session whose text is shown as it streams in. The text of branches is shown when a turn is complete.
    main: SessionId,
    /// The agent that starts in the session `main`.
    agent: String,
    streamed: HashMap<SessionId, String>,
    open: Vec<RunningCall>,
    used: Usage,
    /// Text of the main session that is not shown yet: the last one is the answer, which is printed as the result.
    withheld: Option<String>,
    /// Why a request was retried last.
    retried: Option<String>,
    quiet: bool,
    asks_here: bool,
}

/// A running call.
struct RunningCall {
    session: SessionId,
    id: String,
    line: String,
    started: Time,
}

impl ProgressPrinter {
    async fn run(mut self, mut received: UnboundedReceiver<Update>) {
        while let Some(update) = received.recv().await {
            match update {
                Update::Settle { answered, done } => {
                    if answered {
                        self.withheld = None
                    } else {
                        self.show_withheld()
                    }
                    self.screen.idle();
                    let _ = done.send(());
                }
                Update::Event(_) if self.quiet => {}
                Update::Event(event) => self.show(event).await,
            }
        }
    }

    /// Shows the withheld text: it was not the answer.
    fn show_withheld(&mut self) {
        if let Some(text) = self.withheld.take().filter(|_| !self.quiet) {
            self.screen.line(output::escaped(text.trim()));
        }
    }

    async fn show(&mut self, RunEvent { session, agent, what }: RunEvent) {
        self.show_withheld();
        match what {
            Event::Started => {
                if *agent == *self.agent && self.streamed.is_empty() && session != self.main && self.open.is_empty() {
                    self.screen.line(format_args!("continued as session {}", style::session(session.short())));
                    self.main = session;
                }
                self.update_status();
            }
            Event::Delta { delta } => self.stream(session, &agent, delta),
            Event::TurnFinished { usage, stop } => {
                self.turn_finished(session, &agent, usage);
                if let Some(why) = stop.as_deref().and_then(unusual_end) {
                    self.screen.line(style::label(format!("! {why}")));
                }
            }
            Event::CallStarted { id, tool, arguments } => {
                let line = format!("{tool} {}", headline(&tool, &arguments));
                self.open.push(RunningCall { session, id, line, started: Time::now() });
                self.update_status();
            }
            Event::CallFinished { tool, finished } => self.call_finished(session, &tool, &finished).await,
            Event::CallRefused { tool, why } => {
                let (mark, tool) = (style::bad("●"), style::title(output::escaped(&tool)));
                self.screen.line(format_args!("{mark} {tool} {}", style::dim("denied")));
                for line in cut_lines(&why.lines().collect::<Vec<_>>(), MAX_LINES) {
                    self.screen.line(format_args!("  {}", style::dim(line)));
                }
                self.update_status();
            }
            Event::FilesRestored { restored } => self.files_restored(&restored).await,
            Event::Asked { .. } if self.asks_here => {}
            Event::Asked { shown } => {
                let (who, asks) = (style::record(output::escaped(&agent)), style::label("asks:"));
                self.screen.line(format_args!("{who} {asks} {}", output::escaped(&shown)));
            }
            Event::Retrying { why } => {
                // A provider that stays unreachable fails with the same reason each time.
                if self.retried.as_deref() != Some(&*why) {
                    self.screen.line(style::label(format!("{agent}: {}; retrying", output::escaped(&why))));
                    self.retried = Some(why);
                }
                self.screen.busy(&format!("retrying {agent}"));
            }
            _ => {}
        }
    }

    fn stream(&mut self, session: SessionId, agent: &str, delta: Delta) {
        match delta {
            Delta::Text(text) if session == self.main && self.screen.has_words() => {
                if !self.streamed.contains_key(&session) && !text.trim().is_empty() {
                    self.screen.gap();
                }
                self.streamed.entry(session).or_default().push_str(&text);
                self.screen.words(&text);
            }
            Delta::Text(text) => self.streamed.entry(session).or_default().push_str(&text),
            Delta::Call { name, .. } => self.screen.busy(&format!("{agent} prepares a call of {name}")),
            Delta::Reasoning(_) => self.update_status(),
            Delta::Arguments(_) => {}
        }
    }

    fn turn_finished(&mut self, session: SessionId, agent: &str, usage: Usage) {
        let streamed = self.streamed.remove(&session).filter(|text| !text.trim().is_empty());
        if session == self.main {
            self.screen.idle();
            self.withheld = streamed.filter(|_| !self.screen.has_words());
        } else if let Some(text) = streamed {
            let who = style::record(output::escaped(agent));
            self.screen.line(format_args!("{who}: {}", output::escaped(text.trim())));
        }
        self.used += usage;
        self.update_status();
    }

    /// Reports restored files, and where the replaced ones are: someone may have edited them.
    async fn files_restored(&mut self, restored: &Restored) {
        let paths = paths(&ChangeSummary::of(&self.store, &restored.changed, Differences::None).await);
        let what = "↺ files restored before a call is repeated";
        self.screen.line(format_args!("{}", style::label(format!("{what}: {paths}"))));
        let kept = format!("the replaced files are kept: rath file cat {}:PATH", restored.from.id());
        self.screen.line(format_args!("  {}", style::dim(kept)));
    }

    async fn call_finished(&mut self, session: SessionId, tool: &str, finished: &ToolFinished) {
        let at = self.open.iter().position(|open| open.session == session && open.id == finished.call);
        let line = match at.map(|at| self.open.remove(at)) {
            Some(open) => open.line,
            None => tool.to_owned(),
        };
        let is_good = finished.outcome == CallOutcome::Done
            && finished.exit.as_ref().is_none_or(|exit| matches!(exit, Exit::Code(0)));
        let mark = if is_good { style::good("●") } else { style::bad("●") };
        let (name, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let (name, rest) = (style::title(output::escaped(name)), output::escaped(rest));
        let took = finished.duration_us.filter(|us| *us >= 1_000_000).map(|us| format!(" · {}", span(us)));
        let how = how_it_ended(finished);
        let end = style::dim(format!("{how}{}", took.unwrap_or_default()));
        self.screen.line(format_args!("{mark} {name} {rest} {end}"));
        let changed = ChangeSummary::of(&self.store, &finished.changed, Differences::Few).await;
        let (paths, diff) = (paths(&changed), difference(&changed, false));
        if !paths.is_empty() {
            self.screen.line(format_args!("  {}", style::label(paths)));
        }
        diff.iter().for_each(|line| self.screen.line(format_args!("    {line}")));
        if tool == "todo" || (diff.is_empty() && !is_good) || tool == "shell" {
            let lines = if tool == "todo" { usize::MAX } else { MAX_LINES };
            for line in first_lines(finished, lines) {
                self.screen.line(format_args!("  {}", style::dim(line)));
            }
        }
        for remark in &finished.remarks {
            self.screen.line(format_args!("  {}", style::label(output::escaped(remark))));
        }
        self.update_status();
    }

    fn update_status(&self) {
        match self.open.as_slice() {
            [] if self.used.is_zero() => self.screen.busy(&format!("{} is thinking", self.agent)),
            [] => self.screen.busy(&format!("{} is thinking ({} so far)", self.agent, self.used)),
            [one] => self.screen.busy(&one.line),
            several => {
                let longest = several.iter().map(|open| Time::now().micros_since(open.started)).max().unwrap_or(0);
                let first = several.first().map(|open| open.line.as_str()).unwrap_or_default();
                let since = span(longest);
                self.screen.busy(&format!("{} calls ({since}): {first}, …", several.len()));
            }
        }
    }
}

fn how_it_ended(finished: &ToolFinished) -> String {
    let beyond = finished.limit_exceeded.as_ref().map(|limit| format!(", limit exceeded: {}", output::escaped(limit)));
    let how = match (&finished.exit, finished.outcome) {
        (Some(Exit::Code(0)), CallOutcome::Done) | (None, CallOutcome::Done) => String::new(),
        (Some(Exit::Code(code)), _) => format!("exit {code}"),
        (Some(Exit::Signal(signal)), _) => format!("signal {signal}"),
        (Some(Exit::Unknown(way)), _) => output::escaped(&way.to_string()),
        (None, CallOutcome::Unknown(way)) => output::escaped(&way.to_string()),
        (None, CallOutcome::Failed) => "failed".into(),
        (None, CallOutcome::TimedOut) => "timed out".into(),
        (None, CallOutcome::Cancelled) => "stopped".into(),
        (None, CallOutcome::Lost) => "outcome unknown".into(),
    };
    how + &beyond.unwrap_or_default()
}

/// The first lines of a call's output.
fn first_lines(finished: &ToolFinished, most: usize) -> Vec<String> {
    // The result for the model contains the text of the streams.
    let result = finished.output.iter().find(|output| output.stream == "result");
    let shown: Vec<_> = result.map_or_else(|| finished.output.iter().collect(), |result| vec![result]);
    let all: Vec<&str> = shown.iter().filter_map(|output| output.text.as_deref()).flat_map(str::lines).collect();
    cut_lines(&all, most)
}

/// The first of these lines, each truncated to the maximum length.
fn cut_lines(all: &[&str], most: usize) -> Vec<String> {
    let cut = |line: &str| match line.char_indices().nth(MAX_WIDTH) {
        Some((at, _)) => output::escaped(&line[..at]) + "…",
        None => output::escaped(line),
    };
    let mut lines: Vec<String> = all.iter().take(most).map(|line| cut(line)).collect();
    if all.len() > most {
        lines.push(format!("… {} more", output::count((all.len() - most) as u64, "line")));
    }
    lines
}
