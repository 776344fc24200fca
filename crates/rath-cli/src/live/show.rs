//! What happens in a run, written as it happens.

use std::collections::HashMap;
use std::sync::Arc;

use rath::agent::{Event, Listener, RunEvent};
use rath::body::{CallOutcome, Exit, Restored, ToolFinished};
use rath::inspect::transcript::{ChangeSummary, Differences};
use rath::{Delta, SessionId, Store, Time, Usage};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::{Screen, headline};
use crate::output::{self, style};
use crate::transcript::{difference, paths, span, unusual_end};

/// At most this many lines of what a call wrote.
const LINES: usize = 4;
/// No such line is longer.
const WIDE: usize = 160;

/// Shows a run.
pub(crate) struct Show {
    tell: UnboundedSender<Told>,
    screen: Screen,
}

/// What is to be shown.
enum Told {
    Event(RunEvent),
    /// Everything before is shown.
    Settle {
        answered: bool,
        done: oneshot::Sender<()>,
    },
}

impl Show {
    /// Shows what happens on the line `first` and its branches. `quiet` shows nothing. Where questions are put to the
    /// person (`asks_here`), they are not told besides.
    pub(crate) fn new(store: Arc<dyn Store>, first: SessionId, agent: &str, quiet: bool, asks_here: bool) -> Self {
        let (tell, told) = unbounded_channel();
        let screen = Screen::new();
        let shower = Shower {
            store,
            screen: screen.clone(),
            main: first,
            begins: agent.to_owned(),
            heard: HashMap::new(),
            open: Vec::new(),
            used: Usage::default(),
            held: None,
            quiet,
            asks_here,
        };
        tokio::spawn(shower.show(told));
        Self { tell, screen }
    }

    /// What tells it.
    pub(crate) fn listener(&self) -> Listener {
        let tell = self.tell.clone();
        Listener::new(move |event| {
            let _ = tell.send(Told::Event(event));
        })
    }

    pub(crate) fn screen(&self) -> &Screen {
        &self.screen
    }

    /// Waits until all that happened is shown, but for an answer that will be printed.
    pub(crate) async fn settle(&self, answered: bool) {
        let (done, shown) = oneshot::channel();
        if self.tell.send(Told::Settle { answered, done }).is_ok() {
            let _ = shown.await;
        }
    }
}

struct Shower {
    store: Arc<dyn Store>,
    screen: Screen,
    /// The line whose words are shown as they come. Those of branches are shown whole.
    main: SessionId,
    /// The agent that begins on that line.
    begins: String,
    heard: HashMap<SessionId, String>,
    open: Vec<Open>,
    used: Usage,
    /// Words of the main line that nobody has seen: the last are the answer, and that is data.
    held: Option<String>,
    quiet: bool,
    asks_here: bool,
}

/// A call that runs.
struct Open {
    session: SessionId,
    id: String,
    line: String,
    began: Time,
}

impl Shower {
    async fn show(mut self, mut told: UnboundedReceiver<Told>) {
        while let Some(told) = told.recv().await {
            match told {
                Told::Settle { answered, done } => {
                    match answered {
                        true => self.held = None,
                        false => self.say_held(),
                    }
                    self.screen.idle();
                    let _ = done.send(());
                }
                Told::Event(_) if self.quiet => {}
                Told::Event(event) => self.one(event).await,
            }
        }
    }

    /// Says what was held back: it was not the answer.
    fn say_held(&mut self) {
        if let Some(text) = self.held.take().filter(|_| !self.quiet) {
            self.screen.line(output::harmless(text.trim()));
        }
    }

    async fn one(&mut self, RunEvent { session, agent, what }: RunEvent) {
        self.say_held();
        match what {
            Event::Started => {
                if *agent == *self.begins && self.heard.is_empty() && session != self.main && self.open.is_empty() {
                    self.screen.line(format_args!("went on as session {}", style::session(session.short())));
                    self.main = session;
                }
                self.say_what_runs();
            }
            Event::Delta { delta } => self.hear(session, &agent, delta),
            Event::TurnFinished { usage, stop } => {
                self.turn_over(session, &agent, usage);
                if let Some(why) = stop.as_deref().and_then(unusual_end) {
                    self.screen.line(style::label(format!("! {why}")));
                }
            }
            Event::CallStarted { id, tool, arguments } => {
                let line = format!("{tool} {}", headline(&tool, &arguments));
                self.open.push(Open { session, id, line, began: Time::now() });
                self.say_what_runs();
            }
            Event::CallFinished { tool, finished } => self.call_finished(session, &tool, &finished).await,
            Event::CallRefused { tool, why } => {
                let (mark, tool) = (style::bad("●"), style::title(output::harmless(&tool)));
                self.screen.line(format_args!("{mark} {tool} {}", style::dim("not made")));
                for line in cut_lines(&why.lines().collect::<Vec<_>>(), LINES) {
                    self.screen.line(format_args!("  {}", style::dim(line)));
                }
                self.say_what_runs();
            }
            Event::FilesRestored { restored } => self.set_back(&restored).await,
            Event::Asked { .. } if self.asks_here => {}
            Event::Asked { shown } => {
                let (who, asks) = (style::record(output::harmless(&agent)), style::label("asks:"));
                self.screen.line(format_args!("{who} {asks} {}", output::harmless(&shown)));
            }
            Event::Retrying { why } => {
                let why = output::harmless(&why);
                self.screen.line(style::label(format!("{agent}: {why}; asking again")));
                self.screen.busy(&format!("{agent} is asked again"));
            }
            _ => {}
        }
    }

