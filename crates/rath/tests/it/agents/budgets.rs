//! Budgets: a run that reaches a limit ends cleanly, and its error names the limit.

use rath::agent::OnQuestion;
use rath::body::{Asked, CallOutcome, Failed, ModelFailed, Outcome, QuestionKind, StepLeft, ToolFinished, Verdict};
use rath::store::SessionFilter;
use rath::{ErrorKind, Kind};
use serde_json::json;

use super::*;

/// A model that never stops calling tools.
fn endless(usage: Usage) -> Scripted {
    Scripted::from_fn(move |_| Turn::new().call("nothing", json!({})).usage(usage))
}

async fn spent(budget: Budget, model: Scripted, retries: u32) -> (Session, String) {
    let agent = Agent::new("spender").model(model).tools(nothing).budget(budget).retries(retries, Duration::ZERO);
    spent_on(&InMemory::new(), agent).await
}

async fn spent_on(store: &Arc<dyn Store>, agent: Agent) -> (Session, String) {
    let mut session = asked(store);
    session.provide(OnQuestion::Wait);
    let error = in_time(agent.forward(session)).await.unwrap_err();
    assert_eq!(error.code(), "budget-spent", "{error}");
    let Some(ErrorKind::Budget { agent, spent }) = error.cause() else { panic!("{error}") };
    assert_eq!(agent, "spender");
    let spent = spent.clone();
    assert!(error.is_recorded());
    let session = error.into_sessions().remove(0);
    assert!(session.pending().is_empty());
    assert_eq!(session.unpublished_count(), 0);
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
        let failed = bodies::<ModelFailed>(&session).await;
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert!(!failed[0].retried, "nothing was tried again");
    }
}

/// Half a minute.
fn short() -> Budget {
    Budget::UNLIMITED.wall_time(Duration::from_secs(30))
}

