use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use rath::store::{Scan, Which};
use rath::{Kind, Record, SessionId, Store, View};

use super::Answer;
use crate::expression;
use crate::output;
use crate::settings::Settings;
use crate::transcript::{How, Teller};

/// How soon the store is asked again after news.
const SOON: Duration = Duration::from_millis(200);
/// No wait is longer.
const LATE: Duration = Duration::from_secs(1);

/// Watch a session while another process works on it
///
/// Ends when the session is closed or its outermost step is left.
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
        let how = How { diff: !self.no_diff, whole: false, live: true };
        let (teller, entered) = match from.checked_sub(1) {
            Some(before) => {
                let view = View::of(&store, id, Some(before)).await?;
                let state = view.state();
                let entered = state.entered > 0 || state.steps.iter().any(|step| !step.inherited || step.entered > 0);
                (Teller::after(store.clone(), how, &view).await?, entered)
            }
            None => (Teller::new(store.clone(), how), false),
        };
        let closed = head.state().closed && from > last;
        let mut watch = Watch { settings, store, id, next: from, teller, entered, closed, unread: false };
        if self.no_follow {
            watch.news().await?;
            return Ok(Answer::Yes);
        }
        let interrupted = settings.interrupted()?;
        tokio::select! {
            done = watch.follow(self.forever) => done?,
            () = interrupted => {}
        }
        Ok(Answer::Yes)
    }
}

struct Watch<'a> {
    settings: &'a Settings,
    store: Arc<dyn Store>,
    id: SessionId,
    next: u64,
    teller: Teller,
    /// Whether a step was ever entered.
    entered: bool,
    closed: bool,
    /// Whether nobody reads any more.
    unread: bool,
}

impl Watch<'_> {
    async fn follow(&mut self, forever: bool) -> Result<()> {
        let mut wait = SOON;
        loop {
            let news = self.news().await?;
            if self.unread || !forever && (self.closed || self.entered && self.teller.depth() == 0) {
                return Ok(());
            }
            wait = if news { SOON } else { (wait * 2).min(LATE) };
            tokio::time::sleep(wait).await;
        }
    }

    /// Prints what came since the last time. Says whether anything did.
    async fn news(&mut self) -> Result<bool> {
        let mut any = false;
        loop {
            let row = store_row(&self.store, self.id).await?;
            if row < self.next {
                return Ok(any);
            }
            let page = self.store.scan(Scan::session(self.id, self.next, row)).await?;
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
        let entries = self.teller.tell(record).await?;
        if self.settings.json {
            return output::json(&super::show::record_json(record)?);
        }
        let mut text = String::new();
        for line in entries.into_iter().flat_map(|entry| entry.lines) {
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

/// The last record that is there.
async fn store_row(store: &Arc<dyn Store>, id: SessionId) -> Result<u64> {
    let rows = store.sessions(Which::Id(id).into()).await?;
    rows.first().map(|row| row.seq).ok_or_else(|| expression::unclear("the session is gone"))
}
