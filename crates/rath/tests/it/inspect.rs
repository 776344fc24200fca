//! Queries about stored sessions.

use std::sync::Arc;

use rath::control::{Answer, Control, Delivery, Error, InboxEntry};
use rath::inspect::transcript::{Differences, EntryKind, Transcript};
use rath::inspect::{self, Activity, Graph, RunState, RunStatus, SessionList, SessionQuery, StepNode};
use rath::prelude::*;
use serde_json::json;

/// Rings the bell.
#[tool(effect = "irreversible")]
fn ring() -> &'static str {
    "It rang."
}

async fn run(store: &Arc<dyn Store>) -> Result<Session> {
    let model = Scripted::new("scripted").call("ring", json!({})).say("Done.");
    let agent = Agent::new("ringer").model(model).tools(ring).tool_policy("ring", Decision::Ask);
    let task = async |session: &mut Session| session.user("Please ring.").map(drop);
    store.run("bell", Actor::program("test"), &agent, task).await
}

async fn status(store: &Arc<dyn Store>, id: SessionId) -> RunStatus {
    RunStatus::of(store, &View::of(store, id, None).await.unwrap()).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_observed_and_answered_without_a_terminal() {
    let store = InMemory::new();
    assert!(run(&store).await.is_err());
    let ada = Control::new(&store, Actor::person("ada"));
    let questions = ada.questions().await.unwrap();
    let id = questions[0].session;
    assert_eq!((questions.len(), status(&store, id).await.is), (1, RunState::Waiting));
    let waiting = SessionQuery { doing: vec![Activity::Waiting], ..SessionQuery::default() };
    let list = SessionList::of(&store, &waiting, &Default::default(), |_| true).await.unwrap();
    assert_eq!((list.listed.len(), list.listed[0].row.id, list.all), (1, id, 1));

    let inbox = ada.inbox(None).await.unwrap();
    let [InboxEntry::Question { question, .. }] = &inbox[..] else { panic!("{inbox:?}") };
    let text = serde_json::to_value(&inbox[0]).unwrap();
    assert_eq!((&text["about"], &text["at"]), (&json!("approval"), &json!(question.at)));
    let in_words = ada.answer(question, Answer::Text("perhaps".into())).await;
    assert!(matches!(in_words, Err(Error::YesOrNo(at)) if at == question.at));
    let answered = ada.answer(question, Answer::Yes).await.unwrap();
    assert!(matches!(answered, Delivery::Recorded(head) if head.session == id));
    assert!(!ada.is_open(question).await.unwrap());

    let session = run(&store).await.unwrap();
    assert_eq!(session.text().await.unwrap().as_deref(), Some("Done."));
    let (head, records) = (session.head(), session.view().await.unwrap().own_records().await.unwrap());
    assert_eq!(status(&store, id).await.is, RunState::Running, "this process holds it");
    drop(session);
    assert_eq!(status(&store, id).await.is, RunState::Done);
    let again = ada.cancel(id, "too late").await.unwrap();
    assert_eq!(again.run, Some(RunState::Done));

    let mut transcript = Transcript::new(store.clone(), Differences::Few);
    let mut told = Vec::new();
    for record in &records {
        told.extend(transcript.read(record).await.unwrap());
    }
    let tags: Vec<String> =
        told.iter().map(|entry| serde_json::to_value(entry).unwrap()["entry"].as_str().unwrap().to_owned()).collect();
    let expected = [
        "message",
        "step_entered",
        "step_entered",
        "turn_finished",
        "turn",
        "call_requested",
        "asked",
        "answered",
        "call_started",
        "call_finished",
        "turn_finished",
        "turn",
        "step_left",
        "step_left",
    ];
    assert_eq!(tags, expected);
    assert_eq!(transcript.depth(), 0);
    let depths: Vec<usize> = told.iter().map(|entry| entry.depth).collect();
    assert_eq!((depths[0], depths[2], depths[3], depths[13]), (0, 1, 2, 0));
    let calls: Vec<_> = told.iter().filter(|entry| entry.starts_call()).collect();
    assert!(
        matches!(&calls[..], [one] if matches!(&one.what, EntryKind::CallRequested { tool, .. } if tool == "ring"))
    );

    let steps = inspect::steps(&store, id, head.seq).await.unwrap();
    let names: Vec<_> = steps
        .iter()
        .map(|node| match node {
            StepNode::Step { name, depth, calls, .. } => (name.as_str(), *depth, *calls),
            StepNode::Branch { .. } => panic!("nothing was forked"),
        })
        .collect();
    assert_eq!(names, [("run", 0, 0), ("ringer", 1, 1)]);
    let graph = Graph::of_store(&store, 10).await.unwrap();
    assert_eq!((graph.sessions, graph.nodes.len(), graph.nodes[0].lane), (1, 2, 0));
}
