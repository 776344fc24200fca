use anyhow::Result;
use rath::body::{About, Effect};
use rath::inspect::{FoldedState, label_text, placement_text};
use rath::{Next, OpenCall, OpenStep, Phase, View};

use super::Answer;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::time;

/// Show what the records up to one of them come to: what is open, what was used, what is next
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct State {
    /// The session or record
    #[arg(default_value = "@")]
    what: String,
}

impl State {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let place = expression::resolve(&store, &self.what).await?;
        let view = View::of(&store, place.session, Some(place.seq)).await?;
        match settings.json {
            true => output::json(&FoldedState::from(&view))?,
            false => as_text(&view).show(settings)?,
        }
        Ok(Answer::Yes)
    }
}

fn as_text(view: &View) -> Page {
    let state = view.state();
    let mut page = Page::default();
    let mut line = |name: &str, text: String| page.line(format_args!("{} {text}", style::dim(format!("{name:<10}"))));
    line("at", format!("{} {}", style::record(view.reference().point()), style::title(view.record().kind())));
    if let Some(title) = &state.title {
        line("title", output::harmless(title));
    }
    for (name, value) in &state.labels {
        line("label", style::label(output::harmless(&label_text(name, value))));
    }
    for step in &state.steps {
        line("step", step_line(step));
    }
    for call in &state.calls {
        line("call", call_line(call));
    }
    for ask in &state.asks {
        let about = match ask.about {
            About::Approval => "may a call be made?",
            About::InDoubt => "did a call happen?",
            About::Question => "a question",
            About::Unknown(_) => &ask.about.to_string(),
        };
        let call = ask.call.as_ref().map(|call| format!(" [{call}]")).unwrap_or_default();
        let inherited = if ask.inherited { ", from before the fork" } else { "" };
        line("asks", output::harmless(&format!("{about}{call}, at @{}{inherited}", ask.seq)));
    }
    for wait in &state.waits {
        let name = wait.name.iter().map(|name| format!(" {name}")).collect::<String>();
        let until = wait.until.map(|until| format!(" until {}", time::local(until))).unwrap_or_default();
        let inherited = if wait.inherited { ", from before the fork" } else { "" };
        let text = format!("{}{name}{until} [{}], at @{}{inherited}", wait.what, wait.id, wait.seq);
        line("waits", output::harmless(&text));
    }
    for grant in &state.granted {
        line("always", output::harmless(&grant.to_string()));
    }
    for conflict in &state.conflicts {
        line("conflict", style::bad(output::harmless(&format!("{} ({})", conflict.path, conflict.kind))));
    }
    line("usage", state.usage.to_string());
    if state.own_usage() != state.usage {
        line("its own", state.own_usage().to_string());
    }
    if let Some(placement) = &state.placement {
        let isolated = if placement.isolated { String::new() } else { format!(", {}", style::label("not isolated")) };
        line("works on", format!("{}{isolated}", output::harmless(&placement_text(placement))));
        if let Some(sandbox) = &placement.sandbox {
            line("sandbox", output::harmless(&format!("{}, generation {}", sandbox.id, sandbox.generation)));
        }
    }
    if state.arrived {
        line("works on", style::label("nothing here: it came from elsewhere, and nobody gave it a place").to_string());
    }
    if let Some(version) = &state.workspace {
        line("files", version.to_string());
    }
    if state.closed {
        line("closed", String::new());
    }
    line("next", next_line(state.next()));
    page
}

fn step_line(step: &OpenStep) -> String {
    let inherited = if step.inherited { ", from before the fork" } else { "" };
    let run = step.run.as_ref().map(|run| {
        let phase = match run.phase {
            Phase::Ready => "the model has something to answer",
            Phase::Requested => "a request is out",
            Phase::Calling => "calls wait for their results",
            Phase::Answered => "the model said its last word",
            Phase::Failed => "the model failed for good",
        };
        let attempts = if run.attempts > 0 { format!(", asked {} times in vain", run.attempts) } else { String::new() };
        format!(", {}{attempts}: {phase}", output::count(run.turns, "turn"))
    });
    format!("{}{}{inherited}", style::title(output::harmless(&step.name)), run.unwrap_or_default())
}

fn call_line(call: &OpenCall) -> String {
    let mut text = format!("{} [{}]", call.tool, call.id);
    text.push_str(match (&call.started, call.own) {
        (Some(_), _) | (None, true) => ", started",
        (None, false) => ", not started",
    });
    if let Some(started) = &call.started {
        text.push_str(match started.effect {
            Effect::Pure => ", pure",
            Effect::Idempotent => ", idempotent",
            Effect::Workspace => ", undone with the files",
            Effect::Irreversible => ", cannot be taken back",
            Effect::Unknown(_) => ", not known whether it can be taken back",
        });
        if started.attempt > 1 {
            text.push_str(&format!(", attempt {}", started.attempt));
        }
    }
    if let Some((seq, _)) = call.finished {
        text.push_str(&format!(", finished at @{seq}"));
    }
    match (call.asked, call.answered) {
        (Some(_), Some(seq)) => text.push_str(&format!(", asked about, answered at @{seq}")),
        (Some(_), None) => text.push_str(", asked about, not answered"),
        _ => {}
    }
    if call.inherited {
        text.push_str(", from before the fork");
    }
    output::harmless(&text)
}

fn next_line(next: Option<Next>) -> String {
    match next {
        None => "nothing: no agent is at work here".to_owned(),
        Some(Next::CallModel) => "ask the model".to_owned(),
        Some(Next::ModelInDoubt) => "ask the model again: nobody knows what came of the last request".to_owned(),
        Some(Next::CallTools(calls)) => {
            let calls: Vec<_> = calls.iter().map(|call| format!("{} [{}]", call.tool, call.id)).collect();
            output::harmless(&format!("make calls, or what is left of them: {}", calls.join(", ")))
        }
        Some(Next::Done) => "leave the step: done".to_owned(),
        Some(Next::Failed) => "leave the step: failed".to_owned(),
    }
}
