use anyhow::{Context as _, Result};
use rath::Time;
use rath::body::Held;
use rath_audit::admin::{Age, Hold as InForce, Holds, StoreAdmin};

use super::end_holds;
use crate::commands::Answer;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::time;

/// Put sessions under a legal hold, end holds, or list them (without arguments)
///
/// A hold covers a session and everything that it is based on. While the hold is in force, `rath store erase` and
/// `rath store gc` refuse to touch these records and name the hold.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Hold {
    /// The sessions; with --end, also the records of holds
    sessions: Vec<String>,
    /// Every session that has this label now or later, NAME or NAME=VALUE
    #[arg(long, value_name = "LABEL")]
    label: Vec<String>,
    /// The reason
    #[arg(long, value_name = "TEXT", value_parser = crate::commands::reason)]
    why: Option<String>,
    /// When the hold ends by itself: a date, a time, or a duration from now (90d)
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Time>,
    /// End the holds
    #[arg(long, conflicts_with = "until")]
    end: bool,
}

/// Parses a date, a time with its zone, or a duration from now.
fn moment(text: &str) -> Result<Time, String> {
    let micros = |stamp: jiff::Timestamp| u64::try_from(stamp.as_microsecond()).map(Time).map_err(|e| e.to_string());
    if let Ok(age) = text.parse::<Age>() {
        return age.from(Time::now()).ok_or_else(|| "leave out --until for a hold without end".into());
    }
    if let Ok(stamp) = text.parse::<jiff::Timestamp>() {
        return micros(stamp);
    }
    let bad = |_| format!("{text:?} is not a time: 2026-12-31, 2026-12-31T12:00:00Z or 90d");
    let date: jiff::civil::Date = text.parse().map_err(bad)?;
    micros(date.to_zoned(jiff::tz::TimeZone::system()).map_err(bad)?.timestamp())
}

impl Hold {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        if self.sessions.is_empty() && self.label.is_empty() && !self.end {
            if self.why.is_some() || self.until.is_some() {
                return Err(expression::usage_error(
                    "no session or label is named\n  help: name sessions, or a label with --label",
                ));
            }
            return list(settings).await;
        }
        let why = self.why.ok_or_else(|| expression::usage_error("a hold needs a reason\n  help: --why TEXT"))?;
        if self.end {
            return end_holds(settings, &self.sessions, &self.label, &why).await;
        }
        if self.until.is_some_and(|until| until <= Time::now()) {
            return Err(expression::usage_error("--until is in the past: the hold would already have ended"));
        }
        let admin = StoreAdmin::new(settings.embedded()?, settings.actor());
        let mut sessions = Vec::new();
        for text in &self.sessions {
            sessions.push(expression::resolve_session(admin.store(), text).await?);
        }
        let record = admin.hold(Held { sessions, labels: self.label, why, until: self.until }).await?;
        let holds = Holds::of(admin.store()).await?;
        let hold = holds.all.iter().find(|hold| hold.record == record).context("the hold is not in force")?;
        if settings.json {
            output::json("rath.store.hold/1", hold)?
        } else {
            output::answer(record.point())?;
            output::remark(format_args!("{} under hold{}", what(hold), until(hold)));
        }
        Ok(Answer::Yes)
    }
}

async fn list(settings: &Settings) -> Result<Answer> {
    let holds = Holds::of(&settings.store()?).await?;
    if settings.json {
        output::json_list("rath.store.holds/1", &holds.all)?;
        return Ok(Answer::Yes);
    }
    if holds.all.is_empty() {
        output::remark("no holds\n  help: `rath store hold SESSION --why TEXT` protects a session from erasure");
    }
    let mut page = Page::default();
    for hold in &holds.all {
        page.line(format_args!(
            "{}  {}{}  {}",
            style::record(hold.record.point()),
            style::title(output::escaped(&what(hold))),
            until(hold),
            style::dim(output::escaped(&format!("by {}, {}: {}", hold.by, time::ago(hold.added), hold.held.why)))
        ));
    }
    page.show(settings)?;
    Ok(Answer::Yes)
}

/// The sessions and labels that a hold names.
pub(crate) fn what(hold: &InForce) -> String {
    let sessions = hold.held.sessions.iter().map(|session| format!("session {}", session.short()));
    let labels = hold.held.labels.iter().map(|label| format!("label {label}"));
    sessions.chain(labels).collect::<Vec<_>>().join(", ")
}

fn until(hold: &InForce) -> String {
    hold.held.until.map(|until| format!(" until {}", time::local(until))).unwrap_or_default()
}
