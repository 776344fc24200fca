use anyhow::Result;
use rath::Time;
use rath::body::{Outcome, Role};
use rath::inspect::StepNode;

use crate::commands::Answer;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::time;
use crate::transcript::{self, span, usage};

/// Show the steps of a session and its branches: duration, outcome, usage
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Steps {
    /// The session, or a record: then only the steps before it
    #[arg(default_value = "@")]
    pub(super) session: String,
}

impl Steps {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let place = expression::resolve(&store, &self.session).await?;
        let nodes = rath::inspect::steps(&store, place.session, place.seq).await?;
        if settings.json {
            output::json_list("rath.show.steps/1", nodes)?;
            return Ok(Answer::Yes);
        }
        if nodes.is_empty() {
            output::remark(format_args!("session {} has no steps", place.session.short()));
        }
        let mut page = Page::default();
        for node in &nodes {
            page.line(line(node));
        }
        page.show(settings)?;
        Ok(Answer::Yes)
    }
}

fn line(node: &StepNode) -> String {
    match node {
        StepNode::Branch { depth, session, from, why, closed, .. } => {
            let indent = depth * 2;
            let open = if *closed { "" } else { ", open" };
            let about =
                format!(" {}, from {from}{open}", crate::commands::log::clip(&rath::summary::one_line(why), 100));
            format!("{:indent$}⑂ {}{}", "", style::session(session.short()), style::dim(about))
        }
        StepNode::Step {
            depth,
            seq,
            name,
            role,
            model,
            entered,
            duration_us,
            outcome,
            why,
            more,
            turns,
            calls,
            usage: used,
            ..
        } => {
            let indent = depth * 2;
            let about = match (role, model, &more.workflow, &more.version) {
                (Some(Role::Agent), Some(model), ..) => format!(" (agent, {model})"),
                (Some(Role::Agent), None, ..) => " (agent)".to_owned(),
                (_, _, Some(workflow), Some(version)) => format!(" {workflow}, version {version}"),
                (_, _, Some(workflow), None) => format!(" {workflow}"),
                _ => String::new(),
            };
            let ended = match outcome {
                Some(Outcome::Done) => style::good("done"),
                Some(Outcome::Failed) => style::bad("failed"),
                Some(Outcome::Cancelled) => style::label("cancelled"),
                Some(Outcome::Unknown(way)) => style::bad(output::escaped(&way.to_string())),
                None => style::label("open"),
            };
            let took = match duration_us {
                Some(us) => format!(" in {}", span(*us)),
                None => format!(" since {}, for {}", time::local(*entered), span(Time::now().micros_since(*entered))),
            };
            let turns = if *turns > 0 { format!(", {}", output::count(*turns, "turn")) } else { String::new() };
            let calls = if *calls > 0 { format!(", {}", output::count(*calls, "call")) } else { String::new() };
            let why = match (why, outcome) {
                (Some(why), Some(_)) => format!(": {}", output::escaped(&rath::summary::one_line(why))),
                _ => String::new(),
            };
            let value = transcript::step_value(more.value.as_ref());
            format!(
                "{:indent$}▸ {}{} {} {ended}{}{why}{value}",
                "",
                style::title(output::escaped(name)),
                style::dim(output::escaped(&about)),
                style::record(format!("@{seq}")),
                style::dim(format!("{took}{turns}{calls}{}", usage(used))),
            )
        }
    }
}
