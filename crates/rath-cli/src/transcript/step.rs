//! Starts and ends of steps.

use rath::body::{Outcome, Role};
use rath::{Point, Time, Usage};

use super::text::{seq, span, usage};
use crate::output::{self, style};
use crate::time;

pub(super) fn entered(
    (name, role): (&str, Option<Role>),
    model: Option<&str>,
    version: Option<&str>,
    when: Time,
    at: Point,
) -> String {
    let role = match role {
        Some(Role::Agent) => "agent",
        Some(Role::Workflow) => "workflow",
        Some(Role::Validator) => "validator",
        Some(Role::Unknown(role)) => &output::escaped(&role.to_string()),
        None => "",
    };
    let version = version.map(|version| format!("version {version}"));
    let about = [role, model.unwrap_or_default(), version.as_deref().unwrap_or_default()];
    let about = about.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ");
    let about = if about.is_empty() { about } else { format!("({about}) ") };
    let clock = time::local(when).get(11..19).unwrap_or_default().to_owned();
    let about = style::dim(output::escaped(&format!("{about}{clock}")));
    format!("▸ {} {about} {}", style::title(output::escaped(name)), seq(at))
}

pub(super) fn finished(name: &str, outcome: Outcome, duration_us: u64, turns: Option<u64>, used: &Usage) -> String {
    let turns = turns.map(|turns| format!(", {}", output::count(turns, "turn"))).unwrap_or_default();
    let took = style::dim(format!(" in {}{turns}{}", span(duration_us), usage(used)));
    format!("◂ {} {}{took}", style::title(output::escaped(name)), ended(outcome))
}

/// The outcome of a step, coloured.
fn ended(outcome: Outcome) -> String {
    match outcome {
        Outcome::Done => style::good("done"),
        Outcome::Failed => style::bad("failed"),
        Outcome::Cancelled => style::label("cancelled"),
        Outcome::Unknown(_) => style::bad(output::escaped(&outcome.to_string())),
    }
}
