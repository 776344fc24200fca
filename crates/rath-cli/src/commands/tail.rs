use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use rath::inspect::transcript::{Differences, Transcript};
use rath::inspect::{RecordDetails, RunState, RunStatus};
use rath::store::{Scan, SessionFilter, SessionInfo, WatchTopic};
use rath::{Kind, Record, SessionId, Store, View};
use tokio::time::MissedTickBehavior;

use super::Answer;
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;
use crate::transcript::{RenderOptions, render};

/// How often the lock of the session is checked: a process that dies cannot report it.
const LOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Follow a session while another process works on it
///
/// Exits when the session is closed or its outermost step is finished. If no process has the session locked, a remark
/// says so and `tail` waits for another process; with --while-locked it exits, with exit code 1, or 5 if a question is
/// open.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Tail {
    /// The session
    #[arg(default_value = "@")]
    session: String,
    /// Start with the last N records
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10)]
    lines: u64,
    /// The default
    #[arg(long, short, conflicts_with = "no_follow", hide = true)]
    follow: bool,
    /// Print the existing records and exit
    #[arg(long)]
    no_follow: bool,
    /// Do not exit when the run ends
    #[arg(long, conflicts_with = "no_follow")]
    forever: bool,
    /// Also exit when no process has the session locked
    #[arg(long, alias = "while-held", conflicts_with_all = ["no_follow", "forever"])]
    while_locked: bool,
    /// Show no diffs of files
    #[arg(long)]
    no_diff: bool,
}

impl Tail {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let id = expression::resolve_session(&store, &self.session).await?;
        let head = View::of(&store, id, None).await?;
        let last = head.reference().seq;
        let from = (last + 1).saturating_sub(self.lines);
        let differences = if self.no_diff { Differences::None } else { Differences::Few };
        let (transcript, entered) = match from.checked_sub(1) {
            Some(before) => {
                let view = View::of(&store, id, Some(before)).await?;
                let state = view.state();
                let entered = state.entered > 0 || state.steps.iter().any(|step| !step.inherited || step.entered > 0);
                (Transcript::after(store.clone(), differences, &view).await?, entered)
            }
            None => (Transcript::new(store.clone(), differences), false),
        };
        let closed = head.state().closed && from > last;
        let mut watch = Watch { settings, store, id, next: from, transcript, entered, closed, unread: false, idle: 0 };
        if self.no_follow {
            watch.print_new().await?;
            return Ok(Answer::Yes);
        }
        let interrupted = settings.interrupted()?;
        tokio::select! {
            done = watch.follow(self.forever, self.while_locked) => done,
            () = interrupted => Ok(Answer::Yes),
        }
    }
}

struct Watch<'a> {
    settings: &'a Settings,
    store: Arc<dyn Store>,
    id: SessionId,
    next: u64,
    transcript: Transcript,
    /// Whether any step was entered.
    entered: bool,
    closed: bool,
    /// Whether stdout is a closed pipe.
    unread: bool,
    /// How many checks in a row found no lock and no new records.
    idle: u32,
}

/// How many checks without a lock mean that no process works on it: one process may hand the session to the next.
const IDLE_CHECKS: u32 = 2;

impl Watch<'_> {
    async fn follow(&mut self, forever: bool, while_locked: bool) -> Result<Answer> {
        let watcher = self.store.watch(WatchTopic::Commits);
        let mut ask = tokio::time::interval(LOCK_CHECK_INTERVAL);
        ask.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            watcher.mark();
            let any_new = self.print_new().await?;
            let over = self.closed || self.entered && self.transcript.depth() == 0;
            if self.unread || !forever && over {
                return Ok(Answer::Yes);
            }
            if any_new {
                self.idle = 0;
                continue;
            }
            tokio::select! {
                () = watcher.changed() => continue,
                _ = ask.tick() => {}
            }
            let is_held = over || store_row(&self.store, self.id).await?.holder.is_some();
            self.idle = if is_held { 0 } else { self.idle.saturating_add(1) };
            if self.idle == IDLE_CHECKS {
                let end = self.remark_idle().await?;
                if while_locked {
                    return Ok(end);
                }
            }
        }
    }

    /// Reports that no process works on the session, and how to continue. Returns the exit code for that.
    async fn remark_idle(&self) -> Result<Answer> {
        let (run, id) =
            (RunStatus::of(&self.store, &View::of(&self.store, self.id, None).await?).await?, self.id.short());
        let resume = format!("`rath resume {id}` continues it");
        let (what, help, end) = match run.map(|run| run.is) {
            Some(RunState::Waiting) => {
                let help =
                    format!("`rath inbox` shows the question, `rath answer` answers it, then `rath resume {id}`");
                ("it waits for an answer", help, Answer::Waiting)
            }
            Some(RunState::Interrupted) => ("its process ended before the work was done", resume, Answer::Failed),
            Some(_) => ("it has not started", resume, Answer::Failed),
            None => ("it is not a run", "records that are added are shown here".to_owned(), Answer::Failed),
        };
        output::remark(format_args!("no process works on session {}: {what}\n  help: {help}", style::session(&id)));
        Ok(end)
    }

    /// Prints the new records. Returns whether there were any.
    async fn print_new(&mut self) -> Result<bool> {
        let mut any = false;
        loop {
            let last = store_row(&self.store, self.id).await?.seq;
            if last < self.next {
                return Ok(any);
            }
            let page = self.store.scan(Scan::session(self.id, self.next, last)).await?;
            for record in &page.records {
                self.print(record).await?;
                self.next = record.seq() + 1;
                any = true;
            }
            if !page.more {
                return Ok(any);
            }
        }
    }

    async fn print(&mut self, record: &Record) -> Result<()> {
        self.entered |= *record.kind() == Kind::StepEntered;
        self.closed |= *record.kind() == Kind::Closed;
        let entries = self.transcript.read(record).await?;
        if self.settings.json {
            return output::json("rath.record/1", &RecordDetails::of(record)?);
        }
        let mut text = String::new();
        let how = RenderOptions { whole: false, live: true };
        for line in entries.into_iter().flat_map(|entry| render(entry, how).lines) {
            text.push_str(&line);
            text.push('\n');
        }
        if !self.settings.colour {
            text = anstream::adapter::strip_str(&text).to_string();
        }
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => self.unread = true,
            written => written?,
        }
        Ok(())
    }
}

/// The current state of the session in the store: its head and its lock.
async fn store_row(store: &Arc<dyn Store>, id: SessionId) -> Result<SessionInfo> {
    let rows = store.sessions(SessionFilter::Id(id).into()).await?;
    rows.into_iter().next().ok_or_else(|| expression::usage_error("the session was deleted"))
}
