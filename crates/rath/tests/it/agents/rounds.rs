//! Turns in which one call fails the run: no further call starts, and running calls are recorded.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rath::agent::SubAgent;
use rath::body::{CallOutcome, Failed, ToolFinished, ToolStarted};
use rath::store::Error as Broken;
use rath::workspace::{Options, WorkspaceBudget as Files};
use rath::workspaces::PlacementSpec;
use rath::{ErrorKind, Kind};
use rath_testkit::{CrashPoint, CrashingStore};
use serde_json::json;

use super::*;
use crate::support::Shop;

/// Signals between the calls of these tests.
#[derive(Default)]
struct Signs {
    /// Another call failed the run.
    broken: rath::Cancel,
    /// How often `slow` started and finished.
    begun: AtomicU64,
    ended: AtomicU64,
}

/// Runs for a while after another call failed the run.
#[tool(effect = "pure")]
async fn slow(signs: Resource<Signs>) -> String {
    signs.begun.fetch_add(1, Ordering::AcqRel);
    signs.broken.cancelled().await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    signs.ended.fetch_add(1, Ordering::AcqRel);
    "came to its end".into()
}

/// Writes more files than the workspace may save.
#[tool(effect = "workspace")]
async fn write_many(workspace: Resource<tools::ToolWorkspace>) -> String {
    for number in 0..50 {
        let path = format!("many{number}");
        workspace.sandbox().write(std::path::Path::new(&path), b"x", None).await.unwrap();
    }
    "written".into()
}

/// Must not be called.
#[tool(effect = "workspace")]
async fn write_after(called: Resource<AtomicBool>) -> String {
    called.store(true, Ordering::Release);
    "called".into()
}

/// A session on `store` whose workspace saves at most twenty files.
async fn placed(shop: &mut Shop, store: &Arc<dyn Store>) -> Session {
    let options = || Options { budget: Files { files: 20, ..Files::default() }, ..Options::default() };
    let mut session = asked(store);
    shop.workspaces.assign(&mut session, PlacementSpec::empty("host")).await.unwrap();
    session.provide(shop.second().with_options(options()));
    session
}

/// A store wrapper that signals when files were not saved.
fn watching(shop: &Shop, signs: &Arc<Signs>) -> Arc<dyn Store> {
    let signs = signs.clone();
    Hooked::new(shop.store.clone(), move |batch| {
        let records = batch.parts.iter().flat_map(|part| &part.records);
        let ends = records.filter_map(|record| record.body::<ToolFinished>().ok());
        if ends.into_iter().any(|end| end.remarks.iter().any(|remark| remark.contains("not saved"))) {
            signs.broken.cancel("broken");
        }
        None
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_save_does_not_stop_a_running_call() {
    let mut shop = Shop::new();
    let (signs, called) = (Arc::new(Signs::default()), Arc::new(AtomicBool::new(false)));
    let store = watching(&shop, &signs);
    let mut session = placed(&mut shop, &store).await;
    session.provide_shared(signs.clone());
    session.provide_shared(called.clone());
    let turn = Turn::new().call("slow", json!({})).call("write_many", json!({})).call("write_after", json!({}));
    let agent = Agent::new("busy").model(Scripted::new("s").turn(turn)).tools((slow, write_many, write_after));
    let error = in_time(agent.forward(session)).await.unwrap_err();
    assert!(error.is_recorded(), "{error}");
    let session = error.into_sessions().remove(0);
    let ends: Vec<_> = bodies::<ToolFinished>(&session).await.into_iter().map(|end| (end.call, end.outcome)).collect();
    let wanted = [("call-0-1".to_owned(), CallOutcome::Done), ("call-0-0".to_owned(), CallOutcome::Done)];
    assert_eq!(ends, wanted, "both ends are on the record");
    assert!(!called.load(Ordering::Acquire), "nothing begins after that");
    assert_eq!(count(&session, Kind::ToolStarted).await, 2);
    let failed = bodies::<Failed>(&session).await;
    assert_eq!(failed.len(), 1);
    assert!(failed[0].why.contains("files"), "the first error is the one that is told: {failed:?}");
    assert!(session.pending().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_call_fails_to_start_no_other_call_starts() {
    let mut shop = Shop::new();
    let signs = Arc::new(Signs::default());
    let store = shop.store.clone();
    let mut session = placed(&mut shop, &store).await;
    session.provide_shared(signs.clone());
    let directory = shop.workspaces.directory(&mut session).await.unwrap();
    for number in 0..50 {
        std::fs::write(directory.join(format!("many{number}")), "x").unwrap();
    }
    let turn = Turn::new().call("slow", json!({})).call("write_many", json!({}));
    let agent = Agent::new("busy").model(Scripted::new("s").turn(turn)).tools((slow, write_many));
    let error = in_time(agent.forward(session)).await.unwrap_err();
    assert!(error.is_recorded(), "{error}");
    let session = error.into_sessions().remove(0);
    assert_eq!(signs.begun.load(Ordering::Acquire), 0);
    let started = bodies::<ToolStarted>(&session).await;
    assert_eq!(started.iter().map(|started| &*started.tool).collect::<Vec<_>>(), ["slow"]);
    let ends = bodies::<ToolFinished>(&session).await;
    assert_eq!((ends.len(), ends[0].outcome), (1, CallOutcome::Cancelled));
    assert_eq!(ends[0].output[0].text.as_deref(), Some("The call was not made."));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_sub_agent_does_not_stop_a_running_call() {
    let (store, signs) = (InMemory::new(), Arc::new(Signs::default()));
    let breaking = signs.clone();
    let broken = SubAgent::new("broken", "Breaks.", move |session: Session| {
        let signs = breaking.clone();
        async move {
            signs.broken.cancel("broken");
            drop(session);
            Err(ErrorKind::Store(Broken::machine("using the store", "it is broken")).into())
        }
    });
    let turn = Turn::new().call("broken", json!({ "task": "break" })).call("slow", json!({}));
    let agent =
        Agent::new("busy").model(Scripted::new("s").turn(turn)).tools((broken, slow)).with_shared(signs.clone());
    let session = asked(&store);
    let id = session.id();
    let error = in_time(agent.forward(session)).await.unwrap_err();
    assert!(error.to_string().contains("it is broken"), "{error}");
    let ends = stored::<ToolFinished>(&store, id).await;
    assert_eq!(ends.iter().map(|end| &*end.call).collect::<Vec<_>>(), ["call-0-1"], "its end is durable");
    assert_eq!(stored::<Failed>(&store, id).await.len(), 0, "the run is not over");
}

/// Crashes the store.
#[tool(effect = "idempotent")]
async fn kill(store: Resource<CrashingStore>, signs: Resource<Signs>) -> String {
    store.kill();
    signs.broken.cancel("broken");
    "killed".into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_calls_finish_even_if_nothing_can_be_recorded() {
    let (mortal, signs) =
        (CrashingStore::new(InMemory::new(), u64::MAX, CrashPoint::Before), Arc::new(Signs::default()));
    let store: Arc<dyn Store> = mortal.clone();
    let turn = (0..3).fold(Turn::new().call("kill", json!({})), |turn, _| turn.call("slow", json!({})));
    let agent = Agent::new("busy").model(Scripted::new("s").turn(turn)).tools((kill, slow));
    let agent = agent.with_shared(mortal).with_shared(signs.clone());
    let error = in_time(agent.forward(asked(&store))).await.unwrap_err();
    assert!(error.to_string().contains("the process is dead"), "{error}");
    assert_eq!(signs.ended.load(Ordering::Acquire), 3, "nothing is dropped in the middle");
}
