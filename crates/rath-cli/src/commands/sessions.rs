use anyhow::Result;
use rath::Time;
use rath::inspect::{
    Activity, LabelFilter, ListedSession, SessionList, SessionOrder, SessionQuery, label_text, session_title,
};
use rath::store::Row;
use rath_audit::care::Holds;

use super::Answer;
use super::log::clip;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::time;

/// Listed when nobody says how many.
const LIMIT: usize = 50;

/// List sessions as a table: what they are doing, how large they are, what they cost
///
/// States: `waiting` for a person's answer, `running` in a process, `held` by one that does nothing there now, `stopped`
/// in the middle of its work (`rath resume` goes on), `open`, `closed`.
#[derive(clap::Args)]
pub(crate) struct Sessions {
    /// Only sessions with this label (NAME or NAME=VALUE); may be said more than once
    #[arg(long, value_name = "LABEL")]
    label: Vec<LabelFilter>,
    /// Only sessions that are not closed
    #[arg(long, conflicts_with = "closed")]
    open: bool,
    /// Only closed ones
    #[arg(long)]
    closed: bool,
    /// Only those in which a question waits for an answer
    #[arg(long)]
    waiting: bool,
    /// Only those in which a process is at work
    #[arg(long)]
    running: bool,
    /// Only those whose work stopped before it was done
    #[arg(long)]
    stopped: bool,
    /// Only those that a process holds
    #[arg(long)]
    held: bool,
    /// Only those that `rath hold` keeps from erasure
    #[arg(long)]
    on_hold: bool,
    /// Only those that changed since
    #[arg(long, value_name = "TIME", value_parser = time::since)]
    since: Option<Time>,
    /// What comes first
    #[arg(long, value_name = "BY", default_value = "time")]
    sort: Sort,
    /// List at most this many (0 for all)
    #[arg(long, short = 'n', value_name = "N", default_value_t = LIMIT)]
    limit: usize,
}

/// What a list is sorted by, the most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Sort {
    /// The last change
    Time,
    /// The number of records
    Records,
    /// What its own model calls cost
    Cost,
    /// The bytes of its records
    Size,
}

impl Sessions {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let holds = match self.on_hold {
            true => Some(Holds::of(&store).await?),
            false => None,
        };
        let on_hold = |row: &Row| holds.as_ref().is_none_or(|holds| holds.over_session(row.id).is_some());
        let sizes = settings.embedded()?.sizes()?;
        let SessionList { listed, more, all } = SessionList::of(&store, &self.query(), &sizes, on_hold).await?;
        if settings.json {
            output::json_lines(listed)?;
            return Ok(Answer::Yes);
        }
        match (listed.is_empty(), all) {
            (true, 0) => output::remark("no sessions yet\n  help: `rath new TITLE` makes one"),
            (true, all) => {
                output::remark(format_args!("none of {} is like that", output::count(all as u64, "session")))
            }
            _ => table(settings, &listed)?,
        }
        if more > 0 {
            output::remark(format_args!("{} more\n  help: -n 0 lists all", output::whole(more as u64)));
        }
        Ok(Answer::Yes)
    }

    fn query(&self) -> SessionQuery {
        let doing =
            [(self.waiting, Activity::Waiting), (self.running, Activity::Running), (self.stopped, Activity::Stopped)];
        SessionQuery {
            labels: self.label.clone(),
            closed: match (self.open, self.closed) {
                (true, _) => Some(false),
                (false, true) => Some(true),
                (false, false) => None,
            },
            held: self.held,
            doing: doing.into_iter().filter_map(|(wanted, doing)| wanted.then_some(doing)).collect(),
            since: self.since,
            order: self.sort.into(),
            limit: Some(self.limit).filter(|limit| *limit > 0),
        }
    }
}

impl From<Sort> for SessionOrder {
    fn from(sort: Sort) -> Self {
        match sort {
            Sort::Time => Self::Time,
            Sort::Records => Self::Records,
            Sort::Cost => Self::Cost,
            Sort::Size => Self::Size,
        }
    }
}

fn coloured(activity: Activity) -> String {
    let text = format!("{:<7}", activity.as_str());
    match activity {
        Activity::Waiting | Activity::Stopped => style::label(text),
        Activity::Running => style::good(text),
        Activity::Closed => style::dim(text),
        Activity::Held | Activity::Open => text,
    }
}

/// The table. A narrow one leaves out size, cost and time, in this order.
fn table(settings: &Settings, listed: &[ListedSession]) -> Result<()> {
    let width = settings.width.max(30);
    let costs = listed.iter().any(|one| one.usage.cost_nano_usd > 0);
    let columns = [(true, 8), (true, 8), (true, 9), (width >= 56, 12), (costs && width >= 72, 9), (width >= 88, 9)];
    let taken: usize = columns.iter().filter(|(shown, _)| *shown).map(|(_, width)| width + 1).sum();
    let [_, _, _, (times, _), (costs, _), (sizes, _)] = columns;
    let room = width.saturating_sub(taken).max(8);
    let mut page = Page::default();
    let optional = |shown: bool, text: String| if shown { text } else { String::new() };
    page.line(style::dim(format!(
        "{:<8} {:<8} {:>9} {}{}{}TITLE",
        "SESSION",
        "STATE",
        "RECORDS",
        optional(times, format!("{:<12} ", "CHANGED")),
        optional(costs, format!("{:>9} ", "COST")),
        optional(sizes, format!("{:>9} ", "SIZE")),
    )));
    for one in listed {
        let row = &one.row;
        let title = session_title(row);
        let labels: Vec<String> = row.labels.iter().map(|(name, value)| label_text(name, value)).collect();
        let shown = clip(&title, room.saturating_sub(1));
        let left = room.saturating_sub(shown.chars().count() + 2);
        let labels = match labels.is_empty() || left < 8 {
            true => String::new(),
            false => format!("  {}", style::label(clip(&labels.join(" "), left.saturating_sub(1)))),
        };
        page.line(format_args!(
            "{} {}  {:>9} {}{}{}{}{labels}",
            style::session(row.id.short()),
            coloured(one.state),
            output::whole(one.records),
            optional(times, format!("{:<12} ", time::ago(row.time))),
            optional(costs, format!("{:>9} ", output::dollars(one.usage.cost_nano_usd))),
            optional(sizes, format!("{:>9} ", output::bytes(one.bytes))),
            style::title(shown),
        ));
    }
    page.show(settings)
}
