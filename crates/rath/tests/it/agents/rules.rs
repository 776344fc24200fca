//! Policies, grants, and question handlers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rath::agent::{Answer, HumanReply, Question, QuestionHandler};
use rath::body::{Asked, Effect, Grant, Granted, MAX_GRANTS, Scope, Verdict};
use rath::policy::{Policy, PolicyAction, PolicyRule};
use rath::sandbox::ByteRange;
use rath::workspaces::PlacementSpec;
use rath::{ErrorKind, Kind};
use rath_testkit::{CrashPoint, CrashingStore};
use serde_json::json;

use super::*;
use crate::support::Shop;

/// Sends a message.
#[tool(effect = "irreversible")]
fn tell(
    /// The recipient.
    to: String,
    times: Resource<AtomicU64>,
) -> String {
    format!("told {to}, {}", times.fetch_add(1, Ordering::AcqRel) + 1)
}

/// An agent that sends a message to each, one turn each.
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
    post(store, id, PostContent::Always { asked, shown_digest, why: None }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deny_rule_is_named_to_the_model_and_in_the_record() {
    let (agent, times) = teller(&["bob"]);
    let rules = Policy::new(vec![PolicyRule::new(PolicyAction::Deny).tool("te*").why("it is night")]).unwrap();
    let session = agent.policy(rules).forward(asked(&InMemory::new())).await.unwrap();
    let said = "This call is not allowed: it is night (rule: deny te*)";
    assert_eq!(results(&session).await, [("call-0-0".into(), said.into(), true)]);
    assert_eq!(times.load(Ordering::Acquire), 0);
    let result: ToolResult = bodies(&session).await.remove(0);
    assert_eq!(result.policy.as_deref(), Some("deny te*"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_policy_irreversible_calls_need_an_approval() {
    let (agent, times) = teller(&["bob"]);
    let store = InMemory::new();
    let id = waiting(run(&store, &agent.clone().policy(Policy::default())).await);
    let session = View::of(&store, id, None).await.unwrap();
    assert_eq!((session.pending().asks.len(), times.load(Ordering::Acquire)), (1, 0));
    // A decision by tool name comes first, but cannot allow what a rule denies.
    let allowed = agent.tool_policy("tell", Decision::Allow);
    let session = allowed.clone().policy(Policy::default()).forward(asked(&InMemory::new())).await.unwrap();
    assert_eq!((times.load(Ordering::Acquire), count(&session, Kind::Asked).await), (1, 0));
    let forbids = Policy::new(vec![PolicyRule::new(PolicyAction::Deny).effect(Effect::Irreversible)]).unwrap();
    let session = allowed.policy(forbids).forward(asked(&InMemory::new())).await.unwrap();
    assert!(results(&session).await[0].1.contains("deny every tool with irreversible effects"));
    assert_eq!(times.load(Ordering::Acquire), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_covers_similar_calls_on_resumed_runs_and_forks() {
    let (agent, times) = teller(&["bob", "bob", "eve"]);
    let agent = agent.policy(Policy::default());
    let store = InMemory::new();
    let id = waiting(run(&store, &agent).await);
    let question: Asked = {
        let ask = View::of(&store, id, None).await.unwrap().pending().asks.remove(0);
        View::of(&store, id, Some(ask.seq)).await.unwrap().record().body().unwrap()
    };
    let shown = question.shown.to_string();
    assert!(shown.ends_with("\nalways: tell with exactly these arguments"), "{shown}");
    assert!(shown.contains("\nrule: default: irreversible effects need an approval\n"), "{shown}");
    always(&store, id).await;
    // In another process the same call needs no approval, and another call does.
    assert_eq!(waiting(run(&store, &agent).await), id);
    assert_eq!(times.load(Ordering::Acquire), 2);
    let view = View::of(&store, id, None).await.unwrap();
    assert_eq!(view.state().granted, [*question.always.unwrap()]);
    let session = store.open(id, Actor::person("ada")).await.unwrap();
    let granted: Vec<Granted> = bodies(&session).await;
    assert_eq!(granted.len(), 1);
    // A fork has the grant; a fork from before does not.
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
    let agent = agent.policy(Policy::default());
    let store = InMemory::new();
    let id = waiting(run(&store, &agent).await);
    let ask = View::of(&store, id, None).await.unwrap().pending().asks.remove(0);
    let (asked, shown_digest) = (ask.record, ask.shown_digest);
    post(&store, id, PostContent::Answer { asked, shown_digest, verdict: Verdict::Yes, why: None }).await;
    post(&store, id, PostContent::Always { asked, shown_digest, why: None }).await;
    assert_eq!(waiting(run(&store, &agent).await), id, "the second call is asked about");
    assert!(View::of(&store, id, None).await.unwrap().state().granted.is_empty());
    // An answer with another digest grants nothing either.
    let ask = View::of(&store, id, None).await.unwrap().pending().asks.remove(0);
    let other = rath::Digest::of(b"something else");
    post(&store, id, PostContent::Always { asked: ask.record, shown_digest: other, why: None }).await;
    assert_eq!(waiting(run(&store, &agent).await), id);
    assert!(View::of(&store, id, None).await.unwrap().state().granted.is_empty());
}

#[tokio::test]
async fn grants_are_limited_and_sorted() {
    let store = InMemory::new();
    let mut session = asked(&store);
    for number in (0..MAX_GRANTS + 10).rev() {
        let scope = Scope::Below { directory: format!("{number:04}") };
        let allows = Grant { tool: "write".into(), effect: Effect::Workspace, scope };
        let granted = Granted { asked: session.head().id, allows };
        session.append(granted.clone()).unwrap();
        session.append(granted).unwrap();
    }
    let granted = &session.state().granted;
    assert!(granted.len() == MAX_GRANTS && granted.is_sorted());
}

/// A handler that gives the same answer to every question.
fn always_answering(given: Answer, questions: Arc<Mutex<Vec<Question>>>) -> QuestionHandler {
    let busy = Arc::new(AtomicUsize::new(0));
    QuestionHandler::new(move |question: Question| {
        let (given, busy, questions) = (given.clone(), busy.clone(), questions.clone());
        async move {
            assert_eq!(busy.fetch_add(1, Ordering::AcqRel), 0, "one question at a time");
            tokio::time::sleep(Duration::from_millis(5)).await;
            busy.fetch_sub(1, Ordering::AcqRel);
            questions.lock().unwrap().push(question);
            Some(HumanReply { by: Actor::person("eve"), answer: given, why: None })
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_is_asked_about_several_calls_of_a_turn() {
    let times = Arc::new(AtomicU64::new(0));
    let turn = ["a", "b", "c"].iter().fold(Turn::new(), |turn, to| turn.call("tell", json!({ "to": to })));
    let script = Scripted::new("s").turn(turn).say("Done.");
    let agent = Agent::new("teller").model(script).tools(tell).with_shared(times.clone()).policy(Policy::default());
    let questions = Arc::new(Mutex::new(Vec::new()));
    let mut session = asked(&InMemory::new());
    session.provide(always_answering(Answer::Yes, questions.clone()));
    let session = in_time(agent.forward(session)).await.unwrap();
    assert_eq!(times.load(Ordering::Acquire), 3);
    let questions = questions.lock().unwrap().clone();
    assert_eq!(questions.len(), 3);
    // The answer is recorded as one from the inbox: for this question, with the person as actor.
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
async fn a_handler_is_asked_by_concurrent_branches() {
    let lead_turn = ["x", "y", "z"].iter().fold(Turn::new(), |turn, task| turn.call("helper", json!({ "task": task })));
    let times = Arc::new(AtomicU64::new(0));
    let script = Scripted::new("h").call("tell", json!({ "to": "bob" })).say("Told.");
    let helper = Agent::new("helper").model(script).tools(tell).with_shared(times.clone()).policy(Policy::default());
    let lead = Agent::new("lead").model(Scripted::new("l").turn(lead_turn).say("Done."));
    let lead = lead.tools(helper.as_tool("Helps."));
    let questions = Arc::new(Mutex::new(Vec::new()));
    let mut session = asked(&InMemory::new());
    session.provide(always_answering(Answer::Always, questions.clone()));
    let session = in_time(lead.forward(session)).await.unwrap();
    assert_eq!(session.text().await.unwrap().as_deref(), Some("Done."));
    assert_eq!((times.load(Ordering::Acquire), questions.lock().unwrap().len()), (3, 3));
    let mut asked: Vec<_> = questions.lock().unwrap().iter().map(|question| question.session).collect();
    asked.dedup();
    assert_eq!(asked.len(), 3, "each on its own line");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_always_a_handler_is_not_asked_again() {
    let (agent, times) = teller(&["bob", "bob", "bob"]);
    let questions = Arc::new(Mutex::new(Vec::new()));
    let mut session = asked(&InMemory::new());
    session.provide(always_answering(Answer::Always, questions.clone()));
    let session = in_time(agent.policy(Policy::default()).forward(session)).await.unwrap();
    assert_eq!((times.load(Ordering::Acquire), questions.lock().unwrap().len()), (3, 1));
    assert_eq!(count(&session, Kind::Granted).await, 1);
    let record = line(&session).await.into_iter().find(|record| *record.kind() == Kind::Granted).unwrap();
    assert_eq!(record.header().unwrap().actor, Actor::person("eve"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_without_an_answer_stays_in_the_inbox() {
    let (agent, times) = teller(&["bob"]);
    let asked_for = Arc::new(AtomicUsize::new(0));
    let counted = asked_for.clone();
    let mut session = asked(&InMemory::new());
    session.provide(QuestionHandler::new(move |_| {
        counted.fetch_add(1, Ordering::AcqRel);
        async { None }
    }));
    let error = in_time(agent.policy(Policy::default()).forward(session)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Waiting(_)), "{error}");
    assert_eq!((asked_for.load(Ordering::Acquire), times.load(Ordering::Acquire)), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_posted_answer_wins_over_a_slow_handler() {
    let (agent, times) = teller(&["bob"]);
    let agent = agent.policy(Policy::default());
    let store = InMemory::new();
    let mut session = asked(&store);
    let id = session.id();
    let elsewhere = store.clone();
    session.provide(QuestionHandler::new(move |question: Question| {
        let store = elsewhere.clone();
        async move {
            let asks = View::of(&store, question.session, None).await.unwrap().pending().asks;
            let (asked, shown_digest) = (asks[0].record, asks[0].shown_digest);
            post(&store, id, PostContent::Answer { asked, shown_digest, verdict: Verdict::No, why: None }).await;
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
async fn a_grant_survives_a_kill_at_every_commit() {
    let script = Scripted::new("s").call("look", json!({})).call("look", json!({})).call("look", json!({}));
    let rules = Policy::new(vec![PolicyRule::new(PolicyAction::Ask).tool("look")]).unwrap();
    let agent = Agent::new("guard").model(script.say("Done.")).tools(look).policy(rules);
    for commits in 0..10 {
        for moment in [CrashPoint::Before, CrashPoint::After] {
            let store = InMemory::new();
            let id = waiting(run(&store, &agent).await);
            always(&store, id).await;
            let mortal: Arc<dyn Store> = CrashingStore::new(store.clone(), commits, moment);
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
async fn path_rules_apply_to_link_targets_and_searched_files() {
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
    shop.workspaces.assign(&mut session, PlacementSpec::copy_of("host", &origin)).await.unwrap();
    session.provide(shop.second());
    // Without isolation, writes are irreversible and would need an approval.
    let allowed = ["write", "edit", "apply_patch"].map(|tool| PolicyRule::new(PolicyAction::Allow).tool(tool));
    let rules = [PolicyRule::new(PolicyAction::Deny).path("private/")].into_iter().chain(allowed);
    session.provide(Policy::new(rules.collect()).unwrap());
    let session = agent.forward(session).await.unwrap();
    let results = results(&session).await;
    for refused in &results[..7] {
        assert!(refused.2 && refused.1.contains("which is not allowed (rule: "), "{refused:?}");
        assert!(!refused.1.contains("secret plan") && !refused.1.contains("KEY"), "{refused:?}");
    }
    assert!(results[1].1.contains("settings is a link to .env"), "{results:?}");
    assert!(!results[7].2 && results[7].1.contains("no secret here"), "{results:?}");
    let found =
        "notes:1:no secret here\n[2 files were skipped because policy rules restrict them; name one to search it]\n";
    assert_eq!(results[8].1, found);
    assert!(!shop.copy(session.id()).join("private/new").exists());
}

/// Moves a file.
#[tool(effect = "workspace", paths = "from, to")]
async fn move_file(
    /// The old path.
    from: String,
    /// The new path.
    to: String,
    workspace: Resource<tools::ToolWorkspace>,
) -> Result<String, String> {
    let (from, to) = (workspace.path(&from)?, workspace.path(&to)?);
    let contents =
        workspace.sandbox().read(&from, ByteRange::first(1 << 20)).await.map_err(|error| error.to_string())?;
    workspace.sandbox().write(&to, &contents.bytes, None).await.map_err(|error| error.to_string())?;
    Ok(format!("moved: {}", String::from_utf8_lossy(&contents.bytes)))
}

/// Opens a file, without declaring its path argument.
#[tool(effect = "workspace")]
async fn open_document(document: String, workspace: Resource<tools::ToolWorkspace>) -> Result<String, String> {
    let path = workspace.path(&document)?;
    let contents =
        workspace.sandbox().read(&path, ByteRange::first(1 << 20)).await.map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&contents.bytes).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn path_rules_apply_to_custom_tools() {
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
    shop.workspaces.assign(&mut session, PlacementSpec::copy_of("host", &origin)).await.unwrap();
    session.provide(shop.second());
    let rules = vec![PolicyRule::new(PolicyAction::Deny).path("private/"), PolicyRule::new(PolicyAction::Allow)];
    session.provide(Policy::new(rules).unwrap());
    let session = agent.forward(session).await.unwrap();
    let results = results(&session).await;
    for refused in &results[..4] {
        assert!(refused.2 && refused.1.contains("not allowed") && !refused.1.contains("secret plan"), "{refused:?}");
    }
    assert_eq!((results[4].1.as_str(), results[4].2), ("moved: open notes", false));
    assert!(!shop.copy(session.id()).join("private/b").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_of_a_link_does_not_cover_its_target() {
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
    shop.workspaces.assign(&mut session, PlacementSpec::copy_of("host", &origin)).await.unwrap();
    session.provide(shop.second());
    session.provide(Policy::new(vec![PolicyRule::new(PolicyAction::Ask).path("*.key")]).unwrap());
    session.provide(QuestionHandler::new(|_| async {
        Some(HumanReply { by: Actor::person("ada"), answer: rath::agent::Answer::Yes, why: None })
    }));
    let session = agent.forward(session).await.unwrap();
    let results = results(&session).await;
    assert!(results[0].2 && results[0].1.contains("test.key is a link to real.key"), "{results:?}");
    assert!(!results[1].2 && results[1].1.contains("secret key"), "{results:?}");
}
