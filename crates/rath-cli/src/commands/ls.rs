use anyhow::Result;
use rath::Time;
use rath::inspect::{
    Activity, LabelFilter, ListedSession, SessionList, SessionOrder, SessionQuery, label_text, session_title,
};
use rath::store::SessionInfo;
use rath_audit::admin::Holds;

use super::Answer;
use super::log::clip;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::time;

/// How many sessions are listed by default.
const LIMIT: usize = 50;

/// List sessions: their state, size, cost and title
///
/// States: `waiting` for a person's answer, `running` in a process, `locked` by a process that is idle, `stopped` in the
/// middle of its work (`rath resume` continues it), `open`, `closed`. The store's audit session is listed only with
/// --all.
#[derive(clap::Args)]
pub(crate) struct Ls {
    /// Only sessions with this label, NAME or NAME=VALUE; can be given several times
    #[arg(long, value_name = "LABEL")]
    label: Vec<LabelFilter>,
    /// Only sessions that are not closed
    #[arg(long, conflicts_with = "closed")]
    open: bool,
    /// Only closed sessions
    #[arg(long)]
    closed: bool,
    /// Only sessions with an open question
    #[arg(long)]
    waiting: bool,
    /// Only sessions that a process works on
    #[arg(long)]
    running: bool,
    /// Only sessions whose work was interrupted
    #[arg(long)]
    stopped: bool,
    /// Only sessions that a process has locked
    #[arg(long, alias = "held")]
    locked: bool,
    /// Only sessions under a legal hold (`rath store hold`)
    #[arg(long)]
    on_hold: bool,
    /// Also the store's audit session
    #[arg(long, short)]
    all: bool,
    /// Only sessions that changed since: 2h, 3d, yesterday, 2026-11-16
    #[arg(long, value_name = "TIME", value_parser = time::since)]
    since: Option<Time>,
    /// Sort by this, the most first
    #[arg(long, value_name = "BY", default_value = "time")]
    sort: Sort,
    /// List at most this many; 0 for all
    #[arg(long, short = 'n', value_name = "N", default_value_t = LIMIT)]
    limit: usize,
}

/// The order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Sort {
    /// The last change
    Time,
    /// The number of records
    Records,
    /// The cost of its own model calls
    Cost,
    /// The bytes of its records
    Size,
}

impl Ls {
    /// All sessions with these labels.
    pub(super) fn labelled(label: Option<LabelFilter>, limit: Option<usize>) -> Self {
        Self {
            label: label.into_iter().collect(),
            open: false,
            closed: false,
            waiting: false,
            running: false,
            stopped: false,
            locked: false,
            on_hold: false,
            all: false,
            since: None,
            sort: Sort::Time,
            limit: limit.unwrap_or(0),
        }
    }

    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let holds = if self.on_hold { Some(Holds::of(&store).await?) } else { None };
        let operator = if self.all { None } else { rath::query::operator_session(&store).await?.map(|row| row.id) };
        let on_hold = |row: &SessionInfo| holds.as_ref().is_none_or(|holds| holds.over_session(row.id).is_some());
        let keep = |row: &SessionInfo| Some(row.id) != operator && on_hold(row);
        let sizes = settings.embedded()?.sizes()?;
        let SessionList { listed, more, all } = SessionList::of(&store, &self.query(), &sizes, keep).await?;
        if settings.json {
            output::json_list("rath.ls/1", listed)?;
            return Ok(Answer::Yes);
        }
        let all = all - usize::from(operator.is_some()).min(all);
        match (listed.is_empty(), all) {
            (true, 0) => output::remark("no sessions yet\n  help: `rath run TASK` or `rath new TITLE` creates one"),
            (true, all) => output::remark(format_args!("no matching sessions ({all} total)")),
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
            held: self.locked,
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

/// The word for a state in the table. `held` is its name in JSON.
pub(super) fn state_word(activity: Activity) -> &'static str {
    match activity {
        Activity::Held => "locked",
        activity => activity.as_str(),
    }
}

fn coloured(activity: Activity) -> String {
    let text = format!("{:<7}", state_word(activity));
    match activity {
        Activity::Waiting | Activity::Stopped => style::label(text),
        Activity::Running => style::good(text),
        Activity::Closed => style::dim(text),
        Activity::Held | Activity::Open => text,
    }
}

/// Prints the table. A narrow one leaves out size, cost and time, in this order.
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
