//! Rules, permissions for good, and somebody who is asked while the run goes on.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rath::agent::{Answer, Asker, Question, Response};
use rath::body::{Asked, Effect, Grant, Granted, MOST_GRANTS, Scope, Verdict};
use rath::policy::{Policy, Rule, Ruling};
use rath::sandbox::Part;
use rath::workshop::Place;
use rath::{ErrorKind, Kind};
use rath_testkit::{Moment, Mortal};
use serde_json::json;

use super::*;
use crate::support::Shop;

/// Says something to somebody.
#[tool(effect = "irreversible")]
fn tell(
    /// Whom.
    to: String,
    times: State<AtomicU64>,
) -> String {
    format!("told {to}, {}", times.fetch_add(1, Ordering::AcqRel) + 1)
}

/// An agent that tells these, a turn each.
fn teller(whom: &[&str]) -> (Agent, Arc<AtomicU64>) {
    let times = Arc::new(AtomicU64::new(0));
    let script = whom.iter().fold(Scripted::new("s"), |script, to| script.call("tell", json!({ "to": to })));
    let agent = Agent::new("teller").model(script.say("Done.")).tools(tell).with_shared(times.clone());
    (agent, times)
}

async fn run(store: &Arc<dyn Store>, agent: &Agent) -> Result<Session> {
    let input = async |session: &mut Session| session.user("Please.").map(drop);
    store.run("a run", Actor::program("test"), agent, input).await
}

fn waiting(ended: Result<Session>) -> SessionId {
    match ended.unwrap_err().kind() {
        ErrorKind::Waiting(id) => *id,
        other => panic!("{other}"),
    }
}

