//! Tool calls: their failures are results for the model.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use rath::body::{Assistant, CallOutcome, Effect, Outcome, OutsideEffect, StepLeft, ToolFinished, ToolStarted};
use rath::files::TreeStore;
use rath::store::Scan;
use rath::tool::{FileAccess, Tool, ToolSpec};
use rath::workspaces::PlacementSpec;
use rath::{Digest, Kind};
use serde_json::json;

use super::*;
use crate::support::{Shop, tree};

/// Fails.
#[tool(effect = "pure")]
fn fail(text: String) -> Result<String, String> {
    Err(format!("it is {text}"))
}

/// Panics.
#[tool(effect = "pure")]
async fn panics(text: String) -> String {
    tokio::task::yield_now().await;
    panic!("out of {text}")
}

/// Never ends.
#[tool(effect = "pure", timeout = "50ms")]
async fn endless() -> String {
    std::future::pending().await
}

/// Adds.
#[tool(effect = "pure")]
fn add(a: i64, b: Option<i64>) -> String {
    (a + b.unwrap_or(0)).to_string()
}

fn failing_calls() -> Vec<Turn> {
    vec![
        Turn::new().call("nowhere", json!({})),
        Turn::new().call("add", json!({ "a": "one" })),
        Turn::new().call_text("add", "{\"a\": 1, "),
        Turn::new().call_text("add", ""),
        Turn::new().call_text("nothing", ""),
        Turn::new().call("panics", json!({ "text": "luck" })),
        Turn::new().call("endless", json!({})),
        Turn::new().call("fail", json!({ "text": "late" })),
    ]
}