#[tokio::test(start_paused = true)]
async fn time_while_calls_run() {
    for calls in [1, 3] {
        let turn = (0..calls).fold(Turn::new(), |turn, _| turn.call("until_stopped", json!({})));
        let agent = Agent::new("spender").model(Scripted::new("s").turn(turn)).tools(until_stopped);
        let agent = agent.with(tokio::sync::Notify::new()).budget(short());
        let (session, said) = spent_on(&InMemory::new(), agent).await;
        assert_eq!(said, "30.0 s of 30.0 s");
        let ends = bodies::<ToolFinished>(&session).await;
        assert_eq!((ends.len(), count(&session, Kind::ToolStarted).await), (calls, calls));
        for end in ends {
            assert_eq!(end.outcome, CallOutcome::Cancelled);
            assert_eq!(end.output[0].text.as_deref(), Some("stopped in good order"));
        }
        assert_eq!(count(&session, Kind::ModelRequested).await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn time_while_calls_run_that_ignore_cancellation() {
    let dropped = Arc::new(AtomicU64::new(0));
    let turn = Turn::new().call("deaf", json!({})).call("until_stopped", json!({}));
    let agent = Agent::new("spender").model(Scripted::new("s").turn(turn)).tools((deaf, until_stopped));
    let agent = agent.with(tokio::sync::Notify::new()).with_shared(dropped.clone()).budget(short());
    let (session, _) = spent_on(&InMemory::new(), agent).await;
    assert_eq!(dropped.load(Ordering::Acquire), 1);
    assert!(bodies::<ToolFinished>(&session).await.iter().all(|end| end.outcome == CallOutcome::Cancelled));
    assert_eq!(count(&session, Kind::ToolFinished).await, 2);
}

#[tokio::test(start_paused = true)]
async fn time_before_the_next_attempt() {
    let busy = Failure { after: Some(Duration::from_secs(60)), ..Failure::transient("busy") };
    let agent = Agent::new("spender").model(Scripted::new("s").turn(busy)).budget(short()).retries(3, Duration::ZERO);
    let (session, said) = spent_on(&InMemory::new(), agent).await;
    assert_eq!(said, "30.0 s of 30.0 s");
    assert_eq!(count(&session, Kind::ModelRequested).await, 1);
}

#[tokio::test(start_paused = true)]
async fn time_of_a_caller_stops_a_sub_agent() {
    let store = InMemory::new();
    let inner = Agent::new("helper").model(Scripted::new("s").call("until_stopped", json!({}))).tools(until_stopped);
    let inner = inner.with(tokio::sync::Notify::new()).as_tool("Helps.");
    let outer = Scripted::new("s").call("helper", json!({ "task": "help" }));
    let agent = Agent::new("spender").model(outer).tools(inner).budget(short());
    let (session, _) = spent_on(&store, agent).await;
    let children = store.sessions(SessionFilter::ChildrenOf(session.id()).into()).await.unwrap();
    let view = View::of(&store, children[0].id, None).await.unwrap();
    assert!(view.pending().is_empty(), "{:?}", view.pending());
    assert_eq!(stored::<ToolFinished>(&store, children[0].id).await[0].outcome, CallOutcome::Cancelled);
}

/// Answers the only open question in the store.
async fn answer_it(store: &Arc<dyn Store>) {
    for row in store.sessions(SessionFilter::All.into()).await.unwrap() {
        if let [ask] = &*View::of(store, row.id, None).await.unwrap().pending().asks {
            let (asked, shown_digest) = (ask.record, ask.shown_digest);
            post(store, row.id, PostContent::Answer { asked, shown_digest, verdict: Verdict::Yes, why: None }).await;
        }
    }
}

/// A run that waits for answers.
async fn run_patiently(store: &Arc<dyn Store>, agent: &Agent) -> Result<Session> {
    let patient = async |mut session: Session| {
        session.provide(OnQuestion::Wait);
        agent.forward(session).await
    };
    let input = async |session: &mut Session| session.user("Please.").map(|_| ());
    in_time(store.run("r", Actor::program("test"), &patient, input)).await
}

fn asks(name: &str) -> Agent {
    let script = Scripted::new("s").call("ask_human", json!({ "question": "Which?" })).say("Thanks.");
    Agent::new(name).model(script).tools(tools::ask_human)
}

#[tokio::test(start_paused = true)]
async fn time_while_only_an_answer_is_missing_leaves_the_run_waiting() {
    let calls_one = Scripted::new("s").call("helper", json!({ "task": "ask" })).say("Thanks.");
    let calls_one = Agent::new("spender").model(calls_one).tools(asks("helper").as_tool("Asks."));
    for agent in [asks("spender"), calls_one] {
        let (store, agent) = (InMemory::new(), agent.budget(short()));
        let error = run_patiently(&store, &agent).await.unwrap_err();
        assert_eq!(error.code(), "waiting", "{error}");
        drop(error);
        answer_it(&store).await;
        let session = run_patiently(&store, &agent).await.unwrap();
        assert_eq!(session.text().await.unwrap().as_deref(), Some("Thanks."));
        for row in store.sessions(SessionFilter::All.into()).await.unwrap() {
            let asked = stored::<Asked>(&store, row.id).await;
            assert!(asked.iter().all(|asked| asked.about == QuestionKind::Question));
            assert_eq!(stored::<Failed>(&store, row.id).await.len(), 0, "nothing failed");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn time_while_calls_and_an_answer_are_missing() {
    let turn = Turn::new().call("helper", json!({ "task": "ask" })).call("until_stopped", json!({}));
    let agent = Agent::new("spender").model(Scripted::new("s").turn(turn));
    let agent = agent.tools((asks("helper").as_tool("Asks."), until_stopped)).with(tokio::sync::Notify::new());
    let store = InMemory::new();
    let (session, _) = spent_on(&store, agent.budget(short())).await;
    assert_eq!(count(&session, Kind::ToolFinished).await, 2, "every call that began has an end");
    for row in store.sessions(SessionFilter::All.into()).await.unwrap() {
        let pending = View::of(&store, row.id, None).await.unwrap().pending();
        assert!(pending.is_empty(), "{pending:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_usage_of_the_step_counts() {
    let script = Scripted::new("s")
        .turn(Turn::new().call("nothing", json!({})).usage(usage()))
        .turn(Turn::new().text("Done.").usage(usage()));
    let agent = Agent::new("spender").model(script).tools(nothing).budget(Budget::turns(2).tokens(101));
    let mut session = asked(&InMemory::new());
    for _ in 0..3 {
        session = agent.forward(session).await.unwrap();
    }
    assert_eq!(session.usage().requests, 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_of_sub_agents_counts() {
    let inner = Scripted::new("s").turn(Turn::new().text("Cheap at the price.").usage(usage()));
    let inner = Agent::new("helper").model(inner).as_tool("Helps.");
    let outer = Scripted::from_fn(|_| Turn::new().call("helper", json!({ "task": "help" })).usage(Usage::default()));
    let agent = Agent::new("spender").model(outer).tools(inner).budget(Budget::turns(100).tokens(250));
    let error = agent.forward(asked(&InMemory::new())).await.unwrap_err();
    assert!(error.to_string().contains("300 tokens of 250"), "{error}");
}
