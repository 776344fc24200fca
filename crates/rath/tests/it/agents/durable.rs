//! Durability: which records are committed when, as seen from the store and from tools.

use std::sync::atomic::{AtomicU64, Ordering};

use rath::body::{Asked, CallOutcome, Cancelled, Effect, ToolFinished, ToolStarted, Verdict};
use rath::store::SessionFilter;
use rath::{Digest, ErrorKind};
use rath_testkit::{CrashPoint, CrashingStore};
use serde_json::json;

use super::*;

/// The kinds of records in each commit.
type Commits = Arc<Mutex<Vec<Vec<String>>>>;

/// A store that notes its commits.
fn counting() -> (Arc<dyn Store>, Commits) {
    let commits = Commits::default();
    let noted = commits.clone();
    let store = Hooked::new(InMemory::new(), move |batch| {
        let records = batch.parts.iter().flat_map(|part| &part.records);
        noted.lock().unwrap().push(records.map(|record| record.kind().to_string()).collect());
        None
    });
    (store, commits)
}

/// The session that a tool works for, and its store.
struct Where(Arc<dyn Store>, SessionId);

/// Checks whether the call's start is stored.
async fn look(place: &Where, call: &Call) -> String {
    let started: Vec<ToolStarted> = stored(&place.0, place.1).await;
    let found = started.iter().any(|started| started.call == call.id && started.tool == call.tool);
    if found { "durable" } else { "not durable" }.into()
}

/// An irreversible effect.
#[tool(effect = "irreversible")]
async fn launch(call: &Call, place: Resource<Where>) -> String {
    look(&place, call).await
}

/// An idempotent effect.
#[tool(effect = "idempotent")]
async fn put(call: &Call, place: Resource<Where>) -> String {
    look(&place, call).await
}

