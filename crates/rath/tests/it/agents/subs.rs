//! Sub-agents: agents as tools.

use std::collections::BTreeMap;

use rath::agent::{OnQuestion, SubAgent};
use rath::body::{MergeStrategy, Merged, ToolFinished, Verdict};
use rath::store::SessionFilter;
use rath::workflow::chain;
use rath::workspaces::PlacementSpec;
use rath::{ErrorKind, Kind};
use rath_testkit::{CrashPoint, CrashingStore};
use serde_json::json;

use super::*;
use crate::support::Shop;

fn usage(tokens: u64) -> Usage {
    Usage { requests: 1, input_tokens: tokens, ..Usage::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_in_agents_in_agents() {
    let dir = tempfile::tempdir().unwrap();
    for store in [InMemory::new(), Embedded::create(dir.path().join("store")).unwrap()] {
        let (model, deep_seen) = watched(
            Scripted::new("s")
                .turn(Turn::new().call("echo", json!({ "text": "deep" })).usage(usage(1)))
                .turn(Turn::new().text("The answer is deep.").usage(usage(2))),
        );
        let deep = Agent::new("deep").model(model).tools(echo).as_tool("Dives.");
        let (model, middle_seen) = watched(
            Scripted::new("s")
                .turn(Turn::new().call("deep", json!({ "task": "Dive." })).usage(usage(10)))
                .turn(Turn::new().text("It is deep, they say.").usage(usage(20))),
        );
        let middle = Agent::new("middle").model(model).tools(deep).as_tool("Asks.");
        let (model, outer_seen) = watched(
            Scripted::new("s")
                .turn(Turn::new().call("middle", json!({ "task": "Ask." })).usage(usage(100)))
                .turn(Turn::new().text("Deep.").usage(usage(200))),
        );
        let session = Agent::new("outer").model(model).tools(middle).forward(asked(&store)).await.unwrap();
        assert_eq!(session.usage().input_tokens, 333, "what each used is counted once");
        assert_eq!(session.usage().requests, 6);
        let call = |tool: &str, task: &str| format!("assistant → {tool}({{\"task\":\"{task}\"}}) [call-0-0]");
        assert_eq!(
            outer_seen.lock().unwrap()[1],
            ["user Please.", &call("middle", "Ask."), "tool [call-0-0] It is deep, they say."]
        );
        assert_eq!(middle_seen.lock().unwrap()[0], ["user Ask."], "a sub-agent sees its task and nothing before it");
        assert_eq!(
            middle_seen.lock().unwrap()[1],
            ["user Ask.", &call("deep", "Dive."), "tool [call-0-0] The answer is deep."]
        );
        assert_eq!(deep_seen.lock().unwrap()[0], ["user Dive."]);
        assert_eq!(deep_seen.lock().unwrap()[1].len(), 3);
        let merged = bodies::<Merged>(&session).await;
        assert_eq!((merged.len(), &merged[0].how), (1, &MergeStrategy::FilesOnly));
        let middle = merged[0].branches[0].session;
        let inner = stored::<Merged>(&store, middle).await;
        assert_eq!((inner.len(), &inner[0].how), (1, &MergeStrategy::FilesOnly));
        let rows = store.sessions(SessionFilter::All.into()).await.unwrap();
        assert_eq!((rows.len(), rows.iter().filter(|row| row.closed).count()), (3, 2));
        assert_eq!(
            session
                .history()
                .await
                .unwrap()
                .all()
                .await
                .unwrap()
                .iter()
                .filter(|r| *r.kind() == Kind::ModelResponded)
                .count(),
            6
        );
        assert!(session.pending().is_empty());
    }
}

/// A turn with `count` calls of the helper, which finish in reverse order.
fn twenty(count: u64) -> (Scripted, Scripted) {
    let turn = (0..count).fold(Turn::new(), |turn, at| turn.call("helper", json!({ "task": at.to_string() })));
    let helper = Scripted::from_async_fn(move |seen| async move {
        match seen.turn {
            0 => {
                let at: u64 = seen.latest.parse().unwrap();
                for _ in 0..(count - at) * 10 {
                    tokio::task::yield_now().await;
                }
                Turn::new()
                    .call("write", json!({ "path": format!("part-{at}"), "content": format!("{at}\n") }))
                    .usage(usage(1))
            }
            _ => Turn::new().text("Written.").usage(usage(1)),
        }
    });
    (Scripted::new("s").turn(turn.usage(usage(1000))).turn(Turn::new().text("All written.").usage(usage(1000))), helper)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_twenty_concurrent_sub_agents_are_merged() {
    let shop = Shop::new();
    let origin = shop.directory("origin");
    std::fs::write(origin.join("old"), "old\n").unwrap();
    let mut session = asked(&shop.store);
    shop.workspaces.assign(&mut session, PlacementSpec::copy_of("host", &origin)).await.unwrap();
    session.provide(shop.second());
    let (outer, helper) = twenty(20);
    let helper = Agent::new("helper").model(helper).tools(tools::coding()).as_tool("Writes.");
    let agent = Agent::new("outer").model(outer).tools((helper, tools::coding()));
    let session = in_time(agent.forward(session)).await.unwrap();
    let wanted: BTreeMap<String, String> =
        (0..20).map(|at| (format!("part-{at}"), format!("{at}\n"))).chain([("old".into(), "old\n".into())]).collect();
    assert_eq!(shop.now(&session), wanted);
    assert_eq!(session.usage().input_tokens, 2040);
    assert_eq!(results(&session).await.len(), 20);
    let merged = bodies::<Merged>(&session).await;
    let why: Vec<_> = merged[0].branches.iter().map(|branch| branch.why.clone().unwrap_or_default()).collect();
    let in_order: Vec<_> = (0..20).map(|at| format!("call call-0-{at} of helper")).collect();
    assert_eq!(why, in_order, "branches come together in call order, whichever ends first");
    assert!(session.pending().is_empty());
    drop(session);
    shop.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_sub_agents_than_a_record_can_have_parents() {
    let store = InMemory::new();
    let turn = (0..70).fold(Turn::new(), |turn, at| turn.call("helper", json!({ "task": at.to_string() })));
    let helper = Scripted::from_fn(|seen| Turn::new().text(format!("Done {}.", seen.latest)).usage(usage(1)));
    let helper = Agent::new("helper").model(helper).as_tool("Helps.");
    let script = Scripted::new("s").turn(turn.usage(usage(0))).turn(Turn::new().text("Done.").usage(usage(0)));
    let session = in_time(Agent::new("outer").model(script).tools(helper).forward(asked(&store))).await.unwrap();
    assert_eq!(session.usage().input_tokens, 70);
    let results = results(&session).await;
    assert!(results.iter().enumerate().all(|(at, (_, text, _))| *text == format!("Done {at}.")), "{results:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_sub_agent_is_a_failed_result_and_its_branch_stays() {
    let store = InMemory::new();
    let helper = Scripted::from_fn(|seen| match (seen.turn, &*seen.latest) {
        (0, "bad") => Turn::new().call("echo", json!({ "text": "so far" })).usage(usage(1)),
        (1, "so far") => Turn::from(Failure::permanent("broken")),
        _ => Turn::new().text("Fine.").usage(usage(1)),
    });
    let helper = Agent::new("helper").model(helper).tools(echo).as_tool("Helps.");
    let turn = Turn::new().call("helper", json!({ "task": "bad" })).call("helper", json!({ "task": "good" }));
    let script = Scripted::new("s").turn(turn.usage(usage(10))).turn(Turn::new().text("Half.").usage(usage(10)));
    let session = Agent::new("outer").model(script).tools(helper).forward(asked(&store)).await.unwrap();
    let results = results(&session).await;
    assert!(results[0].2 && results[0].1.contains("did not answer: broken"), "{results:?}");
    assert_eq!((&*results[1].1, results[1].2), ("Fine.", false));
    assert_eq!(session.usage().input_tokens, 22, "what it used until then is counted");
    let merged = bodies::<Merged>(&session).await;
    assert_eq!(merged[0].branches.len(), 2);
    let bad = merged[0].branches[0].session;
    assert_eq!(stored::<ToolFinished>(&store, bad).await.len(), 1, "what it did is in the history");
    assert_eq!(stored::<rath::body::Failed>(&store, bad).await.len(), 1);
    assert!(session.pending().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_tasks_are_failed_results() {
    let helper = || Agent::new("helper").model(Scripted::new("s").say("Fine.")).as_tool("Helps.");
    let turn = Turn::new().call("helper", json!({})).call_text("helper", "").call("helper", json!({ "task": 1 }));
    let script = Scripted::new("s").turn(turn).say("Done.");
    let session = Agent::new("outer").model(script).tools(helper()).forward(asked(&InMemory::new())).await.unwrap();
    assert!(results(&session).await.iter().all(|(_, text, failed)| *failed && text.contains("\"task\"")));
    assert_eq!((count(&session, Kind::ToolStarted).await, count(&session, Kind::Merged).await), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_workflow_can_be_a_tool() {
    let say = |name: &str, text: &str| Agent::new(name).model(Scripted::new("s").say(text));
    let both = chain("both").then(say("one", "First.")).then(say("two", "Second."));
    let tool = SubAgent::new("both", "Does both.", both);
    let script = Scripted::new("s").call("both", json!({ "task": "go" })).say("Done.");
    let session = Agent::new("outer").model(script).tools(tool).forward(asked(&InMemory::new())).await.unwrap();
    assert_eq!(results(&session).await[0].1, "Second.");
}

/// A branch finishes while another call of its turn waits for an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_that_finishes_before_an_answer_is_merged() {
    let store = InMemory::new();
    let helper = Scripted::new("s").turn(Turn::new().text("Fine.").usage(usage(5)));
    let helper = Agent::new("helper").model(helper).as_tool("Helps.");
    let turn = Turn::new().call("helper", json!({ "task": "x" })).call("ask_human", json!({ "question": "Now?" }));
    let script = Scripted::new("s").turn(turn.usage(usage(10))).turn(Turn::new().text("Done.").usage(usage(10)));
    let agent = Agent::new("outer").model(script).tools((helper, tools::ask_human));
    let mut session = asked(&store);
    session.provide(OnQuestion::Wait);
    let id = session.id();
    let working = tokio::spawn(async move { agent.forward(session).await });
    in_time(async {
        loop {
            let view = View::of(&store, id, None).await;
            let asks = view.map(|view| view.pending().asks).unwrap_or_default();
            if let Some(ask) = asks.first() {
                let (asked, shown_digest) = (ask.record, ask.shown_digest);
                break post(&store, id, PostContent::Answer { asked, shown_digest, verdict: Verdict::Yes, why: None })
                    .await;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let session = in_time(working).await.unwrap().unwrap();
    assert_eq!(bodies::<Merged>(&session).await.len(), 1, "the branch was forgotten");
    assert_eq!(session.usage().input_tokens, 25);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_of_a_sub_agent_makes_the_run_wait() {
    let store = InMemory::new();
    let helper = Scripted::from_fn(|seen| match seen.turn {
        0 => Turn::new().call("ask_human", json!({ "question": "Which?" })).usage(usage(1)),
        _ => Turn::new().text(format!("They say {}.", seen.latest)).usage(usage(1)),
    });
    let helper = || Agent::new("helper").model(helper.clone()).tools(tools::ask_human).as_tool("Helps.");
    let turn = Turn::new().call("helper", json!({ "task": "a" })).call("helper", json!({ "task": "b" }));
    let script = Scripted::new("s").turn(turn.usage(usage(10))).turn(Turn::new().text("Done.").usage(usage(10)));
    let agent = Agent::new("outer").model(script).tools(helper());
    let mut rounds = 0;
    let session = loop {
        let input = async |session: &mut Session| session.user("Please.").map(|_| ());
        match store.run("r", Actor::program("test"), &agent, input).await {
            Ok(session) => break session,
            Err(error) => assert_eq!(error.code(), "waiting", "{error}"),
        }
        rounds += 1;
        assert!(rounds < 5);
        // One answer per resumed run.
        for row in store.sessions(SessionFilter::All.into()).await.unwrap() {
            let asks = View::of(&store, row.id, None).await.unwrap().pending().asks;
            if let Some(ask) = asks.first() {
                let verdict = Verdict::Text("red".into());
                let (asked, shown_digest) = (ask.record, ask.shown_digest);
                post(&store, row.id, PostContent::Answer { asked, shown_digest, verdict, why: None }).await;
                break;
            }
        }
    };
    assert_eq!(rounds, 2);
    assert!(results(&session).await.iter().all(|(_, text, failed)| text == "They say red." && !failed));
    assert_eq!(session.usage().input_tokens, 24, "every branch is taken in once");
    assert_eq!(store.sessions(SessionFilter::All.into()).await.unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_of_a_sub_agent_does_not_outlive_the_run() {
    let store = InMemory::new();
    let deep = Scripted::new("s").call("ask_human", json!({ "question": "Which?" })).say("Never.");
    let deep = Agent::new("deep").model(deep).tools(tools::ask_human).as_tool("Asks.");
    let helper = Scripted::new("s").call("deep", json!({ "task": "ask" })).say("Never.");
    let helper = Agent::new("helper").model(helper).tools(deep).as_tool("Helps.");
    let script = Scripted::new("s").call("helper", json!({ "task": "a" })).say("Never.");
    let agent = Agent::new("outer").model(script).tools(helper);
    let input = async |session: &mut Session| session.user("Please.").map(|_| ());
    let error = store.run("r", Actor::program("test"), &agent, input).await.unwrap_err();
    assert_eq!(error.code(), "waiting", "{error}");
    let root = error.sessions()[0].id();
    drop(error);
    post(&store, root, PostContent::Cancel { why: "never mind".into() }).await;
    let error = store.run("r", Actor::program("test"), &agent, input).await.unwrap_err();
    assert_eq!(error.code(), "cancelled", "{error}");
    drop(error);
    let rows = store.sessions(SessionFilter::All.into()).await.unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        let pending = View::of(&store, row.id, None).await.unwrap().pending();
        assert!(pending.is_empty(), "{pending:?}");
    }
}

/// An answer for the caller while a sub-agent waits for another answer must not start the sub-agent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_for_the_caller_does_not_restart_a_waiting_sub_agent() {
    let began = Arc::new(Mutex::new(0));
    let beginning = began.clone();
    let helper = Scripted::from_fn(move |seen| match seen.turn {
        0 => {
            *beginning.lock().unwrap() += 1;
            Turn::new().call("ask_human", json!({ "question": "Inside?" }))
        }
        _ => Turn::from("Helped."),
    });
    let helper = Agent::new("helper").model(helper).tools(tools::ask_human).as_tool("Helps.");
    let turn = Turn::new().call("ask_human", json!({ "question": "Outside?" })).call("helper", json!({ "task": "a" }));
    let agent = Agent::new("outer").model(Scripted::new("s").turn(turn).say("Done.")).tools((tools::ask_human, helper));
    // The caller's question is answered when the sub-agent's question is asked.
    let outside = Mutex::new(None);
    let store = Hooked::new(InMemory::new(), move |batch| {
        let mut outside = outside.lock().unwrap();
        let asked = batch.parts.iter().flat_map(|part| &part.records).filter(|record| *record.kind() == Kind::Asked);
        for record in asked {
            let body: rath::body::Asked = record.body().unwrap();
            let what = PostContent::Answer {
                asked: record.id(),
                shown_digest: body.shown_digest,
                verdict: Verdict::Yes,
                why: None,
            };
            match body.shown.to_string().as_str() {
                "Outside?" => *outside = Some(Post::new(record.session(), Actor::person("grace"), what)),
                _ => return outside.take(),
            }
        }
        None
    });
    let input = async |session: &mut Session| session.user("Please.").map(|_| ());
    let error = in_time(store.run("r", Actor::program("test"), &agent, input)).await.unwrap_err();
    assert_eq!(error.code(), "waiting", "{error}");
    drop(error);
    assert_eq!(store.sessions(SessionFilter::All.into()).await.unwrap().len(), 2, "one branch for one call");
    for row in store.sessions(SessionFilter::All.into()).await.unwrap() {
        for ask in View::of(&store, row.id, None).await.unwrap().pending().asks {
            let (asked, shown_digest) = (ask.record, ask.shown_digest);
            let what = PostContent::Answer { asked, shown_digest, verdict: Verdict::Yes, why: None };
            store.post(Post::new(row.id, Actor::person("grace"), what)).await.unwrap();
        }
    }
    let session = in_time(store.run("r", Actor::program("test"), &agent, input)).await.unwrap();
    assert_eq!(results(&session).await.len(), 2);
    assert_eq!(*began.lock().unwrap(), 1, "the sub-agent began once");
}

/// A question of a workflow always ends the run, even with `OnQuestion::Wait`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_of_a_workflow_as_a_tool_ends_the_run() {
    let keeps = async |mut session: Session| match session.ask("Inside?").await {
        Ok(_) => Ok(session),
        Err(error) => Err(error.with_sessions(vec![session])),
    };
    let drops = async |mut session: Session| {
        session.ask("Inside?").await?;
        Ok(session)
    };
    for tool in [SubAgent::new("asks", "Asks.", keeps), SubAgent::new("asks", "Asks.", drops)] {
        let agent = Agent::new("outer").model(Scripted::new("s").call("asks", json!({ "task": "a" }))).tools(tool);
        let mut session = asked(&InMemory::new());
        session.provide(OnQuestion::Wait);
        let error = in_time(agent.forward(session)).await.unwrap_err();
        assert_eq!(error.code(), "waiting", "{error}");
    }
}

/// A changed sub-agent changes its caller's configuration: resuming fails before anything is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_changed_changes_its_caller() {
    let caller = |prompt: &str| {
        let asking = Scripted::new("a").call("ask_human", json!({ "question": "Really?" })).say("Done.");
        let inner = Agent::new("inner").prompt(prompt).model(asking).tools(tools::ask_human).as_tool("Works.");
        let middle = Scripted::new("m").call("inner", json!({ "task": "a" })).say("Done.");
        let middle = Agent::new("middle").model(middle).tools(inner).as_tool("Has it done.");
        Agent::new("outer").model(Scripted::new("o").call("middle", json!({ "task": "a" })).say("Done.")).tools(middle)
    };
    let store: Arc<dyn Store> = InMemory::new();
    let input = async |session: &mut Session| session.user("Please.").map(|_| ());
    let waiting = store.run("r", Actor::program("test"), &caller("Be kind."), input).await.unwrap_err();
    assert_eq!(waiting.code(), "waiting", "{waiting}");
    drop(waiting);
    let lengths =
        async || store.sessions(rath::store::Query::default()).await.unwrap().iter().map(|row| row.seq).sum::<u64>();
    let length = lengths().await;
    let error = store.run("r", Actor::program("test"), &caller("Be quick."), input).await.unwrap_err();
    let ErrorKind::Diverged(diverged) = error.kind() else { panic!("{error}") };
    let changed = "tools.middle.agent.tools.inner.agent.prompt: \"Be kind.\" was recorded, now it is \"Be quick.\"";
    assert_eq!(diverged.changed, [changed]);
    assert_eq!(lengths().await, length, "nothing was done");
}

/// An agent that calls a helper in two turns, both calls with this id.
fn same_ids(id: &str) -> Agent {
    let helper = Scripted::from_fn(|seen| Turn::new().text(format!("Did {}.", seen.latest)).usage(usage(1)));
    let helper = Agent::new("helper").model(helper).as_tool("Helps.");
    let call = |task: &str| Turn::new().call("helper", json!({ "task": task })).id(id).usage(usage(10));
    let script =
        Scripted::new("s").turn(call("one")).turn(call("two")).turn(Turn::new().text("Done.").usage(usage(10)));
    Agent::new("outer").model(script).tools(helper)
}

async fn killed_at_any_commit(id: &str) {
    let input = async |session: &mut Session| session.user("Please.").map(|_| ());
    let mut commits = 0;
    loop {
        let mut died = false;
        for moment in [CrashPoint::Before, CrashPoint::After] {
            let store = InMemory::new();
            let mortal = CrashingStore::new(store.clone(), commits, moment);
            let dying: Arc<dyn Store> = mortal.clone();
            let agent = same_ids(id);
            drop(dying.run("r", Actor::program("test"), &agent, input).await);
            died |= mortal.is_dead();
            let session = store.run("r", Actor::program("test"), &agent, input).await.unwrap();
            let texts: Vec<_> = results(&session).await.into_iter().map(|(_, text, _)| text).collect();
            assert_eq!(texts, ["Did one.", "Did two."], "killed {moment:?} commit {commits}");
            assert_eq!(session.usage().input_tokens, 32, "killed {moment:?} commit {commits}");
            assert_eq!(bodies::<Merged>(&session).await.len(), 2);
            assert!(session.pending().is_empty());
        }
        if !died {
            break;
        }
        commits += 1;
    }
    assert!(commits > 8, "{commits}");
}

/// Some providers give calls no ids.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_commit_calls_without_ids_have_separate_branches() {
    killed_at_any_commit("").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_commit_calls_with_equal_ids_have_separate_branches() {
    killed_at_any_commit("same").await;
}

/// An agent that calls helpers, turn by turn. A helper with the task `path=content` writes that file; with `!` at the
/// end it then fails. A helper with the task `both:TASK,TASK` calls two helpers of its own.
fn writers(turns: &[&[&str]]) -> Agent {
    let write = |task: &str| {
        let (path, content) = task.trim_end_matches('!').split_once('=').unwrap();
        Turn::new().call("write", json!({ "path": path, "content": content })).usage(usage(1))
    };
    let done = || Turn::new().text("Written.").usage(usage(1));
    let both = |tasks: &str| {
        let call = |turn: Turn, task| turn.call("deep", json!({ "task": task }));
        tasks.split(',').fold(Turn::new(), call).usage(usage(1))
    };
    let deep = Scripted::from_fn(move |seen| if seen.turn == 0 { write(&seen.latest) } else { done() });
    let deep = Agent::new("deep").model(deep).tools(tools::coding()).as_tool("Writes.");
    let helper = Scripted::from_fn(move |seen| match (seen.turn, seen.latest.strip_prefix("both:")) {
        (0, Some(tasks)) => both(tasks),
        (0, None) => write(&seen.latest),
        _ => done(),
    });
    let helper = Agent::new("helper").model(helper).tools((deep, tools::coding())).as_tool("Writes.");
    let failing = Scripted::from_fn(move |seen| match seen.turn {
        0 => write(&seen.latest),
        _ => Turn::from(Failure::permanent("broken")),
    });
    let failing = Agent::new("failing").model(failing).tools(tools::coding()).as_tool("Fails.");
    let call = |turn: Turn, task: &&str| {
        let tool = if task.ends_with('!') { "failing" } else { "helper" };
        turn.call(tool, json!({ "task": task }))
    };
    let calls = turns.iter().map(|turn| turn.iter().fold(Turn::new(), call).usage(usage(10)));
    let script = calls.fold(Scripted::new("s"), Scripted::turn);
    Agent::new("outer").model(script.turn(Turn::new().text("Done.").usage(usage(10)))).tools((helper, failing))
}

/// A session whose workspace has a file `a`.
async fn placed(shop: &Shop) -> Session {
    let origin = shop.directory("origin");
    std::fs::write(origin.join("a"), "old\n").unwrap();
    let mut session = asked(&shop.store);
    shop.workspaces.assign(&mut session, PlacementSpec::copy_of("host", &origin)).await.unwrap();
    session.provide(shop.second());
    session
}

async fn texts(session: &Session) -> Vec<String> {
    results(session).await.into_iter().map(|(_, text, _)| text).collect()
}

/// The caller's model is shown which changes were not merged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_is_reported_to_the_caller() {
    let shop = Shop::new();
    let agent = writers(&[&["a=one", "a=two", "b=three"], &["a=one and two"]]);
    let session = in_time(agent.forward(placed(&shop).await)).await.unwrap();
    let texts = texts(&session).await;
    assert_eq!([&*texts[0], &*texts[2], &*texts[3]], ["Written.", "Written.", "Written."], "{texts:?}");
    let conflicts = &session.state().conflicts;
    assert_eq!(conflicts.len(), 1, "{conflicts:?}");
    let branch = conflicts[0].branch.unwrap().short();
    assert!(texts[1].starts_with("Written.\n\nSome of its file changes were not merged."), "{}", texts[1]);
    assert!(texts[1].contains("version was kept:\n- a (both changed it)\nRead these files,"), "{}", texts[1]);
    assert!(texts[1].contains(&format!("remains on branch {branch};")), "{}", texts[1]);
    assert_eq!(shop.now(&session), crate::support::tree(&[("a", "one and two"), ("b", "three")]));
    assert_eq!(session.usage().input_tokens, 38, "every branch is taken in, also after a conflict");
    drop(session);
    shop.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_within_a_branch_is_merged_with_it() {
    let shop = Shop::new();
    let session = in_time(writers(&[&["both:a=one,a=two"]]).forward(placed(&shop).await)).await.unwrap();
    let texts = texts(&session).await;
    assert!(
        texts[0].ends_with("left merge conflicts, and one side of each is in the files:\n- a (both changed it)"),
        "{texts:?}"
    );
    assert_eq!(session.state().conflicts.len(), 1, "it is open still");
    assert_eq!(shop.now(&session)["a"], "one");
    drop(session);
    shop.verify();
}

/// Partial changes of a failed sub-agent are not merged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_files_of_a_failed_sub_agent_are_not_merged() {
    let shop = Shop::new();
    let agent = writers(&[&["a=half!", "a=whole", "c=half!"]]);
    let session = in_time(agent.forward(placed(&shop).await)).await.unwrap();
    let results = results(&session).await;
    assert_eq!(results.iter().map(|result| result.2).collect::<Vec<_>>(), [true, false, true], "{results:?}");
    assert!(results[0].1.contains("broken\n\nThe call failed, so none of its file changes were merged."));
    assert_eq!(results[1].1, "Written.");
    assert_eq!(shop.now(&session), crate::support::tree(&[("a", "whole")]));
    assert!(session.state().conflicts.is_empty());
    let merged = bodies::<Merged>(&session).await;
    let without: Vec<_> = merged[0].branches.iter().map(|branch| branch.without_files).collect();
    assert_eq!(without, [true, false, true]);
    assert_eq!(session.usage().input_tokens, 24, "what they used is counted");
    assert!(results[0].1.ends_with(&format!("remain on branch {}.", merged[0].branches[0].session.short())));
    let kept = View::of(&shop.store, merged[0].branches[0].session, None).await.unwrap();
    assert_eq!(shop.files(kept.state().workspace.as_ref().unwrap())["a"], "half", "what it did is there to look at");
    let blame = session.view().await.unwrap().blame(&"a".into()).await.unwrap();
    assert_eq!(blame.origins[0].branch.as_deref(), Some("call call-0-1 of helper"));
    drop(session);
    shop.verify();
}

/// Even if the process dies between the merge and the results.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_commit_the_notices_about_conflicts_are_equal() {
    // On the backend `host`, each interrupted write would need an answer.
    if !crate::support::isolates() {
        return;
    }
    let run = async |store: Arc<dyn Store>, shop: &Shop| {
        let workspaces = Arc::new(crate::support::workspaces(&store, shop.dir.path()));
        let origin = shop.directory("origin");
        let input = async |session: &mut Session| {
            session.user("Please.")?;
            match workspaces.assign(session, PlacementSpec::copy_of("local", &origin)).await {
                Err(rath::workspaces::Error::Session(error)) => Err(error),
                placed => placed.map(drop).map_err(|error| ErrorKind::Workflow(error.into()).into()),
            }
        };
        let mut session = store.begin_run("r", Actor::program("test"), input).await?;
        session.provide_shared(workspaces.clone());
        session.execute(&writers(&[&["a=one", "a=two", "c=half!"]])).await
    };
    let without_ids = |text: &str| text.split(" on branch ").next().unwrap().to_owned();
    let (mut wanted, mut commits) = (None, 0);
    loop {
        let mut died = false;
        for moment in [CrashPoint::Before, CrashPoint::After] {
            let shop = Shop::new();
            std::fs::write(shop.directory("origin").join("a"), "old\n").unwrap();
            let mortal = CrashingStore::new(shop.store.clone(), commits, moment);
            drop(in_time(run(mortal.clone(), &shop)).await);
            died |= mortal.is_dead();
            let session = in_time(run(shop.store.clone(), &shop)).await.unwrap();
            let told: Vec<_> = texts(&session).await.iter().map(|text| without_ids(text)).collect();
            assert!(
                told[1].contains("a (both changed it)") && told[2].contains("none of its file changes were merged"),
                "{told:?}"
            );
            assert_eq!(*wanted.get_or_insert_with(|| told.clone()), told, "killed {moment:?} commit {commits}");
            assert_eq!(shop.now(&session), crate::support::tree(&[("a", "one")]), "killed {moment:?} commit {commits}");
            assert_eq!(bodies::<Merged>(&session).await.len(), 1);
        }
        if !died {
            break;
        }
        commits += 1;
    }
    assert!(commits > 8, "{commits}");
}
