//! Cancelled runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rath::Kind;
use rath::body::{CallOutcome, Cancelled, ModelFailed, Outcome, StepLeft, ToolFinished, ToolStarted};
use rath::workspaces::PlacementSpec;
use serde_json::json;
use tokio::sync::Notify;

use super::*;
use crate::support::Shop;

/// Checks that a cancelled run left nothing open.
async fn clean(error: Error, why: &str) -> Session {
    assert!(error.is_cancelled() && error.to_string().contains(why), "{error}");
    assert_eq!((error.code(), error.is_recorded()), ("cancelled", true));
    let session = error.into_sessions().remove(0);
    assert!(session.pending().is_empty(), "{:?}", session.pending());
    assert_eq!(session.unpublished_count(), 0);
    let cancelled = bodies::<Cancelled>(&session).await;
    assert_eq!(cancelled.len(), 1, "said once");
    assert!(cancelled[0].why.contains(why), "{cancelled:?}");
    assert_eq!(count(&session, Kind::Failed).await, 0, "nothing failed");
    assert!(bodies::<StepLeft>(&session).await.iter().all(|left| left.outcome == Outcome::Cancelled));
    assert_eq!(count(&session, Kind::StepLeft).await, count(&session, Kind::StepEntered).await);
    session
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_the_first_turn() {
    let mut session = asked(&InMemory::new());
    session.cancel_token().cancel("changed my mind");
    let agent = Agent::new("idle").model(Scripted::new("s").say("Never."));
    let session = clean(agent.forward(session).await.unwrap_err(), "changed my mind").await;
    assert_eq!(count(&session, Kind::ModelRequested).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn during_an_answer() {
    let asked_it = Arc::new(Notify::new());
    let notify = asked_it.clone();
    let model = Scripted::from_async_fn(move |_| {
        notify.notify_one();
        async { Turn::new().text("Never.").delay(FOR_EVER * 10) }
    });
    let mut session = asked(&InMemory::new());
    let token = session.cancel_token();
    let outer = session.step("outer", async |session: Session| Agent::new("slow").model(model).forward(session).await);
    let (ended, ()) = tokio::join!(in_time(outer), async {
        asked_it.notified().await;
        token.cancel("too slow");
    });
    let session = clean(ended.unwrap_err(), "too slow").await;
    let failed = bodies::<ModelFailed>(&session).await;
    assert_eq!((failed.len(), failed[0].retried), (1, false), "the request does not stay open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn during_a_wait_before_the_next_attempt() {
    let mut session = asked(&InMemory::new());
    let token = session.cancel_token();
    let model = Scripted::from_async_fn(move |_| {
        token.cancel("no more");
        async { Failure { after: Some(Duration::from_secs(60)), ..Failure::transient("later") } }
    });
    let agent = Agent::new("waiting").model(model).retries(5, FOR_EVER);
    clean(in_time(agent.forward(session)).await.unwrap_err(), "no more").await;
}

#[tokio::test(start_paused = true)]
async fn by_a_post_during_a_wait_before_the_next_attempt() {
    let store = InMemory::new();
    let session = asked(&store);
    let (inner, id) = (store.clone(), session.id());
    let model = Scripted::from_async_fn(move |_| {
        let store = inner.clone();
        async move {
            post(&store, id, PostContent::Cancel { why: "no more".into() }).await;
            Failure { after: Some(Duration::from_secs(60)), ..Failure::transient("later") }
        }
    });
    let agent = Agent::new("waiting").model(model).retries(5, FOR_EVER);
    let ended = tokio::time::timeout(Duration::from_secs(30), agent.forward(session)).await;
    clean(ended.expect("it is heard before the wait is over").unwrap_err(), "no more").await;
    assert!(store.posts(id).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_inbox_is_read_at_boundaries_and_after_posts() {
    let (store, inbox_reads) = Hooked::counting(InMemory::new());
    let session = asked(&store);
    let (inner, id) = (store.clone(), session.id());
    let model = Scripted::from_async_fn(move |_| {
        let store = inner.clone();
        async move {
            // Posts to other sessions wake the run, which finds none for itself.
            let mut other = asked(&store);
            other.publish().await.unwrap();
            post(&store, other.id(), PostContent::Cancel { why: "not this one".into() }).await;
            Turn::new().text("At last.").delay(Duration::from_secs(3600))
        }
    });
    let session = Agent::new("slow").model(model).forward(session).await.unwrap();
    assert_eq!((session.id(), session.state().steps.len()), (id, 0));
    let reads = inbox_reads.load(Ordering::Acquire);
    assert!((1..=4).contains(&reads), "{reads} reads in an hour");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn during_calls() {
    for calls in [1, 3] {
        let begun = Arc::new(Notify::new());
        let mut turn = Turn::new().call("echo", json!({ "text": "quick" }));
        for _ in 0..calls {
            turn = turn.call("until_stopped", json!({}));
        }
        let agent = Agent::new("busy").model(Scripted::new("s").turn(turn).say("Never.")).tools((echo, until_stopped));
        let mut session = asked(&InMemory::new());
        session.provide_shared(begun.clone());
        let token = session.cancel_token();
        let (ended, ()) = tokio::join!(in_time(agent.forward(session)), async {
            begun.notified().await;
            token.cancel("enough");
        });
        let session = clean(ended.unwrap_err(), "enough").await;
        assert_eq!(count(&session, Kind::ToolStarted).await, count(&session, Kind::ToolFinished).await);
        let ends = bodies::<ToolFinished>(&session).await;
        let stopped = ends.iter().filter(|end| end.outcome == CallOutcome::Cancelled).count();
        assert!(stopped >= calls, "{ends:?}");
        assert!(
            ends.iter().any(|end| format!("{:?}", end.output).contains("stopped in good order")),
            "its last words are kept"
        );
        assert_eq!(results(&session).await.len(), 0);
        assert_eq!(count(&session, Kind::ModelRequested).await, 1);
    }
}

/// Writes after it is cancelled.
#[tool(effect = "workspace")]
async fn write_late(call: &Call, begun: Resource<Notify>) -> String {
    begun.notify_one();
    call.cancel.cancelled().await;
    "late".into()
}

/// Ends some time after it is cancelled.
#[tool(effect = "pure")]
async fn end_last(call: &Call, wrote: Resource<AtomicBool>) -> String {
    call.cancel.cancelled().await;
    // The call before this one ends first, and so is recorded while this one runs.
    while !wrote.load(Ordering::Acquire) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        wrote.store(true, Ordering::Release);
    }
    "last".into()
}

/// Must not be called.
#[tool(effect = "workspace")]
async fn write_after(called: Resource<AtomicU64>) -> String {
    called.fetch_add(1, Ordering::AcqRel);
    "called".into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_starts_after_a_cancellation() {
    let shop = Shop::new();
    let mut session = asked(&shop.store);
    shop.workspaces.assign(&mut session, PlacementSpec::empty("host")).await.unwrap();
    let (begun, called) = (Arc::new(Notify::new()), Arc::new(AtomicU64::new(0)));
    session.provide(shop.second());
    session.provide_shared(begun.clone());
    session.provide_shared(called.clone());
    session.provide(AtomicBool::new(false));
    let turn = Turn::new().call("write_late", json!({})).call("end_last", json!({})).call("write_after", json!({}));
    let agent = Agent::new("busy").model(Scripted::new("s").turn(turn)).tools((write_late, end_last, write_after));
    let token = session.cancel_token();
    let (ended, ()) = tokio::join!(in_time(agent.forward(session)), async {
        begun.notified().await;
        token.cancel("enough");
    });
    let session = clean(ended.unwrap_err(), "enough").await;
    assert_eq!(called.load(Ordering::Acquire), 0, "a call was made after the run was stopped");
    assert_eq!(bodies::<ToolStarted>(&session).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_a_post() {
    let store = InMemory::new();
    let session = asked(&store);
    let id = session.id();
    let inner = store.clone();
    let model = Scripted::from_async_fn(move |_| {
        let store = inner.clone();
        async move {
            post(&store, id, PostContent::Cancel { why: "the budget is cut".into() }).await;
            Turn::new().call("nothing", json!({}))
        }
    });
    let agent = Agent::new("watched").model(model).tools(nothing);
    let session = clean(agent.forward(session).await.unwrap_err(), "the budget is cut").await;
    assert_eq!(count(&session, Kind::ToolStarted).await, 0, "the calls of the turn were not made");
    let cancelled = bodies::<Cancelled>(&session).await;
    assert_eq!(cancelled[0].calls, ["call-0-0"]);
    assert!(cancelled[0].why.contains("grace"), "it says who: {cancelled:?}");
    assert!(store.posts(id).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sub_agent_stops_with_its_caller() {
    let begun = Arc::new(Notify::new());
    let inner = Scripted::new("s").call("until_stopped", json!({})).say("Never.");
    let inner = Agent::new("helper").model(inner).tools(until_stopped).as_tool("Helps.");
    let turn = Turn::new().call("helper", json!({ "task": "one" })).call("helper", json!({ "task": "two" }));
    let agent = Agent::new("outer").model(Scripted::new("s").turn(turn).say("Never.")).tools(inner);
    let store = InMemory::new();
    let mut session = asked(&store);
    session.provide_shared(begun.clone());
    let token = session.cancel_token();
    let (ended, ()) = tokio::join!(in_time(agent.forward(session)), async {
        begun.notified().await;
        token.cancel("enough");
    });
    let session = clean(ended.unwrap_err(), "enough").await;
    assert_eq!(results(&session).await.len(), 0);
    let children = store.sessions(rath::store::SessionFilter::ChildrenOf(session.id()).into()).await.unwrap();
    assert_eq!(children.len(), 2);
    for child in children {
        let view = View::of(&store, child.id, None).await.unwrap();
        assert!(view.pending().is_empty(), "{:?}", view.pending());
        let cancelled = stored::<Cancelled>(&store, child.id).await;
        assert_eq!(cancelled.len(), 1);
        assert!(cancelled[0].why.contains("enough"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_question_is_open() {
    let store = InMemory::new();
    let mut session = asked(&store);
    session.provide(rath::agent::OnQuestion::Wait);
    let (token, id) = (session.cancel_token(), session.id());
    let script = Scripted::new("s").call("ask_human", json!({ "question": "Really?" })).say("Never.");
    let agent = Agent::new("asking").model(script).tools(tools::ask_human);
    let (ended, ()) = tokio::join!(in_time(agent.forward(session)), async {
        while stored::<rath::body::Asked>(&store, id).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        token.cancel("nobody is here");
    });
    clean(ended.unwrap_err(), "nobody is here").await;
}

/// Ends some time after it is cancelled.
#[tool(effect = "pure")]
async fn end_after(seconds: u64, call: &Call, begun: Resource<Notify>) -> String {
    begun.notify_one();
    call.cancel.cancelled().await;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    "ended".into()
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ignores_cancellation_is_dropped_after_ten_seconds() {
    let alone = Turn::new().call("deaf", json!({}));
    let together = alone.clone().call("end_after", json!({ "seconds": 9 }));
    for (turn, calls) in [(alone, 1), (together, 2)] {
        let agent = Agent::new("busy").model(Scripted::new("s").turn(turn)).tools((deaf, end_after));
        let (begun, dropped) = (Arc::new(Notify::new()), Arc::new(AtomicU64::new(0)));
        let mut session = asked(&InMemory::new());
        session.provide_shared(begun.clone());
        session.provide_shared(dropped.clone());
        let token = session.cancel_token();
        let (ended, ()) = tokio::join!(tokio::time::timeout(Duration::from_secs(11), agent.forward(session)), async {
            begun.notified().await;
            token.cancel("enough");
        });
        let session = clean(ended.expect("it is dropped").unwrap_err(), "enough").await;
        assert_eq!(dropped.load(Ordering::Acquire), 1, "nothing of it goes on");
        let ends = bodies::<ToolFinished>(&session).await;
        assert_eq!(ends.len(), calls);
        let dropped = ends.last().unwrap();
        assert_eq!(
            (dropped.outcome, dropped.output[0].text.as_deref()),
            (CallOutcome::Cancelled, Some("The call was stopped."))
        );
        if let [heard, _] = ends.as_slice() {
            assert_eq!((heard.outcome, heard.output[0].text.as_deref()), (CallOutcome::Done, Some("ended")));
        }
    }
}