/// No effect.
#[tool(effect = "pure")]
async fn peek(call: &Call, place: Resource<Where>) -> String {
    look(&place, call).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_without_effects_is_one_commit() {
    let (store, commits) = counting();
    let script = Scripted::new("s")
        .call("nothing", json!({}))
        .turn(Turn::new().call("nothing", json!({})).call("echo", json!({ "text": "x" })))
        .say("Done.");
    Agent::new("pure").model(script).tools((nothing, echo)).forward(asked(&store)).await.unwrap();
    let commits = commits.lock().unwrap();
    assert_eq!(commits.len(), 4, "one a turn, one at the end: {commits:#?}");
    for commit in &commits[..3] {
        assert_eq!(commit.last().map(String::as_str), Some("model_requested"), "before the request leaves");
    }
    assert_eq!(commits[3].last().map(String::as_str), Some("step_left"));
    assert_eq!(
        commits[1],
        ["model_responded", "assistant", "tool_started", "tool_finished", "tool_result", "model_requested"]
    );
}

async fn one_call(tool: &str, durability: Durability) -> (Vec<Vec<String>>, Session) {
    let (store, commits) = counting();
    let mut session = asked(&store);
    session.set_durability(durability);
    session.provide(Where(store.clone(), session.id()));
    let inner = (store.clone(), session.id());
    let name = tool.to_owned();
    let model = Scripted::from_async_fn(move |seen| {
        let ((store, id), name) = (inner.clone(), name.clone());
        async move {
            match seen.turn {
                0 => Turn::new().call(name, json!({})),
                _ => {
                    let finished = stored::<ToolFinished>(&store, id).await.len();
                    Turn::from(format!("{finished} finished"))
                }
            }
        }
    });
    let session = Agent::new("actor").model(model).tools((launch, put, peek)).forward(session).await.unwrap();
    let commits = commits.lock().unwrap().clone();
    (commits, session)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starts_are_durable_before_effects_and_ends_before_the_next_request() {
    for (tool, seen, count) in [("launch", "durable", 5), ("put", "durable", 4), ("peek", "not durable", 3)] {
        let (commits, session) = one_call(tool, Durability::Effect).await;
        assert_eq!(results(&session).await[0].1, seen, "{tool}");
        assert_eq!(session.text().await.unwrap().as_deref(), Some("1 finished"), "{tool}");
        assert_eq!(commits.len(), count, "{tool}: {commits:#?}");
    }
    let (commits, _) = one_call("launch", Durability::Effect).await;
    assert_eq!(commits[1], ["model_responded", "assistant", "tool_started"]);
    assert_eq!(commits[2], ["tool_finished"], "alone, and at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_durabilities() {
    let (_, session) = one_call("peek", Durability::Record).await;
    assert_eq!(results(&session).await[0].1, "durable");
    assert_eq!(session.unpublished_count(), 0);
    let (_, session) = one_call("launch", Durability::Relaxed { every: Duration::from_secs(3600) }).await;
    assert_eq!(results(&session).await[0].1, "durable", "relaxed publishes before irreversible calls");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_durable_before_the_run_waits() {
    let (store, _) = counting();
    let script = Scripted::new("s").call("ask_human", json!({ "question": "?" })).say("Done.");
    let agent = Agent::new("asking").model(script).tools(tools::ask_human);
    let session = asked(&store);
    let id = session.id();
    let error = agent.forward(session).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Waiting(_)));
    assert_eq!(stored::<Asked>(&store, id).await.len(), 1);
}

/// The keys of the calls that were made, by tool.
type Keys = Mutex<Vec<(String, Digest, u32)>>;

/// Notes its key.
#[tool(effect = "idempotent")]
async fn keyed(call: &Call, keys: Resource<Keys>) -> String {
    keys.lock().unwrap().push((call.id.clone(), call.key, call.attempt));
    "noted".into()
}

/// Notes its key.
#[tool(effect = "irreversible")]
async fn keyed_once(call: &Call, keys: Resource<Keys>) -> String {
    keys.lock().unwrap().push((call.id.clone(), call.key, call.attempt));
    "noted".into()
}

fn keyed_agent(tool: &str, keys: &Arc<Keys>) -> Agent {
    let call = || Turn::new().call(tool, json!({})).id("same");
    let script = Scripted::new("s").turn(call()).turn(call()).say("Done.");
    Agent::new("keyed").model(script).tools((keyed, keyed_once)).with_shared(keys.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_call_has_the_same_idempotency_key() {
    let input = async |session: &mut Session| session.user("Please.").map(|_| ());
    let mut again = 0;
    for commits in 0..12 {
        for moment in [CrashPoint::Before, CrashPoint::After] {
            let (store, keys) = (InMemory::new(), Arc::new(Keys::default()));
            let agent = keyed_agent("keyed", &keys);
            let mortal: Arc<dyn Store> = CrashingStore::new(store.clone(), commits, moment);
            drop(mortal.run("r", Actor::program("test"), &agent, input).await);
            let session = store.run("r", Actor::program("test"), &agent, input).await.unwrap();
            assert_eq!(results(&session).await.len(), 2);
            let keys = keys.lock().unwrap();
            again += usize::from(keys.len() > 2);
            let distinct: std::collections::HashSet<_> = keys.iter().map(|(_, key, _)| key).collect();
            assert_eq!(distinct.len(), 2, "killed {moment:?} commit {commits}: {keys:?}");
        }
    }
    assert!(again > 0, "no call was made twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_irreversible_call_is_repeated_only_if_it_did_not_happen() {
    let input = async |session: &mut Session| session.user("Please.").map(|_| ());
    let asked_about = AtomicU64::new(0);
    for verdict in [Verdict::Yes, Verdict::No, Verdict::Text("it had noted".into())] {
        for commits in 0..14 {
            for moment in [CrashPoint::Before, CrashPoint::After] {
                let (store, keys) = (InMemory::new(), Arc::new(Keys::default()));
                let agent = keyed_agent("keyed_once", &keys);
                let mortal: Arc<dyn Store> = CrashingStore::new(store.clone(), commits, moment);
                drop(mortal.run("r", Actor::program("test"), &agent, input).await);
                let mut in_doubt = 0;
                let session = loop {
                    match store.run("r", Actor::program("test"), &agent, input).await {
                        Ok(session) => break session,
                        Err(error) => {
                            let ErrorKind::Waiting(id) = error.kind() else { panic!("{error}") };
                            let id = *id;
                            drop(error);
                            in_doubt += 1;
                            let ask = View::of(&store, id, None).await.unwrap().pending().asks[0].clone();
                            let (asked, shown_digest, verdict) = (ask.record, ask.shown_digest, verdict.clone());
                            post(&store, id, PostContent::Answer { asked, shown_digest, verdict, why: None }).await;
                        }
                    }
                };
                assert!(in_doubt <= 1);
                asked_about.fetch_add(in_doubt, Ordering::AcqRel);
                let said = results(&session).await;
                let made = keys.lock().unwrap().clone();
                assert_eq!(said.len(), 2);
                assert!(session.pending().is_empty());
                let attempts: Vec<_> = made.iter().map(|(_, _, attempt)| *attempt).collect();
                let keys: std::collections::HashSet<_> = made.iter().map(|(_, key, _)| key).collect();
                assert_eq!(keys.len(), made.len(), "no two calls had the same key");
                match (in_doubt, &verdict) {
                    (0, _) => assert_eq!(attempts, [1, 1]),
                    (_, Verdict::No) => assert!(attempts.contains(&2), "made anew, as another attempt: {attempts:?}"),
                    (_, Verdict::Yes) => {
                        assert!(said.iter().any(|(_, text, _)| text.contains("happened")), "{said:?}")
                    }
                    (_, Verdict::Text(_)) => {
                        assert!(said.iter().any(|(_, text, _)| text == "it had noted"), "{said:?}")
                    }
                    (_, Verdict::Unknown(answer)) => panic!("nobody answered {answer}"),
                }
                let started = bodies::<ToolStarted>(&session).await;
                assert!(started.iter().all(|started| started.effect == Effect::Irreversible));
            }
        }
    }
    assert!(asked_about.load(Ordering::Acquire) > 3, "nothing was in doubt");
}

/// The ends of a session's calls. Each started call has one end, before the call is abandoned.
async fn ends(store: &Arc<dyn Store>, id: SessionId) -> Vec<ToolFinished> {
    let (mut open, mut ends) = (std::collections::BTreeSet::new(), Vec::new());
    for record in store.scan(Scan::session(id, 0, u64::MAX - 1).limit(100_000)).await.unwrap().records {
        if let Ok(started) = record.body::<ToolStarted>() {
            open.insert(started.call);
        } else if let Ok(finished) = record.body::<ToolFinished>() {
            open.remove(&finished.call);
            ends.push(finished);
        } else if record.body::<Cancelled>().is_ok() {
            assert!(open.is_empty(), "these have no end: {open:?}");
        }
    }
    assert!(open.is_empty(), "these have no end: {open:?}");
    ends
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_call_gets_an_end_when_the_run_is_cancelled() {
    let input = async |session: &mut Session| session.user("Please.").map(|_| ());
    let (mut lost, mut given_up) = (0, 0);
    for inside in [false, true] {
        for commits in 0..14 {
            for moment in [CrashPoint::Before, CrashPoint::After] {
                let (store, keys) = (InMemory::new(), Arc::new(Keys::default()));
                let agent = match inside {
                    false => keyed_agent("keyed_once", &keys),
                    true => {
                        let script = Scripted::new("s").call("keyed", json!({ "task": "note" })).say("Done.");
                        let inner = keyed_agent("keyed_once", &keys).as_tool("Notes.");
                        Agent::new("outer").model(script).tools(inner)
                    }
                };
                let mortal: Arc<dyn Store> = CrashingStore::new(store.clone(), commits, moment);
                drop(mortal.run("r", Actor::program("test"), &agent, input).await);
                let Some(root) = store.sessions(SessionFilter::Run("r".into()).into()).await.unwrap().pop() else {
                    continue;
                };
                post(&store, root.id, PostContent::Cancel { why: "never mind".into() }).await;
                let before = keys.lock().unwrap().len();
                let ended = store.run("r", Actor::program("test"), &agent, input).await;
                if let Err(error) = ended {
                    assert_eq!(error.code(), "cancelled", "killed {moment:?} commit {commits}: {error}");
                }
                assert_eq!(keys.lock().unwrap().len(), before, "nothing is made after that");
                for row in store.sessions(SessionFilter::All.into()).await.unwrap() {
                    assert!(View::of(&store, row.id, None).await.unwrap().pending().is_empty());
                    for end in ends(&store, row.id).await {
                        match end.outcome {
                            CallOutcome::Lost => {
                                assert!(end.remarks[0].contains("before its outcome was known"), "{end:?}");
                                lost += 1;
                            }
                            CallOutcome::Cancelled => given_up += 1,
                            _ => {}
                        }
                    }
                }
            }
        }
    }
    assert!(lost > 1 && given_up > 1, "{lost} were lost, {given_up} given up with their branches");
}