    fn hear(&mut self, session: SessionId, agent: &str, delta: Delta) {
        match delta {
            Delta::Text(text) if session == self.main && self.screen.has_words() => {
                if !self.heard.contains_key(&session) && !text.trim().is_empty() {
                    self.screen.gap();
                }
                self.heard.entry(session).or_default().push_str(&text);
                self.screen.words(&text);
            }
            Delta::Text(text) => self.heard.entry(session).or_default().push_str(&text),
            Delta::Call { name, .. } => self.screen.busy(&format!("{agent} wants to call {name}")),
            Delta::Reasoning(_) => self.say_what_runs(),
            Delta::Arguments(_) => {}
        }
    }

    fn turn_over(&mut self, session: SessionId, agent: &str, usage: Usage) {
        let heard = self.heard.remove(&session).filter(|text| !text.trim().is_empty());
        if session == self.main {
            self.screen.idle();
            self.held = heard.filter(|_| !self.screen.has_words());
        } else if let Some(text) = heard {
            let who = style::record(output::harmless(agent));
            self.screen.line(format_args!("{who}: {}", output::harmless(text.trim())));
        }
        self.used += usage;
        self.say_what_runs();
    }

    /// Whoever worked there meanwhile must hear where their files are.
    async fn set_back(&mut self, restored: &Restored) {
        let paths = paths(&ChangeSummary::of(&self.store, &restored.changed, Differences::None).await);
        let what = "↺ files set back before a call is made again";
        self.screen.line(format_args!("{}", style::label(format!("{what}: {paths}"))));
        let kept = format!("what was there is kept: rath cat {}:PATH", restored.from.id());
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
        let (name, rest) = (style::title(output::harmless(name)), output::harmless(rest));
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
            let lines = if tool == "todo" { usize::MAX } else { LINES };
            for line in first_lines(finished, lines) {
                self.screen.line(format_args!("  {}", style::dim(line)));
            }
        }
        for remark in &finished.remarks {
            self.screen.line(format_args!("  {}", style::label(output::harmless(remark))));
        }
        self.say_what_runs();
    }

    fn say_what_runs(&self) {
        match self.open.as_slice() {
            [] if self.used.is_zero() => self.screen.busy(&format!("{} is thinking", self.begins)),
            [] => self.screen.busy(&format!("{} is thinking ({} so far)", self.begins, self.used)),
            [one] => self.screen.busy(&one.line),
            several => {
                let longest = several.iter().map(|open| Time::now().micros_since(open.began)).max().unwrap_or(0);
                let first = several.first().map(|open| open.line.as_str()).unwrap_or_default();
                let since = span(longest);
                self.screen.busy(&format!("{} calls ({since}): {first}, …", several.len()));
            }
        }
    }
}

fn how_it_ended(finished: &ToolFinished) -> String {
    let beyond = finished.beyond.as_ref().map(|limit| format!(", beyond its limit: {}", output::harmless(limit)));
    let how = match (&finished.exit, finished.outcome) {
        (Some(Exit::Code(0)), CallOutcome::Done) | (None, CallOutcome::Done) => String::new(),
        (Some(Exit::Code(code)), _) => format!("exit {code}"),
        (Some(Exit::Signal(signal)), _) => format!("signal {signal}"),
        (Some(Exit::Unknown(way)), _) => output::harmless(&way.to_string()),
        (None, CallOutcome::Unknown(way)) => output::harmless(&way.to_string()),
        (None, CallOutcome::Failed) => "failed".into(),
        (None, CallOutcome::TimedOut) => "took too long".into(),
        (None, CallOutcome::Cancelled) => "stopped".into(),
        (None, CallOutcome::Lost) => "lost".into(),
    };
    how + &beyond.unwrap_or_default()
}

/// The beginning of what a call wrote.
fn first_lines(finished: &ToolFinished, most: usize) -> Vec<String> {
    // What the model is shown holds what the streams do.
    let result = finished.output.iter().find(|output| output.stream == "result");
    let shown: Vec<_> = result.map_or_else(|| finished.output.iter().collect(), |result| vec![result]);
    let all: Vec<&str> = shown.iter().filter_map(|output| output.text.as_deref()).flat_map(str::lines).collect();
    cut_lines(&all, most)
}

/// The first of these lines, each as wide as there is room for.
fn cut_lines(all: &[&str], most: usize) -> Vec<String> {
    let cut = |line: &str| match line.char_indices().nth(WIDE) {
        Some((at, _)) => output::harmless(&line[..at]) + "…",
        None => output::harmless(line),
    };
    let mut lines: Vec<String> = all.iter().take(most).map(|line| cut(line)).collect();
    if all.len() > most {
        lines.push(format!("… {} more", output::count((all.len() - most) as u64, "line")));
    }
    lines
}
