use anyhow::Result;
use rath::View;
use rath::store::Which;
use rath_audit::care::{Care, Hold, Holds};

use super::{Answer, hold};
use crate::expression;
use crate::output;
use crate::settings::Settings;

/// End holds: what they covered may be erased and collected again
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Release {
    /// Sessions whose holds end, or the `held` records themselves
    #[arg(required_unless_present = "label")]
    what: Vec<String>,
    /// Holds on this label
    #[arg(long, value_name = "LABEL")]
    label: Vec<String>,
    /// The reason
    #[arg(long, value_name = "TEXT")]
    why: String,
}

impl Release {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let care = Care::new(settings.embedded()?, settings.actor());
        let holds = Holds::of(care.store()).await?;
        let mut ending: Vec<Hold> = Vec::new();
        for text in &self.what {
            let place = expression::resolve(care.store(), text).await?;
            let mut found: Vec<Hold> = match place.exact {
                true => {
                    let record = View::of(care.store(), place.session, Some(place.seq)).await?.reference();
                    holds.all.iter().filter(|hold| hold.record == record).cloned().collect()
                }
                false => {
                    let rows = care.store().sessions(Which::Id(place.session).into()).await?;
                    let names = |hold: &&Hold| hold.held.sessions.iter().any(|id| rows.iter().any(|row| row.id == *id));
                    holds.all.iter().filter(names).cloned().collect()
                }
            };
            if found.is_empty() {
                let why = match holds.over_session(place.session) {
                    Some(over) => format!(
                        "no hold names {text} itself; it is covered by {over}\n  help: release {}",
                        over.record.point()
                    ),
                    None => format!("{text} is not on hold\n  help: `rath hold` lists the holds in force"),
                };
                return Err(expression::unclear(why));
            }
            ending.append(&mut found);
        }
        for label in &self.label {
            let on_label = |hold: &&Hold| hold.held.labels.contains(label);
            let before = ending.len();
            ending.extend(holds.all.iter().filter(on_label).cloned());
            if ending.len() == before {
                return Err(expression::unclear(format!(
                    "no hold is on label {label}\n  help: `rath hold` lists them"
                )));
            }
        }
        ending.dedup_by_key(|hold| hold.record);
        let record = care.release(&ending, &self.why).await?;
        match settings.json {
            true => output::json(&serde_json::json!({ "record": record, "released": ending }))?,
            false => {
                output::answer(record.point())?;
                for over in &ending {
                    output::remark(format_args!("{} released", hold::what(over)));
                }
            }
        }
        Ok(Answer::Yes)
    }
}
