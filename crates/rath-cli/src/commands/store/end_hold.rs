use anyhow::Result;
use rath::store::SessionFilter;
use rath::{Reference, View};
use rath_audit::admin::{Hold, Holds, StoreAdmin};
use serde::Serialize;

use super::hold::what;
use crate::commands::Answer;
use crate::expression;
use crate::output;
use crate::settings::Settings;

/// Holds that were ended.
#[derive(Serialize)]
struct Ended {
    record: Reference,
    released: Vec<Hold>,
}

/// Ends the holds that name these sessions or labels, or whose records these are.
pub(crate) async fn end_holds(
    settings: &Settings,
    sessions: &[String],
    labels: &[String],
    why: &str,
) -> Result<Answer> {
    if sessions.is_empty() && labels.is_empty() {
        return Err(expression::usage_error(
            "no hold is named\n  help: name sessions, records of holds, or a label with --label",
        ));
    }
    let admin = StoreAdmin::new(settings.embedded()?, settings.actor());
    let holds = Holds::of(admin.store()).await?;
    let mut ending: Vec<Hold> = Vec::new();
    for text in sessions {
        let place = expression::resolve(admin.store(), text).await?;
        let mut found: Vec<Hold> = if place.exact {
            let record = View::of(admin.store(), place.session, Some(place.seq)).await?.reference();
            holds.all.iter().filter(|hold| hold.record == record).cloned().collect()
        } else {
            let rows = admin.store().sessions(SessionFilter::Id(place.session).into()).await?;
            let names = |hold: &&Hold| hold.held.sessions.iter().any(|id| rows.iter().any(|row| row.id == *id));
            holds.all.iter().filter(names).cloned().collect()
        };
        if found.is_empty() {
            let why = match holds.over_session(place.session) {
                Some(over) => {
                    format!("no hold names {text} itself; {over} covers it\n  help: end {}", over.record.point())
                }
                None => format!("{text} is not under a hold\n  help: `rath store hold` lists the holds in force"),
            };
            return Err(expression::usage_error(why));
        }
        ending.append(&mut found);
    }
    for label in labels {
        let on_label = |hold: &&Hold| hold.held.labels.contains(label);
        let before = ending.len();
        ending.extend(holds.all.iter().filter(on_label).cloned());
        if ending.len() == before {
            return Err(expression::usage_error(format!(
                "there is no hold on label {label}\n  help: `rath store hold` lists the holds"
            )));
        }
    }
    ending.dedup_by_key(|hold| hold.record);
    let record = admin.release(&ending, why).await?;
    if settings.json {
        output::json("rath.store.hold.end/1", &Ended { record, released: ending })?;
    } else {
        output::answer(record.point())?;
        for hold in &ending {
            output::remark(format_args!("{}: hold ended", what(hold)));
        }
    }
    Ok(Answer::Yes)
}
