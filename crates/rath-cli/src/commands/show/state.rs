use anyhow::Result;
use rath::View;
use rath::body::{Effect, QuestionKind};
use rath::inspect::{FoldedState, label_text, placement_text};
use rath::session::{AgentAction, AgentPhase, OpenCall, OpenStep};

use crate::commands::Answer;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::time;

/// Show open steps, pending calls, usage and the next action
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct State {
    /// The session or record
    #[arg(default_value = "@", value_name = "SESSION")]
    pub(super) what: String,
}

impl State {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let place = expression::resolve(&store, &self.what).await?;
        let view = View::of(&store, place.session, Some(place.seq)).await?;
        if settings.json {
            output::json("rath.show.state/1", &FoldedState::from(&view))?;
        } else {
            as_text(&view).show(settings)?;
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
        line("title", output::escaped(title));
    }
    for (name, value) in &state.labels {
        line("label", style::label(output::escaped(&label_text(name, value))));
    }
    for step in &state.steps {
        line("step", step_line(step));
    }
    for call in &state.calls {
        line("call", call_line(call));
    }
    for ask in &state.asks {
        let about = match ask.about {
            QuestionKind::Approval => "approval of a call",
            QuestionKind::OutcomeUnknown => "a call with unknown outcome",
            QuestionKind::Question => "a question",
            QuestionKind::Unknown(_) => &ask.about.to_string(),
        };
        let call = ask.call.as_ref().map(|call| format!(" [{call}]")).unwrap_or_default();
        let inherited = if ask.inherited { ", inherited" } else { "" };
        line("question", output::escaped(&format!("{about}{call}, at @{}{inherited}", ask.seq)));
    }
    for wait in &state.waits {
        let name = wait.name.iter().map(|name| format!(" {name}")).collect::<String>();
        let until = wait.until.map(|until| format!(" until {}", time::local(until))).unwrap_or_default();
        let inherited = if wait.inherited { ", inherited" } else { "" };
        let text = format!("{}{name}{until} [{}], at @{}{inherited}", wait.what, wait.id, wait.seq);
        line("waits for", output::escaped(&text));
    }
    for grant in &state.granted {
        line("allowed", output::escaped(&grant.to_string()));
    }
    for conflict in &state.conflicts {
        line("conflict", style::bad(output::escaped(&format!("{} ({})", conflict.path, conflict.kind))));
    }
    line("usage", state.usage.to_string());
    if state.own_usage() != state.usage {
        line("own usage", state.own_usage().to_string());
    }
    if let Some(placement) = &state.placement {
        let isolated = if placement.isolated { String::new() } else { format!(", {}", style::label("not isolated")) };
        line("workspace", format!("{}{isolated}", output::escaped(&placement_text(placement))));
        if let Some(sandbox) = &placement.sandbox {
            line("sandbox", output::escaped(&format!("{}, generation {}", sandbox.id, sandbox.generation)));
        }
    }
    if state.arrived {
        line("workspace", style::label("none: the session was imported, and no workspace was set here").to_string());
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
    let inherited = if step.inherited { ", inherited" } else { "" };
    let run = step.run.as_ref().map(|run| {
        let phase = match run.phase {
            AgentPhase::Ready => "the model is to be called",
            AgentPhase::Requested => "a model request is open",
            AgentPhase::Calling => "calls are open",
            AgentPhase::Answered => "the model has finished",
            AgentPhase::Failed => "the model failed permanently",
        };
        let attempts = if run.attempts > 0 {
            format!(", {}", output::count(run.attempts.into(), "failed attempt"))
        } else {
            String::new()
        };
        format!(", {}{attempts}: {phase}", output::count(run.turns, "turn"))
    });
    format!("{}{}{inherited}", style::title(output::escaped(&step.name)), run.unwrap_or_default())
}

fn call_line(call: &OpenCall) -> String {
    let mut text = format!("{} [{}]", call.tool, call.id);
    text.push_str(match (&call.started, call.user_started) {
        (Some(_), _) | (None, true) => ", started",
        (None, false) => ", not started",
    });
    if let Some(started) = &call.started {
        text.push_str(match started.effect {
            Effect::Pure => ", pure",
            Effect::Idempotent => ", idempotent",
            Effect::Workspace => ", undone with the files",
            Effect::Irreversible => ", irreversible",
            Effect::Unknown(_) => ", effect unknown",
        });
        if started.attempt > 1 {
            text.push_str(&format!(", attempt {}", started.attempt));
        }
    }
    if let Some((seq, _)) = call.finished {
        text.push_str(&format!(", finished at @{seq}"));
    }
    match (call.asked, call.answered) {
        (Some(_), Some(seq)) => text.push_str(&format!(", question answered at @{seq}")),
        (Some(_), None) => text.push_str(", question open"),
        _ => {}
    }
    if call.inherited {
        text.push_str(", inherited");
    }
    output::escaped(&text)
}

fn next_line(next: Option<AgentAction>) -> String {
    match next {
        None => "nothing: no agent step is open".to_owned(),
        Some(AgentAction::CallModel) => "call the model".to_owned(),
        Some(AgentAction::RecoverRequest) => {
            "call the model again: the outcome of the last request is unknown".to_owned()
        }
        Some(AgentAction::CallTools(calls)) => {
            let calls: Vec<_> = calls.iter().map(|call| format!("{} [{}]", call.tool, call.id)).collect();
            output::escaped(&format!("make calls: {}", calls.join(", ")))
        }
        Some(AgentAction::Done) => "finish the step: done".to_owned(),
        Some(AgentAction::Failed) => "finish the step: failed".to_owned(),
    }
}
