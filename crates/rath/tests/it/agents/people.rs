//! Approvals, questions, and posts to a running agent.

use std::sync::atomic::{AtomicU64, Ordering};

use rath::agent::OnQuestion;
use rath::body::{Answered, Asked, Failed, Labelled, Outcome, QuestionKind, StepLeft, Verdict};
use rath::{ErrorKind, Kind};
use serde_json::json;

use super::*;

/// Counts its calls.
#[tool(effect = "irreversible")]
fn ring(times: Resource<AtomicU64>) -> String {
    format!("rang {}", times.fetch_add(1, Ordering::AcqRel) + 1)
}

fn ringer(calls: usize) -> (Agent, Arc<AtomicU64>) {
    let times = Arc::new(AtomicU64::new(0));
    let turn = (0..calls).fold(Turn::new(), |turn, _| turn.call("ring", json!({})));
    let script = Scripted::new("s").turn(turn).say("Done.");
    (Agent::new("ringer").model(script).tools(ring).with_shared(times.clone()), times)
}

/// Answers the `nth` open question of a session.
async fn answer(store: &Arc<dyn Store>, id: SessionId, nth: usize, verdict: Verdict, why: Option<&str>) {
    let asks = View::of(store, id, None).await.unwrap().pending().asks;
    let (asked, shown_digest) = (asks[nth].record, asks[nth].shown_digest);
    post(store, id, PostContent::Answer { asked, shown_digest, verdict, why: why.map(Into::into) }).await;
}

async fn run(store: &Arc<dyn Store>, agent: &Agent) -> Result<Session> {
    store
        .run("a run", Actor::program("test"), agent, async |session: &mut Session| {
            session.user("Please.")?;
            Ok(())
        })
        .await
}