fn check_failures(results: &[(String, String, bool)]) {
    let wanted: [(&str, bool); 8] = [
        ("Unknown tool \"nowhere\". Available tools: add, nothing, panics, endless, fail.", true),
        ("invalid arguments for `add`: `a`: invalid type: string \"one\", expected i64", true),
        ("invalid arguments for `add`: not valid JSON", true),
        ("invalid arguments for `add`: missing field `a`", true),
        ("nothing", false),
        ("The tool panicked: out of luck", true),
        ("The call was stopped after 0.05 s.", true),
        ("it is late", true),
    ];
    assert_eq!(results.len(), wanted.len());
    for ((_, text, failed), (words, wanted)) in results.iter().zip(wanted) {
        assert!(text.starts_with(words), "{text:?} is not {words:?}");
        assert_eq!(*failed, wanted, "{words}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_are_results_and_the_run_continues() {
    // One by one, and all at once.
    let one_by_one = failing_calls().into_iter().fold(Scripted::new("scripted"), Scripted::turn).say("So be it.");
    let mut together = Turn::new();
    for (tool, arguments) in [
        ("nowhere", "{}"),
        ("add", r#"{"a": "one"}"#),
        ("add", "{\"a\": 1, "),
        ("add", ""),
        ("nothing", ""),
        ("panics", r#"{"text": "luck"}"#),
        ("endless", "{}"),
        ("fail", r#"{"text": "late"}"#),
    ] {
        together = together.call_text(tool, arguments);
    }
    let together = Scripted::new("scripted").turn(together).say("So be it.");
    for script in [one_by_one, together] {
        let store = InMemory::new();
        let agent = Agent::new("unlucky").model(script).tools((add, nothing, panics, endless, fail));
        let session = in_time(agent.forward(asked(&store))).await.unwrap();
        assert_eq!(session.text().await.unwrap().as_deref(), Some("So be it."));
        assert!(session.pending().is_empty());
        check_failures(&results(&session).await);
        // Calls that were not made have no start.
        let started: Vec<_> = bodies::<ToolStarted>(&session).await.into_iter().map(|started| started.tool).collect();
        assert_eq!(started, ["nothing", "panics", "endless", "fail"]);
        let outcomes: HashSet<_> =
            bodies::<ToolFinished>(&session).await.iter().map(|finished| format!("{:?}", finished.outcome)).collect();
        assert_eq!(outcomes, HashSet::from(["Done", "Failed", "TimedOut"].map(String::from)));
        assert_eq!(bodies::<StepLeft>(&session).await[0].outcome, Outcome::Done);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_without_any_tools_is_a_failed_result() {
    let store = InMemory::new();
    let script = Scripted::new("scripted").call("hammer", json!({})).say("No.");
    let session = Agent::new("bare").model(script).forward(asked(&store)).await.unwrap();
    assert_eq!(results(&session).await[0].1, "Unknown tool \"hammer\". No tools are available.");
}

/// Panics before it returns a future.
struct Hasty(ToolSpec, &'static str);

impl Tool for Hasty {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn check(&self, _: &str) -> Result<(), String> {
        assert_ne!(self.1, "check", "in the check");
        Ok(())
    }

    fn call<'a>(&'a self, _: &'a Call) -> BoxFuture<'a, ToolOutcome> {
        assert_ne!(self.1, "call", "before the call");
        Box::pin(async { ToolOutcome::done("calm") })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_panics_before_it_is_awaited_fails_alone() {
    for (place, words) in [("call", "before the call"), ("check", "in the check")] {
        for calls in [1, 2] {
            let spec = ToolSpec { effect: Effect::Pure, ..nothing.spec().clone() };
            let mut turn = Turn::new();
            for _ in 0..calls {
                turn = turn.call("nothing", json!({}));
            }
            let script = Scripted::new("scripted").turn(turn).say("Well.");
            let agent = Agent::new("hasty").model(script).tools(Hasty(spec, place));
            let session = asked(&InMemory::new());
            let session = tokio::spawn(async move { agent.forward(session).await }).await;
            let session = session.unwrap_or_else(|panic| panic!("{place}, {calls} calls: {panic}")).unwrap();
            let results = results(&session).await;
            assert_eq!(results.len(), calls);
            assert!(results.iter().all(|(_, text, failed)| *failed && text.contains(words)), "{results:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_ids_of_a_turn_are_unique() {
    let store = InMemory::new();
    let mut turn = Turn::new();
    for (at, id) in ["same", "", "same", "", "same~2", "other", "same", "call~1"].into_iter().enumerate() {
        turn = turn.call("echo", json!({ "text": at.to_string() })).id(id);
    }
    let script = Scripted::new("scripted").turn(turn).say("Done.");
    let session = Agent::new("careless").model(script).tools(echo).forward(asked(&store)).await.unwrap();
    let results = results(&session).await;
    let texts: Vec<_> = results.iter().map(|(_, text, _)| &**text).collect();
    assert_eq!(texts, ["0", "1", "2", "3", "4", "5", "6", "7"], "each call has its own arguments and result");
    let names: HashSet<_> = results.iter().map(|(call, ..)| call.clone()).collect();
    assert_eq!(names.len(), 8, "{results:?}");
    assert_eq!((&*results[0].0, &*results[5].0), ("same", "other"), "those that were well named keep their names");
    let turn = &bodies::<Assistant>(&session).await[0];
    let recorded: Vec<_> = turn.calls().map(|(id, _)| id.to_owned()).collect();
    assert_eq!(recorded, results.iter().map(|(call, ..)| call.clone()).collect::<Vec<_>>());
}

/// Blocks its thread.
#[tool(effect = "pure")]
fn block(text: String) -> String {
    std::thread::sleep(Duration::from_millis(5));
    text
}

/// Adds a line to a file: reads the file, waits a little, writes the file.
#[tool(effect = "workspace")]
async fn add_line(text: String, workspace: Resource<tools::ToolWorkspace>) -> Result<String, String> {
    let path = std::path::Path::new("lines");
    let known = workspace.sandbox().read(path, rath::sandbox::ByteRange::first(1 << 20)).await;
    let mut all = known.map(|contents| String::from_utf8(contents.bytes).unwrap()).unwrap_or_default();
    tokio::task::yield_now().await;
    all.push_str(&format!("{text}\n"));
    workspace.sandbox().write(path, all.as_bytes(), None).await.map_err(|error| error.to_string())?;
    Ok(text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_calls_in_a_turn() {
    let shop = Shop::new();
    let mut session = asked(&shop.store);
    shop.workspaces.assign(&mut session, PlacementSpec::empty("host")).await.unwrap();
    let workspaces = shop.second();
    session.provide(workspaces);
    let mut turn = Turn::new();
    let mut lines = String::new();
    let wanted: Vec<String> = (0..200).map(|at| format!("n{at}")).collect();
    for (at, text) in wanted.iter().enumerate() {
        // Ten writes, among reads, blocking calls and plain ones.
        let tool = match at % 20 {
            7 => {
                lines.push_str(&format!("{text}\n"));
                "add_line"
            }
            3 => "ls",
            1 | 11 => "block",
            _ => "echo",
        };
        turn = turn.call(tool, if tool == "ls" { json!({}) } else { json!({ "text": text }) });
    }
    let script = Scripted::new("scripted").turn(turn).say("Done.");
    let agent = Agent::new("busy").model(script).tools((echo, block, add_line, tools::ls));
    let session = in_time(agent.forward(session)).await.unwrap();
    let results = results(&session).await;
    assert_eq!(results.len(), 200);
    for (at, (call, text, failed)) in results.iter().enumerate() {
        assert_eq!(*call, format!("call-0-{at}"));
        assert!(!failed, "{text}");
        if at % 20 != 3 {
            assert_eq!(*text, wanted[at]);
        }
    }
    assert_eq!(shop.now(&session), tree(&[("lines", &lines)]), "writes are made in call order");
    assert!(session.pending().is_empty());
    drop(session);
    shop.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_calls_take_effect_in_call_order() {
    let shop = Shop::new();
    let mut session = asked(&shop.store);
    shop.workspaces.assign(&mut session, PlacementSpec::empty("host")).await.unwrap();
    session.provide(shop.second());
    let script = Scripted::new("scripted")
        .turn(
            Turn::new()
                .call("ls", json!({}))
                .call("write", json!({ "path": "a", "content": "one" }))
                .call("read", json!({ "path": "a" }))
                .call("write", json!({ "path": "a", "content": "two" }))
                .call("read", json!({ "path": "a" }))
                .call("echo", json!({ "text": "apart" })),
        )
        .say("Done.");
    let agent = Agent::new("writer").model(script).tools((tools::coding(), echo));
    let session = in_time(agent.forward(session)).await.unwrap();
    let results = results(&session).await;
    assert!(results[2].1.contains("one") && results[4].1.contains("two"), "{results:?}");
    let versions: Vec<_> = bodies::<ToolFinished>(&session).await.into_iter().filter_map(|end| end.workspace).collect();
    assert_eq!(versions.len(), 2, "calls that may write have a version after them");
    let started = bodies::<ToolStarted>(&session).await;
    let write = started.iter().find(|started| started.tool == "write").unwrap();
    assert_eq!((write.effect, write.isolated), (Effect::Irreversible, Some(false)), "the host isolates nothing");
}

/// Changed files are in the store before the next request is sent, however they are saved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_stored_before_the_next_request() {
    let shop = Shop::new();
    let mut session = asked(&shop.store);
    shop.workspaces.assign(&mut session, PlacementSpec::empty("host")).await.unwrap();
    session.provide(shop.second());
    let (id, another) = (session.id(), Embedded::open(shop.dir.path().join("store")).unwrap());
    let looks = Arc::new(AtomicU64::new(0));
    let looking = looks.clone();
    let script = Scripted::from_fn(move |seen| {
        let scan = Scan::session(id, 0, u64::MAX).kinds(&[Kind::ToolFinished]);
        let ends = if seen.turn == 0 { Vec::new() } else { pollster::block_on(another.scan(scan)).unwrap().records };
        assert_eq!(ends.len() as u64, seen.turn);
        for end in ends {
            let version = end.body::<ToolFinished>().unwrap().workspace.unwrap();
            let files = pollster::block_on(TreeStore::new(&*another).list(&version)).unwrap();
            assert_eq!(files.len(), 1, "all of it is there");
            looking.fetch_add(1, Ordering::Relaxed);
        }
        match seen.turn {
            turn @ 0..=2 => {
                let content = "long ".repeat(if turn == 1 { 100_000 } else { 1 });
                Turn::new().call("write", json!({ "path": "a", "content": format!("{turn} {content}") }))
            }
            _ => Turn::new().text("Done."),
        }
    });
    let agent = Agent::new("writer").model(script).tools(tools::coding());
    let session = in_time(agent.forward(session)).await.unwrap();
    assert_eq!(looks.load(Ordering::Relaxed), 1 + 2 + 3);
    assert_eq!(shop.now(&session), tree(&[("a", "2 long ")]));
    drop(session);
    shop.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_calls_wait_for_an_earlier_call_that_needs_an_approval() {
    let shop = Shop::new();
    let mut session = asked(&shop.store);
    shop.workspaces.assign(&mut session, PlacementSpec::empty("host")).await.unwrap();
    session.provide(shop.second());
    session.provide(rath::agent::OnQuestion::Wait);
    let turn = Turn::new().call("write", json!({ "path": "a", "content": "new" })).call("read", json!({ "path": "a" }));
    let script = Scripted::new("scripted").turn(turn.call("echo", json!({ "text": "apart" }))).say("Done.");
    let agent = Agent::new("writer").model(script).tools((tools::coding(), echo)).tool_policy("write", Decision::Ask);
    let (store, id) = (shop.store.clone(), session.id());
    let answering = async {
        let ask = loop {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            let Ok(view) = View::of(&store, id, None).await else { continue };
            // A call that does not use files was made.
            let ended = view.state().calls.iter().filter(|call| call.finished.is_some()).count();
            if let Some(ask) = view.pending().asks.into_iter().next().filter(|_| ended == 1) {
                break ask;
            }
        };
        let started = View::of(&store, id, None).await.unwrap().own_records().await.unwrap();
        let started = started.iter().filter_map(|record| record.body::<ToolStarted>().ok());
        assert_eq!(started.map(|started| started.tool).collect::<Vec<_>>(), ["echo"]);
        let (asked, shown_digest) = (ask.record, ask.shown_digest);
        let yes = rath::body::Verdict::Yes;
        post(&store, id, PostContent::Answer { asked, shown_digest, verdict: yes, why: None }).await;
    };
    let (session, ()) = in_time(async { tokio::join!(agent.forward(session), answering) }).await;
    let results = results(&session.unwrap()).await;
    assert!(results[1].1.contains("new"), "{results:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_tools_without_a_workspace_fail() {
    let script = || Scripted::new("scripted").call("read", json!({ "path": "a" })).say("Oh.");
    let session = asked(&InMemory::new());
    let session = Agent::new("lost").model(script()).tools(tools::reading()).forward(session).await.unwrap();
    let no_workspaces = results(&session).await;
    assert!(no_workspaces[0].2 && no_workspaces[0].1.contains("Workspaces"), "{no_workspaces:?}");
    let shop = Shop::new();
    let mut session = asked(&shop.store);
    session.provide(shop.second());
    let session = Agent::new("lost").model(script()).tools(tools::reading()).forward(session).await.unwrap();
    assert_eq!(results(&session).await[0].1, "This session has no workspace, so it has no files.");
    assert_eq!(count(&session, Kind::ToolStarted).await, 0);
}

/// Touches something outside.
#[tool(effect = "idempotent")]
async fn touch(text: String, call: &Call, keys: Resource<Mutex<Vec<(String, Digest)>>>) -> ToolOutcome {
    keys.lock().unwrap().push((text.clone(), call.key));
    let effect = OutsideEffect {
        system: "test".into(),
        object: text.clone(),
        before: Some("0".into()),
        after: Some("1".into()),
        reversible: true,
    };
    ToolOutcome::done("touched").with_effect(effect)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idempotency_keys_are_unique() {
    let store = InMemory::new();
    let keys = Arc::new(Mutex::new(Vec::<(String, Digest)>::new()));
    let same = || Turn::new().call("touch", json!({ "text": "it" })).id("same");
    let script =
        Scripted::new("scripted").turn(same().call("touch", json!({ "text": "it" }))).turn(same()).say("Done.");
    let agent = Agent::new("toucher").model(script).tools(touch).with_shared(keys.clone());
    let session = asked(&store);
    let (left, right) = (session.fork("left"), session.fork("right"));
    let left = agent.forward(left).await.unwrap();
    let left = agent.forward(left).await.unwrap();
    agent.forward(right).await.unwrap();
    let keys: Vec<_> = keys.lock().unwrap().iter().map(|(_, key)| *key).collect();
    assert_eq!(keys.len(), 9);
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), 9, "call, turn, step and fork make a difference");
    let effects: Vec<_> = bodies::<ToolFinished>(&left).await.into_iter().flat_map(|end| end.effects).collect();
    assert_eq!(effects.len(), 6);
    assert_eq!((&*effects[0].object, effects[0].after.as_deref()), ("it", Some("1")));
}

/// Ends at once.
#[tool(effect = "pure")]
fn outcome(how: String) -> ToolOutcome {
    let evidence = rath::tool::Evidence { outcome: (how == "lost").then_some(CallOutcome::Lost), ..Default::default() };
    ToolOutcome { evidence: Some(Box::new(evidence)), ..ToolOutcome::failed(how) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_outcome_that_a_tool_returns_is_recorded() {
    let store = InMemory::new();
    let turn = Turn::new().call("outcome", json!({ "how": "lost" })).call("outcome", json!({ "how": "badly" }));
    let script = Scripted::new("scripted").turn(turn).say("Done.");
    let session = Agent::new("honest").model(script).tools(outcome).forward(asked(&store)).await.unwrap();
    let mut ends = bodies::<ToolFinished>(&session).await;
    ends.sort_by(|one, other| one.call.cmp(&other.call));
    assert_eq!([ends[0].outcome, ends[1].outcome], [CallOutcome::Lost, CallOutcome::Failed]);
}

static TOGETHER: AtomicU64 = AtomicU64::new(0);

/// Waits until four of these calls run.
#[tool(effect = "pure")]
async fn all_four() -> String {
    TOGETHER.fetch_add(1, Ordering::AcqRel);
    while TOGETHER.load(Ordering::Acquire) < 4 {
        tokio::task::yield_now().await;
    }
    "four".into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_a_turn_run_concurrently() {
    assert_eq!(all_four.spec().file_access, FileAccess::Nothing);
    let turn = (0..4).fold(Turn::new(), |turn, _| turn.call("all_four", json!({})));
    let script = Scripted::new("scripted").turn(turn).say("Done.");
    let session =
        in_time(Agent::new("team").model(script).tools(all_four).forward(asked(&InMemory::new()))).await.unwrap();
    assert_eq!(results(&session).await.len(), 4);
}