async fn always(store: &Arc<dyn Store>, id: SessionId) {
    let asks = View::of(store, id, None).await.unwrap().pending().asks;
    let (asked, shown_digest) = (asks[0].record, asks[0].shown_digest);
    post(store, id, Posted::Always { asked, shown_digest, why: None }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_refuses_is_named_to_the_model_and_on_the_record() {
    let (agent, times) = teller(&["bob"]);
    let rules = Policy::new(vec![Rule::new(Ruling::Deny).tool("te*").why("it is night")]).unwrap();
    let session = agent.rules(rules).forward(asked(&Memory::new())).await.unwrap();
    let said = "This call is not allowed: it is night (rule: deny te*)";
    assert_eq!(results(&session).await, [("call-0-0".into(), said.into(), true)]);
    assert_eq!(times.load(Ordering::Acquire), 0);
    let result: ToolResult = bodies(&session).await.remove(0);
    assert_eq!(result.policy.as_deref(), Some("deny te*"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_taken_back_is_asked_about_where_there_are_rules() {
    let (agent, times) = teller(&["bob"]);
    let store = Memory::new();
    let id = waiting(run(&store, &agent.clone().rules(Policy::default())).await);
    let session = View::of(&store, id, None).await.unwrap();
    assert_eq!((session.pending().asks.len(), times.load(Ordering::Acquire)), (1, 0));
    // What is said of the tool by name comes first, and loosens no rule that forbids.
    let allowed = agent.policy("tell", Decision::Allow);
    let session = allowed.clone().rules(Policy::default()).forward(asked(&Memory::new())).await.unwrap();
    assert_eq!((times.load(Ordering::Acquire), count(&session, Kind::Asked).await), (1, 0));
    let forbids = Policy::new(vec![Rule::new(Ruling::Deny).effect(Effect::Irreversible)]).unwrap();
    let session = allowed.rules(forbids).forward(asked(&Memory::new())).await.unwrap();
    assert!(results(&session).await[0].1.contains("deny every tool with irreversible effects"));
    assert_eq!(times.load(Ordering::Acquire), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn always_holds_for_calls_like_it_on_resumed_runs_and_forks() {
    let (agent, times) = teller(&["bob", "bob", "eve"]);
    let agent = agent.rules(Policy::default());
    let store = Memory::new();
    let id = waiting(run(&store, &agent).await);
    let question: Asked = {
        let ask = View::of(&store, id, None).await.unwrap().pending().asks.remove(0);
        View::of(&store, id, Some(ask.seq)).await.unwrap().record().body().unwrap()
    };
    let shown = question.shown.to_string();
    assert!(shown.ends_with("\nalways: tell with exactly these arguments"), "{shown}");
    assert!(shown.contains("\nrule: default: it cannot be taken back\n"), "{shown}");
    always(&store, id).await;
    // Another process goes on: the same call is not asked about again, another one is.
    assert_eq!(waiting(run(&store, &agent).await), id);
    assert_eq!(times.load(Ordering::Acquire), 2);
    let view = View::of(&store, id, None).await.unwrap();
    assert_eq!(view.state().granted, [*question.always.unwrap()]);
    let session = store.open(id, Actor::person("ada")).await.unwrap();
    let granted: Vec<Granted> = bodies(&session).await;
    assert_eq!(granted.len(), 1);
    // A fork has it; one from before does not.
    let fork = session.fork("another try");
    assert_eq!(fork.state().granted.len(), 1);
    let before = session.fork_at(Point { session: id, seq: 1 }, "from before").await.unwrap();
    assert_eq!(before.state().granted.len(), 0);
    drop((session, fork, before));
    always(&store, id).await;
    let session = run(&store, &agent).await.unwrap();
    assert_eq!(times.load(Ordering::Acquire), 3);
    assert_eq!(session.state().granted.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_always_grants_nothing() {
    let (agent, _) = teller(&["bob", "bob"]);
    let agent = agent.rules(Policy::default());
    let store = Memory::new();
    let id = waiting(run(&store, &agent).await);
    let ask = View::of(&store, id, None).await.unwrap().pending().asks.remove(0);
    let (asked, shown_digest) = (ask.record, ask.shown_digest);
    post(&store, id, Posted::Answer { asked, shown_digest, verdict: Verdict::Yes, why: None }).await;
    post(&store, id, Posted::Always { asked, shown_digest, why: None }).await;
    assert_eq!(waiting(run(&store, &agent).await), id, "the second call is asked about");
    assert!(View::of(&store, id, None).await.unwrap().state().granted.is_empty());
    // One that binds to something else than what was shown grants nothing either.
    let ask = View::of(&store, id, None).await.unwrap().pending().asks.remove(0);
    let other = rath::Digest::of(b"something else");
    post(&store, id, Posted::Always { asked: ask.record, shown_digest: other, why: None }).await;
    assert_eq!(waiting(run(&store, &agent).await), id);
    assert!(View::of(&store, id, None).await.unwrap().state().granted.is_empty());
}

#[tokio::test]
async fn permissions_are_bounded_and_sorted() {
    let store = Memory::new();
    let mut session = asked(&store);
    for number in (0..MOST_GRANTS + 10).rev() {
        let scope = Scope::Below { directory: format!("{number:04}") };
        let allows = Grant { tool: "write".into(), effect: Effect::Workspace, scope };
        let granted = Granted { asked: session.head().id, allows };
        session.append(granted.clone()).unwrap();
        session.append(granted).unwrap();
    }
    let granted = &session.state().granted;
    assert!(granted.len() == MOST_GRANTS && granted.is_sorted());
}

/// Somebody who gives the same answer to everything.
fn somebody(given: Answer, questions: Arc<Mutex<Vec<Question>>>) -> Asker {
    let busy = Arc::new(AtomicUsize::new(0));
    Asker::new(move |question: Question| {
        let (given, busy, questions) = (given.clone(), busy.clone(), questions.clone());
        async move {
            assert_eq!(busy.fetch_add(1, Ordering::AcqRel), 0, "one question at a time");
            tokio::time::sleep(Duration::from_millis(5)).await;
            busy.fetch_sub(1, Ordering::AcqRel);
            questions.lock().unwrap().push(question);
            Some(Response { by: Actor::person("eve"), answer: given, why: None })
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_is_asked_about_several_calls_of_a_turn() {
    let times = Arc::new(AtomicU64::new(0));
    let turn = ["a", "b", "c"].iter().fold(Turn::new(), |turn, to| turn.call("tell", json!({ "to": to })));
    let script = Scripted::new("s").turn(turn).say("Done.");
    let agent = Agent::new("teller").model(script).tools(tell).with_shared(times.clone()).rules(Policy::default());
    let questions = Arc::new(Mutex::new(Vec::new()));
    let mut session = asked(&Memory::new());
    session.equip(somebody(Answer::Yes, questions.clone()));
    let session = in_time(agent.forward(session)).await.unwrap();
    assert_eq!(times.load(Ordering::Acquire), 3);
    let questions = questions.lock().unwrap().clone();
    assert_eq!(questions.len(), 3);
    // It is recorded as the inbox would have: bound to the question, in the person's name.
    let records = line(&session).await;
    let answers: Vec<_> = records.iter().filter(|record| *record.kind() == Kind::Answered).collect();
    assert_eq!(answers.len(), 3);
    for (answer, question) in answers.iter().zip(&questions) {
        let body: rath::body::Answered = answer.body().unwrap();
        assert_eq!((body.asked, body.verdict), (question.record, Verdict::Yes));
        assert_eq!(body.shown_digest, rath::Digest::of(question.shown.as_bytes()));
        assert_eq!(answer.header().unwrap().actor, Actor::person("eve"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_is_asked_by_branches_that_work_together() {
    let lead_turn = ["x", "y", "z"].iter().fold(Turn::new(), |turn, task| turn.call("helper", json!({ "task": task })));
    let times = Arc::new(AtomicU64::new(0));
    let script = Scripted::new("h").call("tell", json!({ "to": "bob" })).say("Told.");
    let helper = Agent::new("helper").model(script).tools(tell).with_shared(times.clone()).rules(Policy::default());
    let lead = Agent::new("lead").model(Scripted::new("l").turn(lead_turn).say("Done."));
    let lead = lead.tools(helper.as_tool("Helps."));
    let questions = Arc::new(Mutex::new(Vec::new()));
    let mut session = asked(&Memory::new());
    session.equip(somebody(Answer::Always, questions.clone()));
    let session = in_time(lead.forward(session)).await.unwrap();
    assert_eq!(session.text().await.unwrap().as_deref(), Some("Done."));
    assert_eq!((times.load(Ordering::Acquire), questions.lock().unwrap().len()), (3, 3));
    let mut asked: Vec<_> = questions.lock().unwrap().iter().map(|question| question.session).collect();
    asked.dedup();
    assert_eq!(asked.len(), 3, "each on its own line");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn always_said_to_somebody_is_asked_once() {
    let (agent, times) = teller(&["bob", "bob", "bob"]);
    let questions = Arc::new(Mutex::new(Vec::new()));
    let mut session = asked(&Memory::new());
    session.equip(somebody(Answer::Always, questions.clone()));
    let session = in_time(agent.rules(Policy::default()).forward(session)).await.unwrap();
    assert_eq!((times.load(Ordering::Acquire), questions.lock().unwrap().len()), (3, 1));
    assert_eq!(count(&session, Kind::Granted).await, 1);
    let record = line(&session).await.into_iter().find(|record| *record.kind() == Kind::Granted).unwrap();
    assert_eq!(record.header().unwrap().actor, Actor::person("eve"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_answer_leaves_it_in_the_inbox() {
    let (agent, times) = teller(&["bob"]);
    let asked_for = Arc::new(AtomicUsize::new(0));
    let counted = asked_for.clone();
    let mut session = asked(&Memory::new());
    session.equip(Asker::new(move |_| {
        counted.fetch_add(1, Ordering::AcqRel);
        async { None }
    }));
    let error = in_time(agent.rules(Policy::default()).forward(session)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Waiting(_)), "{error}");
    assert_eq!((asked_for.load(Ordering::Acquire), times.load(Ordering::Acquire)), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_from_elsewhere_comes_before_one_who_thinks() {
    let (agent, times) = teller(&["bob"]);
    let agent = agent.rules(Policy::default());
    let store = Memory::new();
    let mut session = asked(&store);
    let id = session.id();
    let elsewhere = store.clone();
    session.equip(Asker::new(move |question: Question| {
        let store = elsewhere.clone();
        async move {
            let asks = View::of(&store, question.session, None).await.unwrap().pending().asks;
            let (asked, shown_digest) = (asks[0].record, asks[0].shown_digest);
            post(&store, id, Posted::Answer { asked, shown_digest, verdict: Verdict::No, why: None }).await;
            std::future::pending().await
        }
    }));
    let session = in_time(agent.forward(session)).await.unwrap();
    assert_eq!(times.load(Ordering::Acquire), 0);
    assert!(results(&session).await[0].1.contains("did not allow this call"));
}

/// Says who is there.
#[tool(effect = "idempotent")]
fn look() -> &'static str {
    "nobody"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permission_survives_a_kill_at_every_commit() {
    let script = Scripted::new("s").call("look", json!({})).call("look", json!({})).call("look", json!({}));
    let rules = Policy::new(vec![Rule::new(Ruling::Ask).tool("look")]).unwrap();
    let agent = Agent::new("guard").model(script.say("Done.")).tools(look).rules(rules);
    for commits in 0..10 {
        for moment in [Moment::Before, Moment::After] {
            let store = Memory::new();
            let id = waiting(run(&store, &agent).await);
            always(&store, id).await;
            let mortal: Arc<dyn Store> = Mortal::new(store.clone(), commits, moment);
            drop(run(&mortal, &agent).await);
            let session = run(&store, &agent).await.unwrap();
            let at = format!("killed {moment:?} commit {commits}");
            assert_eq!(results(&session).await.len(), 3, "{at}");
            assert_eq!(count(&session, Kind::Asked).await, 1, "{at}");
            assert_eq!(count(&session, Kind::Granted).await, 1, "{at}");
            assert_eq!(session.state().granted.len(), 1, "{at}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_about_paths_hold_behind_links_and_for_what_is_searched() {
    let shop = Shop::new();
    let origin = shop.directory("origin");
    std::fs::create_dir_all(origin.join("private")).unwrap();
    for (path, text) in [("private/plan", "secret plan"), (".env", "KEY=secret"), ("notes", "no secret here")] {
        std::fs::write(origin.join(path), text).unwrap();
    }
    let links = [("private/plan", "innocent"), (".env", "settings"), ("private", "docs"), ("notes", "plain")];
    for (to, link) in links {
        std::os::unix::fs::symlink(to, origin.join(link)).unwrap();
    }
    let patch = "*** Begin Patch\n*** Update File: innocent\n@@\n-secret plan\n+open plan\n*** End Patch\n";
    let script = Scripted::new("s")
        .call("read", json!({ "path": "innocent" }))
        .call("read", json!({ "path": "settings" }))
        .call("read", json!({ "path": "docs/plan" }))
        .call("write", json!({ "path": "docs/new", "content": "x" }))
        .call("edit", json!({ "path": "innocent", "old": "secret", "new": "open" }))
        .call("apply_patch", json!({ "patch": patch }))
        .call("ls", json!({ "path": "docs" }))
        .call("read", json!({ "path": "plain" }))
        .call("grep", json!({ "pattern": "secret" }))
        .say("Oh.");
    let agent = Agent::new("curious").model(script).tools(tools::coding());
    let mut session = asked(&shop.store);
    shop.workshop.place(&mut session, Place::copy_of("host", &origin)).await.unwrap();
    session.equip(shop.second());
    // Without isolation changes cannot be taken back, and would be asked about.
    let allowed = ["write", "edit", "apply_patch"].map(|tool| Rule::new(Ruling::Allow).tool(tool));
    let rules = [Rule::new(Ruling::Deny).path("private/")].into_iter().chain(allowed);
    session.equip(Policy::new(rules.collect()).unwrap());
    let session = agent.forward(session).await.unwrap();
    let results = results(&session).await;
    for refused in &results[..7] {
        assert!(refused.2 && refused.1.contains("which is not allowed here (rule: "), "{refused:?}");
        assert!(!refused.1.contains("secret plan") && !refused.1.contains("KEY"), "{refused:?}");
    }
    assert!(results[1].1.contains("settings leads to .env"), "{results:?}");
    assert!(!results[7].2 && results[7].1.contains("no secret here"), "{results:?}");
    let found = "notes:1:no secret here\n[2 files that rules guard were left out; name one to search in it]\n";
    assert_eq!(results[8].1, found);
    assert!(!shop.copy(session.id()).join("private/new").exists());
}

/// Moves a file.
#[tool(effect = "workspace", paths = "from, to")]
async fn move_file(
    /// What it is called.
    from: String,
    /// What it is to be called.
    to: String,
    desk: State<tools::Desk>,
) -> Result<String, String> {
    let (from, to) = (desk.path(&from)?, desk.path(&to)?);
    let contents = desk.sandbox().read(&from, Part::first(1 << 20)).await.map_err(|error| error.to_string())?;
    desk.sandbox().write(&to, &contents.bytes, None).await.map_err(|error| error.to_string())?;
    Ok(format!("moved: {}", String::from_utf8_lossy(&contents.bytes)))
}

/// Opens a file. It does not say that it does.
#[tool(effect = "workspace")]
async fn open_document(document: String, desk: State<tools::Desk>) -> Result<String, String> {
    let path = desk.path(&document)?;
    let contents = desk.sandbox().read(&path, Part::first(1 << 20)).await.map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&contents.bytes).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_about_paths_hold_for_a_users_tools() {
    let shop = Shop::new();
    let origin = shop.directory("origin");
    std::fs::create_dir_all(origin.join("private")).unwrap();
    std::fs::write(origin.join("private/plan"), "secret plan").unwrap();
    std::fs::write(origin.join("notes"), "open notes").unwrap();
    std::os::unix::fs::symlink("private/plan", origin.join("innocent")).unwrap();
    let script = Scripted::new("s")
        .call("move_file", json!({ "from": "private/plan", "to": "a" }))
        .call("move_file", json!({ "from": "notes", "to": "x/../private/b" }))
        .call("move_file", json!({ "from": "innocent", "to": "a" }))
        .call("open_document", json!({ "document": "private/plan" }))
        .call("move_file", json!({ "from": "notes", "to": "b" }))
        .say("Oh.");
    let agent = Agent::new("curious").model(script).tools((move_file, open_document));
    let mut session = asked(&shop.store);
    shop.workshop.place(&mut session, Place::copy_of("host", &origin)).await.unwrap();
    session.equip(shop.second());
    let rules = vec![Rule::new(Ruling::Deny).path("private/"), Rule::new(Ruling::Allow)];
    session.equip(Policy::new(rules).unwrap());
    let session = agent.forward(session).await.unwrap();
    let results = results(&session).await;
    for refused in &results[..4] {
        assert!(refused.2 && refused.1.contains("not allowed") && !refused.1.contains("secret plan"), "{refused:?}");
    }
    assert_eq!((results[4].1.as_str(), results[4].2), ("moved: open notes", false));
    assert!(!shop.copy(session.id()).join("private/b").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_of_a_link_does_not_cover_what_it_leads_to() {
    let shop = Shop::new();
    let origin = shop.directory("origin");
    std::fs::write(origin.join("real.key"), "secret key").unwrap();
    std::os::unix::fs::symlink("real.key", origin.join("test.key")).unwrap();
    let script = Scripted::new("s")
        .call("read", json!({ "path": "test.key" }))
        .call("read", json!({ "path": "real.key" }))
        .say("Oh.");
    let agent = Agent::new("curious").model(script).tools(tools::reading());
    let mut session = asked(&shop.store);
    shop.workshop.place(&mut session, Place::copy_of("host", &origin)).await.unwrap();
    session.equip(shop.second());
    session.equip(Policy::new(vec![Rule::new(Ruling::Ask).path("*.key")]).unwrap());
    session.equip(Asker::new(|_| async {
        Some(Response { by: Actor::person("ada"), answer: rath::agent::Answer::Yes, why: None })
    }));
    let session = agent.forward(session).await.unwrap();
    let results = results(&session).await;
    assert!(results[0].2 && results[0].1.contains("test.key leads to real.key"), "{results:?}");
    assert!(!results[1].2 && results[1].1.contains("secret key"), "{results:?}");
}
