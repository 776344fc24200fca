use anyhow::{Context as _, Result};
use rath::Time;
use rath::body::Held;
use rath_audit::care::{Age, Care, Hold as InForce, Holds};

use super::Answer;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::time;

/// Keep sessions from being erased or collected; without arguments, list the holds in force
///
/// A hold covers a session and everything that it stands on. While it is in force, neither `rath erase` nor `rath gc`
/// touches any of that, and each says whose hold it is.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Hold {
    /// The sessions
    sessions: Vec<String>,
    /// Every session that has this label, now or later (NAME or NAME=VALUE)
    #[arg(long, value_name = "LABEL")]
    label: Vec<String>,
    /// The reason
    #[arg(long, value_name = "TEXT", value_parser = super::reason)]
    why: Option<String>,
    /// When it ends by itself: a date, a time, or an age from now (90d)
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Time>,
}

/// A date, a time with its zone, or an age from now.
fn moment(text: &str) -> Result<Time, String> {
    let micros = |stamp: jiff::Timestamp| u64::try_from(stamp.as_microsecond()).map(Time).map_err(|e| e.to_string());
    if let Ok(age) = text.parse::<Age>() {
        return age.from(Time::now()).ok_or_else(|| "forever is what a hold lasts without --until".into());
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
        if self.sessions.is_empty() && self.label.is_empty() {
            if self.why.is_some() || self.until.is_some() {
                return Err(expression::unclear("what is to be held?\n  help: name sessions, or a label with --label"));
            }
            return list(settings).await;
        }
        let why = self.why.ok_or_else(|| expression::unclear("a hold needs a reason\n  help: --why TEXT"))?;
        if self.until.is_some_and(|until| until <= Time::now()) {
            return Err(expression::unclear("--until is in the past: the hold would cover nothing"));
        }
        let care = Care::new(settings.embedded()?, settings.actor());
        let mut sessions = Vec::new();
        for text in &self.sessions {
            sessions.push(expression::resolve_session(care.store(), text).await?);
        }
        let record = care.hold(Held { sessions, labels: self.label, why, until: self.until }).await?;
        let holds = Holds::of(care.store()).await?;
        let hold = holds.all.iter().find(|hold| hold.record == record).context("the hold is not in force")?;
        match settings.json {
            true => output::json(hold)?,
            false => {
                output::answer(record.point())?;
                output::remark(format_args!("{} on hold{}", what(hold), until(hold)));
            }
        }
        Ok(Answer::Yes)
    }
}

async fn list(settings: &Settings) -> Result<Answer> {
    let holds = Holds::of(&settings.store()?).await?;
    if settings.json {
        output::json_lines(&holds.all)?;
        return Ok(Answer::Yes);
    }
    if holds.all.is_empty() {
        output::remark("nothing is on hold\n  help: `rath hold SESSION --why TEXT` keeps one from being erased");
    }
    let mut page = Page::default();
    for hold in &holds.all {
        page.line(format_args!(
            "{}  {}{}  {}",
            style::record(hold.record.point()),
            style::title(output::harmless(&what(hold))),
            until(hold),
            style::dim(output::harmless(&format!("by {}, {}: {}", hold.by, time::ago(hold.placed), hold.held.why)))
        ));
    }
    page.show(settings)?;
    Ok(Answer::Yes)
}

/// What a hold names, in a few words.
pub(crate) fn what(hold: &InForce) -> String {
    let sessions = hold.held.sessions.iter().map(|session| format!("session {}", session.short()));
    let labels = hold.held.labels.iter().map(|label| format!("label {label}"));
    sessions.chain(labels).collect::<Vec<_>>().join(", ")
}

fn until(hold: &InForce) -> String {
    hold.held.until.map(|until| format!(" until {}", time::local(until))).unwrap_or_default()
}
