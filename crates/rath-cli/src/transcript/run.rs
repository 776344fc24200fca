//! Where a run stands, as lines of a header.

use rath::SessionId;
use rath::inspect::{RunState, RunStatus, WaitingQuestion};

use crate::output::{self, style};

/// Where the run of `session` stands.
pub(crate) fn run_lines(run: &RunStatus, session: SessionId) -> Vec<String> {
    let key = run.key.as_ref().map(|key| style::dim(format!(", key {}", output::harmless(key)))).unwrap_or_default();
    let process = run.process.map(|process| style::dim(format!(", held by process {process}"))).unwrap_or_default();
    // A branch goes on with the run that it is part of.
    let go_on = match run.key {
        Some(_) => style::dim(format!(" (rath resume {})", session.short())),
        None => String::new(),
    };
    let is = match run.is {
        RunState::NotBegun => style::label("not begun"),
        RunState::Running => style::good("running"),
        RunState::Waiting => style::label("waiting for an answer"),
        RunState::Interrupted => format!("{}{go_on}", style::bad("interrupted")),
        RunState::Done => style::good("done"),
        RunState::Failed => style::bad("failed"),
        RunState::Cancelled => style::label("cancelled"),
    };
    let mut lines = vec![format!("run: {is}{process}{key}")];
    for WaitingQuestion { at, ask } in &run.waiting {
        let about = match ask.about {
            rath::body::About::Approval => "may a call be made?",
            rath::body::About::InDoubt => "did a call happen?",
            rath::body::About::Question => "a question",
            rath::body::About::Unknown(_) => &output::harmless(&ask.about.to_string()),
        };
        lines.push(format!(
            "{} {}",
            style::label(format!("waiting: {about}")),
            style::dim(format!("(rath answer {at})"))
        ));
    }
    lines
}
