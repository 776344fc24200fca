//! The state of a run, as lines of a header.

use rath::SessionId;
use rath::inspect::{RunState, RunStatus, WaitingFor, WaitingQuestion};

use crate::output::{self, style};

/// The state of the run of `session`.
pub(crate) fn run_lines(run: &RunStatus, session: SessionId) -> Vec<String> {
    let key = run.key.as_ref().map(|key| style::dim(format!(", key {}", output::escaped(key)))).unwrap_or_default();
    let process = run.process.map(|process| style::dim(format!(", locked by process {process}"))).unwrap_or_default();
    // A branch is resumed with the run that it is part of.
    let resume = match run.key {
        Some(_) => style::dim(format!(" (rath resume {})", session.short())),
        None => String::new(),
    };
    let is = match run.is {
        RunState::NotBegun => style::label("not started"),
        RunState::Running => style::good("running"),
        RunState::Waiting if run.waiting.is_empty() => format!("{}{resume}", style::label("waiting")),
        RunState::Waiting => style::label("waiting for an answer"),
        RunState::Interrupted => format!("{}{resume}", style::bad("interrupted")),
        RunState::Done => style::good("done"),
        RunState::Failed => style::bad("failed"),
        RunState::Cancelled => style::label("cancelled"),
    };
    let mut lines = vec![format!("run: {is}{process}{key}")];
    for WaitingQuestion { at, ask } in &run.waiting {
        let about = match ask.about {
            rath::body::QuestionKind::Approval => "approval of a call",
            rath::body::QuestionKind::OutcomeUnknown => "a call with unknown outcome",
            rath::body::QuestionKind::Question => "a question",
            rath::body::QuestionKind::Unknown(_) => &output::escaped(&ask.about.to_string()),
        };
        lines.push(format!(
            "{} {}",
            style::label(format!("waiting: {about}")),
            style::dim(format!("(rath answer {at})"))
        ));
    }
    for WaitingFor { at, wait } in &run.waits {
        let what = match (&wait.name, wait.until) {
            (Some(name), _) => format!("event {}", output::escaped(name)),
            (None, Some(until)) => crate::time::local(until),
            (None, None) => output::escaped(&wait.what.to_string()),
        };
        let send = match &wait.name {
            Some(name) => format!(" (rath send {} --event {} JSON)", at.session.short(), output::escaped(name)),
            None => String::new(),
        };
        lines.push(format!("{}{}", style::label(format!("waiting: {what}")), style::dim(send)));
    }
    lines
}