/// Checks that the run waits with this number of open questions.
async fn waits(ended: Result<Session>, questions: usize) -> SessionId {
    let error = ended.unwrap_err();
    let ErrorKind::Waiting(id) = error.kind() else { panic!("{error}") };
    let id = *id;
    assert_eq!(error.code(), "waiting");
    let session = &error.sessions()[0];
    assert_eq!((session.id(), session.pending().asks.len(), session.unpublished_count()), (id, questions, 0));
    assert_eq!(count(session, Kind::Failed).await + count(session, Kind::StepLeft).await, 0, "the run is not over");
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_call_is_a_failed_result() {
    let (agent, times) = ringer(1);
    let agent = agent.tool_policy("ring", Decision::Deny("it is night".into()));
    let session = agent.forward(asked(&InMemory::new())).await.unwrap();
    assert_eq!(results(&session).await, [("call-0-0".into(), "This call is not allowed: it is night".into(), true)]);
    assert_eq!((times.load(Ordering::Acquire), count(&session, Kind::ToolStarted).await), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ask_human_can_be_denied() {
    let script = Scripted::new("s").call("ask_human", json!({ "question": "Which colour?" })).say("Done.");
    let agent = Agent::new("painter").model(script).tools(tools::ask_human);
    let agent = agent.tool_policy("ask_human", Decision::Deny("nobody is there".into()));
    let session = agent.forward(asked(&InMemory::new())).await.unwrap();
    let refusal = "This call is not allowed: nobody is there";
    assert_eq!(results(&session).await, [("call-0-0".into(), refusal.into(), true)]);
    assert_eq!(count(&session, Kind::Asked).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ask_human_needs_no_approval() {
    let store = InMemory::new();
    let script = Scripted::new("s").call("ask_human", json!({ "question": "Which colour?" })).say("Done.");
    let agent = Agent::new("painter").model(script).tools(tools::ask_human).tool_policy("ask_human", Decision::Ask);
    let id = waits(run(&store, &agent).await, 1).await;
    let asked = stored::<Asked>(&store, id).await;
    assert_eq!((asked[0].about, &*asked[0].shown.to_string()), (QuestionKind::Question, "Which colour?"));
    answer(&store, id, 0, Verdict::Text("red".into()), None).await;
    let session = run(&store, &agent).await.unwrap();
    assert_eq!(results(&session).await, [("call-0-0".into(), "red".into(), false)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_waits_for_its_approval() {
    let no = |why: &str| format!("grace did not allow this call{why}");
    for (verdict, why, said, failed) in [
        (Verdict::Yes, None, "rang 1".to_owned(), false),
        (Verdict::Yes, Some("go ahead"), "rang 1".to_owned(), false),
        (Verdict::No, None, no(""), true),
        (Verdict::No, Some("it is night"), no(": it is night"), true),
        (Verdict::Text("only by day".into()), None, no(": only by day"), true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        for store in [InMemory::new(), Embedded::create(dir.path().join("store")).unwrap()] {
            let (agent, times) = ringer(1);
            let agent = agent.tool_policy("ring", Decision::Ask);
            let id = waits(run(&store, &agent).await, 1).await;
            assert_eq!(times.load(Ordering::Acquire), 0);
            // Resuming without an answer changes nothing.
            waits(run(&store, &agent).await, 1).await;
            answer(&store, id, 0, verdict.clone(), why).await;
            let session = run(&store, &agent).await.unwrap();
            assert_eq!(results(&session).await, [("call-0-0".into(), said.clone(), failed)]);
            assert_eq!(times.load(Ordering::Acquire), u64::from(!failed));
            let asked = bodies::<Asked>(&session).await;
            assert_eq!((asked.len(), asked[0].about), (1, QuestionKind::Approval));
            assert_eq!(
                asked[0].shown.to_string(),
                "Agent ringer wants to call ring:\n{}\nalways: ring with exactly these arguments"
            );
            let answered = line(&session).await.into_iter().find(|record| *record.kind() == Kind::Answered).unwrap();
            assert_eq!(answered.header().unwrap().actor, Actor::person("grace"));
            assert!(session.pending().is_empty());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_answer_does_not_answer_two_questions() {
    let store = InMemory::new();
    let (agent, times) = ringer(2);
    let agent = agent.tool_policy("ring", Decision::Ask);
    let id = waits(run(&store, &agent).await, 2).await;
    let asked = stored::<Asked>(&store, id).await;
    assert_eq!(asked[0].shown_digest, asked[1].shown_digest, "both questions show the same");
    answer(&store, id, 1, Verdict::Yes, None).await;
    waits(run(&store, &agent).await, 1).await;
    assert_eq!(times.load(Ordering::Acquire), 1, "what was allowed is done, the other one waits");
    assert_eq!(stored::<rath::body::ToolResult>(&store, id).await.len(), 0);
    // A second copy of the answer does not answer the other question.
    let first: Vec<Answered> = stored(&store, id).await;
    let Answered { asked, shown_digest, verdict, why } = first[0].clone();
    post(&store, id, PostContent::Answer { asked, shown_digest, verdict, why }).await;
    waits(run(&store, &agent).await, 1).await;
    answer(&store, id, 0, Verdict::No, None).await;
    let session = run(&store, &agent).await.unwrap();
    assert_eq!(times.load(Ordering::Acquire), 1);
    let results = results(&session).await;
    assert_eq!(
        [(&*results[0].0, results[0].2), (&*results[1].0, results[1].2)],
        [("call-0-0", true), ("call-0-1", false)]
    );
    assert_eq!(count(&session, Kind::Answered).await, 3, "every answer is kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_on_question_wait_a_run_waits_for_the_answer() {
    let store = InMemory::new();
    let turn = Turn::new()
        .call("ask_human", json!({ "question": "Which colour?" }))
        .call("echo", json!({ "text": "meanwhile" }))
        .call("ask_human", json!({ "question": "Sure?" }));
    let script = Scripted::new("s").turn(turn).say("Done.");
    let agent = Agent::new("painter").model(script).tools((tools::ask_human, echo));
    let mut session = asked(&store);
    session.provide(OnQuestion::Wait);
    let id = session.id();
    let working = tokio::spawn(async move { agent.forward(session).await });
    let wait_for = async |questions: usize| {
        while stored::<Asked>(&store, id).await.len() < questions {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time(wait_for(2)).await;
    // The calls run concurrently: either may ask first.
    let questions = stored::<Asked>(&store, id).await;
    let sure = questions.iter().position(|asked| asked.shown.to_string() == "Sure?").unwrap();
    answer(&store, id, sure, Verdict::Yes, Some("I have looked")).await;
    in_time(async {
        while stored::<Answered>(&store, id).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    answer(&store, id, 0, Verdict::Text("red".into()), None).await;
    let session = in_time(working).await.unwrap().unwrap();
    let results = results(&session).await;
    let texts: Vec<_> = results.iter().map(|(_, text, _)| &**text).collect();
    assert_eq!(texts, ["red", "meanwhile", "yes: I have looked"]);
    assert_eq!(count(&session, Kind::ToolStarted).await, 3, "each call was made once");
    assert!(session.pending().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_posted_during_a_request_is_answered_in_the_same_step() {
    let store = InMemory::new();
    let session = asked(&store);
    let id = session.id();
    let inner = store.clone();
    let script = Scripted::from_async_fn(move |seen| {
        let store = inner.clone();
        async move {
            if seen.turn == 0 {
                post(&store, id, PostContent::Message { text: "And in blue.".into() }).await;
            }
            Turn::from(format!("I heard: {}", seen.latest))
        }
    });
    let session = Agent::new("listener").model(script).forward(session).await.unwrap();
    let wanted = ["user Please.", "assistant I heard: Please.", "user And in blue.", "assistant I heard: And in blue."];
    assert_eq!(transcript(&session).await, wanted);
    assert_eq!((count(&session, Kind::StepEntered).await, count(&session, Kind::StepLeft).await), (1, 1));
    let line = line(&session).await;
    let said = line.iter().filter(|record| *record.kind() == Kind::User).nth(1).unwrap();
    assert_eq!(said.header().unwrap().actor, Actor::person("grace"), "the poster said it");
    assert!(store.posts(id).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_posted_during_calls_follows_their_results() {
    let store = InMemory::new();
    let session = asked(&store);
    let id = session.id();
    let inner = store.clone();
    let script = Scripted::from_async_fn(move |seen| {
        let store = inner.clone();
        async move {
            match seen.turn {
                0 => {
                    post(&store, id, PostContent::Message { text: "Hurry.".into() }).await;
                    Turn::new().call("nothing", json!({}))
                }
                _ => Turn::from("Done."),
            }
        }
    });
    let session = Agent::new("listener").model(script).tools(nothing).forward(session).await.unwrap();
    let all = transcript(&session).await;
    let at = |words: &str| all.iter().position(|line| line.contains(words)).unwrap();
    assert_eq!(at("[call-0-0] nothing"), at("→ nothing") + 1, "{all:?}");
    assert!(at("Hurry.") < at("Done."), "{all:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_can_be_posted() {
    let store = InMemory::new();
    let mut session = asked(&store);
    session.publish().await.unwrap();
    let labelled = Labelled { title: Some("a door".into()), ..Labelled::default() };
    post(&store, session.id(), PostContent::Label { labelled }).await;
    let agent = Agent::new("painter").model(Scripted::new("s").say("Done."));
    let session = agent.forward(session).await.unwrap();
    assert_eq!(session.title(), Some("a door"));
    assert_eq!(transcript(&session).await.len(), 2, "the model does not see it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_error_of_a_failed_join_carries_its_sessions() {
    let store = InMemory::new();
    let good = Agent::new("good").model(Scripted::new("s").say("Fine."));
    let bad = Agent::new("bad").model(Scripted::new("s").turn(Failure::permanent("broken")));
    let (good, bad) = (&good, &bad);
    let error = asked(&store)
        .step("both", async move |session: Session| {
            let (left, right) = (session.fork("left"), session.fork("right"));
            match tokio::join!(good.forward(left), bad.forward(right)) {
                (Ok(left), Ok(right)) => session.merge([left, right], How::Append).await,
                (Ok(left), Err(error)) => Err(error.with_sessions(vec![session, left])),
                _ => panic!("the left one is good"),
            }
        })
        .await
        .unwrap_err();
    assert_eq!(error.code(), "model-failed");
    let sessions = error.into_sessions();
    assert_eq!(sessions.len(), 3);
    for (session, failed, left) in
        [(&sessions[0], 0, Outcome::Failed), (&sessions[1], 0, Outcome::Done), (&sessions[2], 1, Outcome::Failed)]
    {
        assert!(session.pending().is_empty(), "{:?}", session.pending());
        assert_eq!(bodies::<Failed>(session).await.len(), failed, "it is said once, where it happened");
        assert_eq!(bodies::<StepLeft>(session).await[0].outcome, left);
        assert_eq!(session.unpublished_count(), 0);
    }
    assert_eq!(sessions[1].text().await.unwrap().as_deref(), Some("Fine."), "the good branch is not lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_that_drops_sessions_loses_no_records() {
    let store = InMemory::new();
    let good = Agent::new("good").model(Scripted::new("s").say("Fine."));
    let bad = Agent::new("bad").model(Scripted::new("s").turn(Failure::permanent("broken")));
    let (good, bad) = (&good, &bad);
    let session = asked(&store);
    let id = session.id();
    let error = session
        .step("both", async move |session: Session| {
            let (left, right) = (session.fork("left"), session.fork("right"));
            let (left, right) = tokio::join!(bad.forward(left), good.forward(right));
            session.merge([left?, right?], How::Append).await
        })
        .await
        .unwrap_err();
    let sessions = error.into_sessions();
    assert_eq!(sessions[0].id(), id, "the line itself comes first, though the code dropped it");
    assert!(sessions.iter().all(|session| session.pending().is_empty()));
    let children = store.sessions(rath::store::SessionFilter::ChildrenOf(id).into()).await.unwrap();
    assert_eq!(children.len(), 2);
}

/// A workflow that asks a question, and then runs an agent that rings.
async fn asking(mut session: Session, agent: &Agent) -> Result<Session> {
    if let Err(error) = session.ask("Shall I?").await {
        return Err(error.with_sessions(vec![session]));
    }
    agent.forward(session).await
}

async fn run_asking(store: &Arc<dyn Store>, agent: &Agent) -> Result<Session> {
    let agent = agent.clone();
    let workflow = move |session: Session| {
        let agent = agent.clone();
        async move { asking(session, &agent).await }
    };
    store
        .run("asking", Actor::program("test"), &workflow, async |session: &mut Session| {
            session.user("Please.")?;
            Ok(())
        })
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_before_the_answer_to_a_workflow_does_not_hide_the_answer() {
    let store = InMemory::new();
    let (agent, times) = ringer(1);
    let agent = agent.tool_policy("ring", Decision::Ask);
    let id = waits(run_asking(&store, &agent).await, 1).await;
    post(&store, id, PostContent::Message { text: "A moment.".into() }).await;
    answer(&store, id, 0, Verdict::Yes, None).await;
    // The run continues to the agent's question. Another process finds both in the records.
    waits(run_asking(&store, &agent).await, 1).await;
    let asks = View::of(&store, id, None).await.unwrap().pending().asks;
    assert_eq!(asks[0].about, QuestionKind::Approval);
    answer(&store, id, 0, Verdict::Yes, None).await;
    run_asking(&store, &agent).await.unwrap();
    assert_eq!(times.load(Ordering::Acquire), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_workflow_can_be_cancelled_by_a_post() {
    let store = InMemory::new();
    let (agent, times) = ringer(1);
    let id = waits(run_asking(&store, &agent).await, 1).await;
    post(&store, id, PostContent::Cancel { why: "never mind".into() }).await;
    answer(&store, id, 0, Verdict::Yes, None).await;
    let error = run_asking(&store, &agent).await.unwrap_err();
    assert!(error.is_cancelled(), "{error}");
    assert_eq!(times.load(Ordering::Acquire), 0);
}
