use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use rath::inspect::transcript::{Differences, Transcript};
use rath::inspect::{RecordDetails, RunState, RunStatus};
use rath::store::{Change, Row, Scan, Which};
use rath::{Kind, Record, SessionId, Store, View};
use tokio::time::MissedTickBehavior;

use super::Answer;
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;
use crate::transcript::{How, told};

/// How often it is asked whether a process holds the session: a process that dies tells no other one.
const HELD_EVERY: Duration = Duration::from_secs(1);

/// Watch a session while another process works on it
///
/// Ends when the session is closed or its outermost step is left. Where nobody works on it any more, that is said, and
/// somebody may go on with it; with --while-held that is the end too, with exit code 1, or 5 where a person is waited
/// for.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Tail {
    /// The session
    #[arg(default_value = "@")]
    session: String,
    /// Begin with this many records that are there
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10)]
    lines: u64,
    /// Wait for more (the default)
    #[arg(long, short, conflicts_with = "no_follow")]
    follow: bool,
    /// Print what is there and end
    #[arg(long)]
    no_follow: bool,
    /// Do not end with the run
    #[arg(long, conflicts_with = "no_follow")]
    forever: bool,
    /// End also when nobody works on the session
    #[arg(long, conflicts_with_all = ["no_follow", "forever"])]
    while_held: bool,
    /// Show no differences of files
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
            watch.news().await?;
            return Ok(Answer::Yes);
        }
        let interrupted = settings.interrupted()?;
        tokio::select! {
            done = watch.follow(self.forever, self.while_held) => done,
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
    /// Whether a step was ever entered.
    entered: bool,
    closed: bool,
    /// Whether nobody reads any more.
    unread: bool,
    /// How often in a row no process held the session, and there was no news.
    idle: u32,
}

/// So often in a row nobody must be seen at work: one process may hand the session to the next.
const SURE: u32 = 2;

impl Watch<'_> {
    async fn follow(&mut self, forever: bool, while_held: bool) -> Result<Answer> {
        let watcher = self.store.watch(Change::Commits);
        let mut ask = tokio::time::interval(HELD_EVERY);
        ask.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            watcher.mark();
            let news = self.news().await?;
            let over = self.closed || self.entered && self.transcript.depth() == 0;
            if self.unread || !forever && over {
                return Ok(Answer::Yes);
            }
            if news {
                self.idle = 0;
                continue;
            }
            tokio::select! {
                () = watcher.changed() => continue,
                _ = ask.tick() => {}
            }
            let is_held = over || store_row(&self.store, self.id).await?.holder.is_some();
            self.idle = if is_held { 0 } else { self.idle.saturating_add(1) };
            if self.idle == SURE {
                let end = self.say_idle().await?;
                if while_held {
                    return Ok(end);
                }
            }
        }
    }

    /// Says that nobody works on the session, and how to go on. Returns how that would end.
    async fn say_idle(&self) -> Result<Answer> {
        let (run, id) =
            (RunStatus::of(&self.store, &View::of(&self.store, self.id, None).await?).await?, self.id.short());
        let resume = format!("`rath resume {id}` goes on with it");
        let (what, help, end) = match run.map(|run| run.is) {
            Some(RunState::Waiting) => {
                let help = format!("`rath inbox` shows what is asked, `rath answer` answers, then `rath resume {id}`");
                ("it waits for an answer", help, Answer::Waiting)
            }
            Some(RunState::Interrupted) => {
                ("the process that did ended before its work was done", resume, Answer::Failed)
            }
            Some(_) => ("it has not begun", resume, Answer::Failed),
            None => ("it is no run", "what is added to it is shown here".to_owned(), Answer::Failed),
        };
        output::remark(format_args!("nobody works on session {}: {what}\n  help: {help}", style::session(&id)));
        Ok(end)
    }

    /// Prints what came since the last time. Says whether anything did.
    async fn news(&mut self) -> Result<bool> {
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
            return output::json(&RecordDetails::of(record)?);
        }
        let mut text = String::new();
        let how = How { whole: false, live: true };
        for line in entries.into_iter().flat_map(|entry| told(entry, how).lines) {
            text.push_str(&line);
            text.push('\n');
        }
        if !self.settings.colour {
            text = anstream::adapter::strip_str(&text).to_string();
        }
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // Whoever reads has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => self.unread = true,
            written => written?,
        }
        Ok(())
    }
}

/// Where the session stands, and who holds it.
async fn store_row(store: &Arc<dyn Store>, id: SessionId) -> Result<Row> {
    let rows = store.sessions(Which::Id(id).into()).await?;
    rows.into_iter().next().ok_or_else(|| expression::unclear("the session is gone"))
}
