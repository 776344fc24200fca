//! The workflow's name and version that a run records.

use std::sync::Arc;

use rath::RunOptions;
use rath::inspect::{self, StepNode};
use rath::prelude::*;
use serde_json::json;

/// Asks for approval before it runs.
#[tool(effect = "irreversible")]
fn deploy() -> &'static str {
    "deployed"
}

async fn run(store: &Arc<dyn Store>) -> Result<Session> {
    let model = Scripted::new("scripted").call("deploy", json!({})).say("Done.");
    let agent = Agent::new("deployer").model(model).tools(deploy).tool_policy("deploy", Decision::Ask);
    let options = RunOptions::from(Actor::program("test")).workflow("release", "7");
    let task = async |session: &mut Session| session.user("Please deploy.").map(drop);
    store.run("release", options, &agent, task).await
}

/// The names and versions of all workflows that the session's steps record.
async fn workflows(store: &Arc<dyn Store>, id: SessionId) -> Vec<(String, Option<String>)> {
    let view = View::of(store, id, None).await.unwrap();
    let steps = inspect::steps(store, id, view.reference().seq).await.unwrap();
    let named = |step| match step {
        StepNode::Step { more, .. } => Some((more.workflow?, more.version)),
        StepNode::Branch { .. } => None,
    };
    steps.into_iter().filter_map(named).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resuming_a_run_keeps_the_name_and_version_of_its_workflow() {
    let store = InMemory::new();
    let recorded = [("release".to_owned(), Some("7".to_owned()))];
    drop(run(&store).await.unwrap_err());
    let control = rath::control::Control::new(&store, Actor::person("ada"));
    let question = &control.questions().await.unwrap()[0];
    let id = question.session;
    assert_eq!(workflows(&store, id).await, recorded);
    control.answer(question, rath::control::Answer::Yes).await.unwrap();
    drop(run(&store).await.unwrap());
    assert_eq!(workflows(&store, id).await, recorded);
}
