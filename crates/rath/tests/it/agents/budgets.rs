//! Budgets: a run that reaches one ends cleanly and says which.

use rath::body::{Failed, Outcome, StepLeft};
use rath::{ErrorKind, Kind};
use serde_json::json;

use super::*;

/// A model that never comes to an end.
fn endless(usage: Usage) -> Scripted {
    Scripted::from_fn(move |_| Turn::new().call("nothing", json!({})).usage(usage))
}

async fn spent(budget: Budget, model: Scripted, retries: u32) -> (Session, String) {
    let agent = Agent::new("spender").model(model).tools(nothing).budget(budget).retries(retries, Duration::ZERO);
    let error = in_time(agent.forward(asked(&Memory::new()))).await.unwrap_err();
    assert_eq!(error.code(), "budget-spent", "{error}");
    let ErrorKind::Budget { agent, spent } = error.kind() else { panic!("{error}") };
    assert_eq!(agent, "spender");
    let spent = spent.clone();
    assert!(error.is_recorded());
    let session = error.into_sessions().remove(0);
    assert!(session.pending().is_empty());
    assert_eq!(session.at_risk(), 0);
    let failed = bodies::<Failed>(&session).await;
    assert_eq!((failed.len(), failed[0].code.as_deref()), (1, Some("budget-spent")));
    assert!(failed[0].why.contains(&spent), "{failed:?}");
    assert_eq!(bodies::<StepLeft>(&session).await.last().unwrap().outcome, Outcome::Failed);
    (session, spent)
}

fn usage() -> Usage {
    Usage { requests: 1, input_tokens: 60, output_tokens: 40, cost_nano_usd: 2_000_000, ..Usage::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns() {
    let (session, said) = spent(Budget::turns(3), endless(usage()), 0).await;
    assert_eq!(said, "3 turns of 3");
    assert_eq!((count(&session, Kind::Assistant).await, results(&session).await.len()), (3, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens() {
    let (session, said) = spent(Budget::turns(100).tokens(250), endless(usage()), 0).await;
    assert_eq!(said, "300 tokens of 250");
    assert_eq!(session.usage().requests, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn money() {
    let (session, said) = spent(Budget::UNLIMITED.usd(0.0075), endless(usage()), 0).await;
    assert_eq!(said, "$0.0080 of $0.0075");
    assert_eq!(session.usage().requests, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_before_a_turn() {
    let (session, said) = spent(Budget::UNLIMITED.wall_time(Duration::ZERO), endless(usage()), 0).await;
    assert!(said.ends_with(" s of 0.0 s"), "{said}");
    assert_eq!(count(&session, Kind::ModelRequested).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_in_the_middle_of_an_answer() {
    for retries in [0, 3] {
        let slow = Scripted::new("slow").turn(Turn::new().text("Never.").delay(FOR_EVER * 10));
        let budget = Budget::UNLIMITED.wall_time(Duration::from_millis(30));
        let (session, said) = spent(budget, slow, retries).await;
        assert!(said.ends_with(" s of 0.0 s"), "{said}");
        let failed = bodies::<rath::body::ModelFailed>(&session).await;
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert!(!failed[0].retried, "nothing was tried again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_pays_only_for_itself() {
    let script = Scripted::new("s")
        .turn(Turn::new().call("nothing", json!({})).usage(usage()))
        .turn(Turn::new().text("Done.").usage(usage()));
    let agent = Agent::new("spender").model(script).tools(nothing).budget(Budget::turns(2).tokens(101));
    let mut session = asked(&Memory::new());
    for _ in 0..3 {
        session = agent.forward(session).await.unwrap();
    }
    assert_eq!(session.usage().requests, 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_sub_agents_use_is_paid_for() {
    let inner = Scripted::new("s").turn(Turn::new().text("Cheap at the price.").usage(usage()));
    let inner = Agent::new("helper").model(inner).as_tool("Helps.");
    let outer = Scripted::from_fn(|_| Turn::new().call("helper", json!({ "task": "help" })).usage(Usage::default()));
    let agent = Agent::new("spender").model(outer).tools(inner).budget(Budget::turns(100).tokens(250));
    let error = agent.forward(asked(&Memory::new())).await.unwrap_err();
    assert!(error.to_string().contains("300 tokens of 250"), "{error}");
}
