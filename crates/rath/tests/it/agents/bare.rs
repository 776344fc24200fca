//! Agents without a Tokio runtime: everything that waits still works.

use pollster::block_on;
use rath::agent::OnQuestion;
use rath::body::{Asked, CallOutcome, ModelFailed, ToolFinished, Verdict};
use serde_json::json;

use super::*;

/// Never ends.
#[tool(effect = "pure", timeout = "20ms")]
async fn stuck() -> String {
    std::future::pending().await
}

#[test]
fn a_request_is_sent_again_after_a_wait() {
    let turn = Turn::new().fails_first(2, Failure::transient("busy")).text("There.");
    let agent = Agent::new("bare").model(Scripted::new("s").turn(turn)).retries(2, Duration::from_millis(1));
    let session = block_on(agent.forward(asked(&InMemory::new()))).unwrap();
    assert_eq!(block_on(bodies::<ModelFailed>(&session)).len(), 2);
}

#[test]
fn a_call_that_takes_too_long_is_stopped() {
    let turn = Turn::new().call("stuck", json!({})).call("stuck", json!({}));
    let agent = Agent::new("bare").model(Scripted::new("s").turn(turn).say("Oh.")).tools(stuck);
    let session = block_on(agent.forward(asked(&InMemory::new()))).unwrap();
    let ends = block_on(bodies::<ToolFinished>(&session));
    assert_eq!(ends.iter().map(|end| end.outcome).collect::<Vec<_>>(), [CallOutcome::TimedOut; 2]);
}

#[test]
fn the_time_limit_of_the_budget_applies() {
    let model = Scripted::from_async_fn(|_| std::future::pending::<Turn>());
    let agent = Agent::new("bare").model(model).budget(Budget::UNLIMITED.wall_time(Duration::from_millis(20)));
    let error = block_on(agent.forward(asked(&InMemory::new()))).unwrap_err();
    assert_eq!(error.code(), "budget-spent", "{error}");
}

#[test]
fn a_post_stops_an_answer() {
    let store = InMemory::new();
    let session = asked(&store);
    let (inner, id) = (store.clone(), session.id());
    let model = Scripted::from_async_fn(move |_| {
        let store = inner.clone();
        async move {
            post(&store, id, PostContent::Cancel { why: "too slow".into() }).await;
            std::future::pending::<Turn>().await
        }
    });
    let error = block_on(Agent::new("bare").model(model).forward(session)).unwrap_err();
    assert_eq!(error.code(), "cancelled", "{error}");
}

#[test]
fn an_answer_is_waited_for() {
    let store = InMemory::new();
    let script = Scripted::new("s").call("ask_human", json!({ "question": "Which colour?" })).say("Done.");
    let agent = Agent::new("bare").model(script).tools(tools::ask_human);
    let mut session = asked(&store);
    session.provide(OnQuestion::Wait);
    let id = session.id();
    let answering = std::thread::spawn(move || {
        while block_on(stored::<Asked>(&store, id)).is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let ask = block_on(View::of(&store, id, None)).unwrap().pending().asks.remove(0);
        let (asked, shown_digest, verdict) = (ask.record, ask.shown_digest, Verdict::Text("red".into()));
        block_on(post(&store, id, PostContent::Answer { asked, shown_digest, verdict, why: None }));
    });
    let session = block_on(agent.forward(session)).unwrap();
    answering.join().unwrap();
    assert_eq!(block_on(results(&session))[0].1, "red");
}
