//! Calls of one turn of which one breaks the run: nothing more begins, and what runs is recorded.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rath::agent::SubAgent;
use rath::body::{CallOutcome, Failed, ToolFinished, ToolStarted};
use rath::store::Error as Broken;
use rath::workshop::Place;
use rath::workspace::{Budget as Files, Options};
use rath::{ErrorKind, Kind};
use rath_testkit::{Moment, Mortal};
use serde_json::json;

use super::*;
use crate::support::Shop;

/// What the calls of these tests tell each other.
#[derive(Default)]
struct Signs {
    /// Another call broke the run.
    broken: rath::Cancel,
    /// How often `slow` began, and how often it came to its end.
    begun: AtomicU64,
    ended: AtomicU64,
}

/// Goes on for a while after another call broke the run.
#[tool(effect = "pure")]
async fn slow(signs: State<Signs>) -> String {
    signs.begun.fetch_add(1, Ordering::AcqRel);
    signs.broken.cancelled().await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    signs.ended.fetch_add(1, Ordering::AcqRel);
    "came to its end".into()
}

/// Writes more files than are saved.
#[tool(effect = "workspace")]
async fn write_many(desk: State<tools::Desk>) -> String {
    for number in 0..50 {
        let path = format!("many{number}");
        desk.sandbox().write(std::path::Path::new(&path), b"x", None).await.unwrap();
    }
    "written".into()
}

/// Is not to be called.
#[tool(effect = "workspace")]
async fn write_after(called: State<AtomicBool>) -> String {
    called.store(true, Ordering::Release);
    "called".into()
}

/// A session in a place that saves at most twenty files, on `store`.
async fn placed(shop: &mut Shop, store: &Arc<dyn Store>) -> Session {
    let options = || Options { budget: Files { files: 20, ..Files::default() }, ..Options::default() };
    let mut session = asked(store);
    shop.workshop.place(&mut session, Place::empty("host")).await.unwrap();
    session.equip(shop.second().with_options(options()));
    session
}

/// A store on the shop's that says when files were not saved.
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
async fn files_that_cannot_be_saved_do_not_cut_off_another_call() {
    let mut shop = Shop::new();
    let (signs, called) = (Arc::new(Signs::default()), Arc::new(AtomicBool::new(false)));
    let store = watching(&shop, &signs);
    let mut session = placed(&mut shop, &store).await;
    session.equip_shared(signs.clone());
    session.equip_shared(called.clone());
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
async fn a_call_that_cannot_be_started_keeps_the_others_of_its_turn_from_beginning() {
    let mut shop = Shop::new();
    let signs = Arc::new(Signs::default());
    let store = shop.store.clone();
    let mut session = placed(&mut shop, &store).await;
    session.equip_shared(signs.clone());
    let directory = shop.workshop.directory(&mut session).await.unwrap();
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
async fn a_sub_agent_that_leaves_the_run_open_does_not_cut_off_another_call() {
    let (store, signs) = (Memory::new(), Arc::new(Signs::default()));
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

/// Breaks the store.
#[tool(effect = "idempotent")]
async fn kill(store: State<Mortal>, signs: State<Signs>) -> String {
    store.kill();
    signs.broken.cancel("broken");
    "killed".into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_comes_to_its_end_where_nothing_can_be_recorded() {
    let (mortal, signs) = (Mortal::new(Memory::new(), u64::MAX, Moment::Before), Arc::new(Signs::default()));
    let store: Arc<dyn Store> = mortal.clone();
    let turn = (0..3).fold(Turn::new().call("kill", json!({})), |turn, _| turn.call("slow", json!({})));
    let agent = Agent::new("busy").model(Scripted::new("s").turn(turn)).tools((kill, slow));
    let agent = agent.with_shared(mortal).with_shared(signs.clone());
    let error = in_time(agent.forward(asked(&store))).await.unwrap_err();
    assert!(error.to_string().contains("the process is dead"), "{error}");
    assert_eq!(signs.ended.load(Ordering::Acquire), 3, "nothing is dropped in the middle");
}
