//! The records of a turn, and the messages for the model.

use rath::Usage;
use rath::body::{Assistant, Block};
use rath::body::{ModelRequested, ModelResponded, NativeTurn, StepEntered, ToolFinished, ToolStarted};
use rath::model::StandardView;
use rath::model::{Parameters, RequestSpec};
use rath::prelude::*;
use rath::{Content, Kind};
use serde_json::json;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_is_recorded_in_order() {
    let dir = tempfile::tempdir().unwrap();
    for store in [InMemory::new(), Embedded::create(dir.path().join("store")).unwrap()] {
        let script = Scripted::new("scripted").call("echo", json!({ "text": "hello" })).say("It said hello.");
        let agent = Agent::new("parrot").prompt("Repeat.").model(script).tools(echo);
        let session = agent.forward(asked(&store)).await.unwrap();
        let wanted = [
            "created",
            "user",
            "step_entered",
            "model_requested",
            "model_responded",
            "assistant",
            "tool_started",
            "tool_finished",
            "tool_result",
            "model_requested",
            "model_responded",
            "assistant",
            "step_left",
        ];
        assert_eq!(kinds(&session).await, wanted);
        assert_eq!(session.unpublished_count(), 0, "the end of the outermost step is durable");
        assert!(session.pending().is_empty());
        let wanted = [
            "user Please.",
            "assistant → echo({\"text\":\"hello\"}) [call-0-0]",
            "tool [call-0-0] hello",
            "assistant It said hello.",
        ];
        assert_eq!(transcript(&session).await, wanted);
        // The actors: the agent inside its step, the person outside.
        for record in line(&session).await {
            let header = record.header().unwrap();
            let inside = !matches!(record.kind(), Kind::Created | Kind::User | Kind::StepEntered | Kind::StepLeft);
            let wanted = if inside { Actor::agent("parrot") } else { Actor::person("ada") };
            assert_eq!(header.actor, wanted, "{}", record.kind());
            assert_eq!(header.step.is_some(), inside || *record.kind() == Kind::StepLeft, "{}", record.kind());
        }
        let requests = bodies::<ModelRequested>(&session).await;
        assert_eq!(requests[0].previous, None);
        assert_eq!(requests[1].previous, Some(line(&session).await[3].id()));
        assert_ne!(requests[0].request, requests[1].request);
        let started = bodies::<ToolStarted>(&session).await;
        assert_eq!((&*started[0].call, &*started[0].tool, started[0].attempt), ("call-0-0", "echo", 1));
        assert_eq!(bodies::<ModelResponded>(&session).await[0].stop.as_deref(), Some("tool_use"));
        let usage: Usage =
            bodies::<ModelResponded>(&session).await.iter().fold(Usage::default(), |all, one| all + one.usage);
        assert_eq!(session.usage(), usage);
        // The step names the prompt and the tools once.
        let config = bodies::<StepEntered>(&session).await[0].config.clone().unwrap();
        let config = store.blob_get(config.digest).await.unwrap().unwrap();
        let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
        assert_eq!((config["prompt"].as_str(), config["tools"][0]["name"].as_str()), (Some("Repeat."), Some("echo")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_output_is_a_blob_and_the_model_is_shown_all_of_it() {
    let store = InMemory::new();
    let long = "word ".repeat(100_000);
    let (model, seen) =
        watched(Scripted::new("scripted").call("echo", json!({ "text": long })).turn(Turn::new().text("Long.")));
    let session = Agent::new("parrot").model(model).tools(echo).forward(asked(&store)).await.unwrap();
    let finished = bodies::<ToolFinished>(&session).await;
    assert!(finished[0].output[0].text.is_none() && finished[0].output[0].blob.is_some());
    assert_eq!(seen.lock().unwrap().len(), 2);
    let blob = finished[0].output[0].blob.as_ref().unwrap();
    assert_eq!(&*store.blob_get(blob.digest).await.unwrap().unwrap(), long.as_bytes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_view_shows_its_part() {
    for (rule, before) in [
        (StandardView::Whole, &["user Please.", "assistant Which one?", "user This one.", "assistant Noted."][..]),
        (StandardView::LastAnswer, &["assistant Noted."][..]),
        (StandardView::OwnStep, &[][..]),
    ] {
        let store = InMemory::new();
        let (model, seen) = watched(Scripted::new("scripted").call("nothing", json!({})).say("Done."));
        let agent = Agent::new("shown").model(model).tools(nothing).view(rule);
        let mut session = asked(&store);
        session.assistant("Which one?").unwrap();
        session.user("This one.").unwrap();
        let earlier = Agent::new("earlier").model(Scripted::new("scripted").say("Noted."));
        let session = earlier.forward(session).await.unwrap();
        let session = agent.forward(session).await.unwrap();
        let own = ["assistant → nothing({}) [call-0-0]", "tool [call-0-0] nothing"];
        let seen = seen.lock().unwrap().clone();
        assert_eq!(seen[0], before, "{rule}");
        assert_eq!(seen[1], [before, &own].concat(), "{rule}");
        assert!(bodies::<ModelRequested>(&session).await[1..].iter().all(|request| request.view == rule.as_str()));
        let all = transcript(&session).await;
        assert_eq!(all.len(), 7, "what was not shown is still there: {all:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_answer_the_last_user_message_is_shown() {
    let store = InMemory::new();
    let (model, seen) = watched(Scripted::new("scripted").say("Done."));
    let mut session = asked(&store);
    session.user("And quickly.").unwrap();
    Agent::new("shown").model(model).view(StandardView::LastAnswer).forward(session).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [["user And quickly."]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_in_code_get_agent_prompt_tools_turn_and_attempt() {
    let store = InMemory::new();
    let model = Scripted::from_async_fn(|seen| async move {
        tokio::task::yield_now().await;
        assert_eq!((&*seen.agent, &*seen.prompt), ("coded", "Be brief."));
        assert_eq!(seen.tools, ["echo", "nothing"]);
        match (seen.turn, seen.attempt) {
            (0, 1) => Turn::new().fails(rath::model::Failure::transient("not yet")),
            (0, 2) => Turn::new().call("echo", json!({ "text": seen.latest })),
            (1, 1) => Turn::from(format!("I heard: {}", seen.latest)),
            other => panic!("{other:?}"),
        }
    });
    let agent = Agent::new("coded").prompt("Be brief.").model(model).tools((echo, nothing)).retries(1, Duration::ZERO);
    let agent = agent.parameters(Parameters { max_tokens: Some(7), ..Parameters::default() });
    let session = agent.forward(asked(&store)).await.unwrap();
    assert_eq!(session.text().await.unwrap().as_deref(), Some("I heard: Please."));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_without_a_model_fails() {
    let store = InMemory::new();
    let error = Agent::new("mute").forward(asked(&store)).await.unwrap_err();
    assert!(error.to_string().contains("has no model: give it one with `.model(…)`"), "{error}");
    assert!(error.sessions()[0].pending().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_count_from_zero_in_every_step() {
    let store = InMemory::new();
    let script = Scripted::new("scripted").call("nothing", json!({})).say("Done.");
    let agent = Agent::new("twice").model(script).tools(nothing);
    let session = agent.forward(asked(&store)).await.unwrap();
    let session = agent.forward(session).await.unwrap();
    assert_eq!(count(&session, Kind::Assistant).await, 4);
    // The same call id is used in another step.
    assert_eq!(results(&session).await.len(), 2);
}

/// A model that answers with a native turn and the given call ids.
struct Sent(&'static [&'static str]);

impl Model for Sent {
    fn name(&self) -> &str {
        "sent"
    }
    fn encoder(&self) -> &str {
        "sent@1"
    }
    fn encode<'a>(&'a self, _: &'a ModelInput<'a>) -> BoxFuture<'a, rath::Result<Encoded, Failure>> {
        Box::pin(async { Ok(Encoded::new(&b"request"[..])) })
    }
    fn send<'a>(
        &'a self,
        shown: &'a ModelInput<'a>,
        _: &'a Encoded,
        _: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, rath::Result<ModelAnswer, Failure>> {
        Box::pin(async move {
            if shown.turn > 0 {
                return Ok(ModelAnswer {
                    blocks: vec![Block::Text { text: "Done.".into() }],
                    ..ModelAnswer::default()
                });
            }
            let call = |id: &&str| Block::ToolUse { id: (*id).into(), name: "nothing".into(), arguments: "{}".into() };
            // Long enough to be stored as a blob.
            let json = format!("[{}]", "1,".repeat(rath::record::INLINE_LIMIT)).replace(",]", "]");
            let sent = NativeTurn { api: "some-api".into(), model: "sent".into(), json: json.into() };
            Ok(ModelAnswer { blocks: self.0.iter().map(call).collect(), sent: Some(sent), ..ModelAnswer::default() })
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_native_turn_is_kept_unless_its_call_ids_change() {
    for (names, is_kept) in [(&["a", "b"], true), (&["a", "a"], false), (&["a", ""], false)] {
        let agent = Agent::new("agent").model(Sent(names)).tools(nothing);
        let session = agent.forward(asked(&InMemory::new())).await.unwrap();
        let turn = bodies::<Assistant>(&session).await.remove(0);
        assert_eq!(turn.sent.is_some(), is_kept, "{names:?}");
        let Some(sent) = turn.sent else { continue };
        assert_eq!((&*sent.api, &*sent.model), ("some-api", "sent"));
        assert!(matches!(sent.json, Content::Blob(_)), "what is long is a blob");
        let parameters = Parameters::default();
        let asking = RequestSpec {
            agent: "agent",
            prompt: "",
            tools: &[],
            parameters: &parameters,
            view: &StandardView::Whole,
            injected: &[],
            config: rath::Digest::of(b""),
        };
        let whole = ModelInput::of(&session, asking).whole_messages().await.unwrap();
        let MessageBody::Assistant(turn) = &whole[1].body else { panic!("{:?}", whole[1]) };
        let Content::Text(json) = &turn.sent.as_ref().unwrap().json else { panic!("it is read") };
        assert!(json.starts_with("[1,1,") && json.ends_with("1]"));
    }
}
