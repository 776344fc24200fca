//! Requests to models: context views, injected messages, turns of other agents, tool choices, and rebuilding.

use rath::body::{ModelRequested, StepEntered};
use rath::model::{ContextView, ContextViews, Injection, Injector, Parameters, RequestInput, ToolChoice, encode_with};
use rath::requests::{self, RebuiltRequest, RequestVerdict as Rebuilding};
use rath::tool::{BoxTool, Tool, ToolSpec};
use rath::{ErrorKind, Kind};
use serde_json::{Value, json};

use super::*;

/// A scripted model whose requests are encoded as for a provider.
struct Encoding {
    encoder: &'static str,
    script: Scripted,
}

impl Model for Encoding {
    fn name(&self) -> &str {
        "m"
    }

    fn encoder(&self) -> &str {
        self.encoder
    }

    fn encode<'a>(&'a self, shown: &'a ModelInput<'a>) -> BoxFuture<'a, Result<Encoded, Failure>> {
        Box::pin(async move {
            let messages = shown.whole_messages().await.unwrap();
            let files = shown.attached(&messages).await.unwrap();
            Ok(Encoded::new(
                encode_with(self.encoder, &RequestInput::of("m", shown, &messages, &files)).unwrap().unwrap(),
            ))
        })
    }

    fn send<'a>(
        &'a self,
        shown: &'a ModelInput<'a>,
        request: &'a Encoded,
        heard: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>> {
        self.script.send(shown, request, heard)
    }
}

fn chat(script: Scripted) -> Encoding {
    Encoding { encoder: "openai-chat@2", script }
}

/// Rebuilds every request of a session.
async fn rebuilt(view: &View, views: &ContextViews) -> Vec<RebuiltRequest> {
    let mut all = Vec::new();
    for record in view.own_records().await.unwrap() {
        if *record.kind() == Kind::ModelRequested {
            all.push(requests::rebuild(&view.earlier(record.seq()).await.unwrap(), views).await.unwrap());
        }
    }
    all
}

/// The messages of every request of a session, as role and text or calls. Checks that all requests are rebuilt.
async fn asked_of(view: &View) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for RebuiltRequest { bytes, verdict } in rebuilt(view, &ContextViews::default()).await {
        assert_eq!(verdict, Rebuilding::Rebuilt);
        let request: Value = serde_json::from_slice(&bytes.unwrap()).unwrap();
        let message = |message: &Value| {
            let content = message["content"].as_str().unwrap_or("(calls)");
            format!("{}: {content}", message["role"].as_str().unwrap())
        };
        all.push(request["messages"].as_array().unwrap().iter().map(message).collect());
    }
    all
}

/// A view of only the last message.
#[derive(Debug)]
struct LastOne;

impl ContextView for LastOne {
    fn name(&self) -> &str {
        "last_one@1"
    }

    fn messages<'a>(&'a self, view: &'a View) -> BoxFuture<'a, rath::Result<Vec<Message>>> {
        Box::pin(async move { Ok(view.context().await?.pop().into_iter().collect()) })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_with_a_custom_context_view_are_rebuilt_if_it_is_registered() {
    for store in [InMemory::new(), Embedded::create(tempfile::tempdir().unwrap().path().join("store")).unwrap()] {
        let (model, seen) = watched(Scripted::new("s").call("nothing", json!({})).say("Done."));
        let agent = Agent::new("forgetful").model(model).tools(nothing).view(LastOne);
        let mut session = asked(&store);
        session.user("Really.").unwrap();
        let session = agent.forward(session).await.unwrap();
        assert_eq!(*seen.lock().unwrap(), [["user Really."], ["tool [call-0-0] nothing"]]);
        assert!(bodies::<ModelRequested>(&session).await.iter().all(|request| request.view == "last_one@1"));
        // Rebuilding needs no lease.
        let id = session.id();
        let held = rebuilt(&session.view().await.unwrap(), &ContextViews::default().with(LastOne)).await;
        let view = View::of(&store, id, None).await.unwrap();
        let stored = rebuilt(&view, &ContextViews::default().with(LastOne)).await;
        assert_eq!(held, stored);
        assert!(stored.len() == 2 && stored.iter().all(|rebuilt| rebuilt.verdict.is_rebuilt()), "{stored:?}");
        for unknown in rebuilt(&view, &ContextViews::default()).await {
            assert_eq!(unknown.verdict, Rebuilding::ViewNotRegistered { view: "last_one@1".into() });
            assert_eq!((unknown.verdict.word(), unknown.bytes), ("view_not_registered", None));
        }
        assert_eq!(
            serde_json::to_value(Rebuilding::ViewNotRegistered { view: "v@1".into() }).unwrap(),
            json!({"verdict": "view_not_registered", "view": "v@1"})
        );
    }
}

/// Injects a text before all messages, and the first message of the session after them.
struct Remembers;

impl Injector for Remembers {
    fn inject<'a>(&'a self, view: &'a View) -> BoxFuture<'a, rath::Result<Vec<Injection>>> {
        Box::pin(async move {
            let first = view.context().await?.remove(0).origin;
            let first = view.earlier(first.seq).await?.record().id();
            let text = format!("Ada likes tea. {}", "So she said. ".repeat(2000));
            Ok(vec![
                Injection::record(u64::MAX, first),
                Injection::text(0, text).as_instruction(),
                Injection::text(1, "It is Tuesday."),
            ])
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn injected_messages_are_recorded_by_reference_and_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::create(dir.path().join("store")).unwrap();
    let agent = Agent::new("host").model(chat(Scripted::new("s").say("Tea?"))).inject(Remembers);
    let mut session = asked(&store);
    session.user("What to drink?").unwrap();
    let mut session = agent.forward(session).await.unwrap();
    session.publish().await.unwrap();
    let body = bodies::<ModelRequested>(&session).await.remove(0);
    assert!(serde_json::to_vec(&body).unwrap().len() < 1500, "by reference: {body:?}");
    let id = session.id();
    drop(session);
    let view = View::of(&store, id, None).await.unwrap();
    let [request] = asked_of(&view).await.try_into().unwrap();
    assert!(request[0].starts_with("system: Ada likes tea. So she said."), "{request:?}");
    assert_eq!(request[1..], ["user: Please.\n\nIt is Tuesday.\n\nWhat to drink?\n\nPlease."]);
    // Injected messages are marked, with their origin.
    let recorded = requests::RecordedRequest::read(&requests::last(&view).await.unwrap().unwrap()).await.unwrap();
    let messages = recorded.messages(&ContextViews::default()).await.unwrap().unwrap();
    assert_eq!((messages.len(), messages[4].origin), (5, messages[1].origin));
    store.erase(vec![view.earlier(1).await.unwrap().reference()]).await.unwrap();
    let view = View::of(&store, id, None).await.unwrap();
    let [RebuiltRequest { verdict, bytes }] = rebuilt(&view, &ContextViews::default()).await.try_into().unwrap();
    assert!(matches!(verdict, Rebuilding::Erased { at } if at.seq == 1), "{verdict}");
    assert_eq!(bytes, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_injector_that_fails_fails_the_step() {
    struct Fails;
    impl Injector for Fails {
        fn inject<'a>(&'a self, _: &'a View) -> BoxFuture<'a, rath::Result<Vec<Injection>>> {
            Box::pin(async { Err(ErrorKind::Workflow("the memory is away".into()).into()) })
        }
    }
    let agent = Agent::new("host").model(Scripted::new("s").say("Tea?")).inject(Fails);
    let error = agent.forward(asked(&InMemory::new())).await.unwrap_err();
    assert!(error.to_string().contains("the memory is away"), "{error}");
    assert_eq!(count(&error.sessions()[0], Kind::ModelRequested).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_of_other_agents_are_shown_as_messages_with_their_names() {
    let reads =
        || Scripted::new("s").turn(Turn::new().text("I look.").call("echo", json!({"text": "hi"}))).say("It says hi.");
    let reader = Agent::new("reader").model(chat(reads())).tools((echo, nothing));
    let review = Scripted::new("s").call("nothing", json!({})).say("Right.");
    let reviewer = |encoder| Agent::new("reviewer").model(Encoding { encoder, script: review.clone() }).tools(nothing);
    let session = reader.forward(asked(&InMemory::new())).await.unwrap();
    let session = reviewer("openai-chat@2").forward(session).await.unwrap();
    // The reader continues, and sees its own turns as its own.
    let again = Agent::new("reader").model(chat(Scripted::new("s").say("Good.")));
    let session = again.forward(session).await.unwrap();
    let all = asked_of(&session.view().await.unwrap()).await;
    let told = "user: Please.\n\nAgent reader said:\n\nI look.\n\nAgent reader called echo({\"text\":\"hi\"})\n\n\
                echo answered agent reader:\n\nhi\n\nAgent reader said:\n\nIt says hi.";
    assert_eq!(all[0], ["user: Please."]);
    assert_eq!(all[1], ["user: Please.", "assistant: I look.", "tool: hi"]);
    assert_eq!(all[2], [told]);
    assert_eq!(all[3], [told, "assistant: (calls)", "tool: nothing"]);
    let reviewed = "user: Agent reviewer called nothing({})\n\nnothing answered agent reviewer:\n\nnothing\n\n\
                    Agent reviewer said:\n\nRight.";
    assert_eq!(all[4], ["user: Please.", "assistant: I look.", "tool: hi", "assistant: It says hi.", reviewed]);
    // Also after a merge.
    let mut store = asked(&InMemory::new());
    let branch = reader.forward(store.fork("look")).await.unwrap();
    store.user("Meanwhile.").unwrap();
    let merged = store.merge([branch], How::Append).await.unwrap();
    let merged = reviewer("openai-chat@2").forward(merged).await.unwrap();
    let last = asked_of(&merged.view().await.unwrap()).await.remove(0);
    assert!(
        last[0].contains("Agent reader called echo(") && last[0].contains("Agent reader said:\n\nIt says hi."),
        "{last:?}"
    );
    // Also in a detached session, and in one detached from that.
    let session = reader.forward(asked(&InMemory::new())).await.unwrap();
    let copy = session.detach("a copy").await.unwrap().detach("another").await.unwrap();
    let copy = reviewer("openai-chat@2").forward(copy).await.unwrap();
    assert_eq!(asked_of(&copy.view().await.unwrap()).await[0], [told]);
    // Encoder version 1 shows them as the model's own, and its requests are rebuilt unchanged.
    let session = reader.forward(asked(&InMemory::new())).await.unwrap();
    let session = reviewer("openai-chat@1").forward(session).await.unwrap();
    let all = asked_of(&session.view().await.unwrap()).await;
    assert_eq!(all[2], ["user: Please.", "assistant: I look.", "tool: hi", "assistant: It says hi.", "user: Go on."]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_tool_choice_applies_to_the_first_turn() {
    let forced = [
        (ToolChoice::Required, json!("required"), json!({"type": "any"}), json!("required")),
        (
            ToolChoice::Tool("nothing".into()),
            json!({"type": "function", "function": {"name": "nothing"}}),
            json!({"type": "tool", "name": "nothing"}),
            json!({"type": "function", "name": "nothing"}),
        ),
    ];
    let free = [
        (ToolChoice::None, json!("none"), json!({"type": "none"}), json!("none")),
        (ToolChoice::Auto, json!("auto"), json!({"type": "auto"}), json!("auto")),
    ];
    for (choice, in_chat, in_messages, in_responses) in forced.into_iter().chain(free) {
        let is_forced = choice.is_forced();
        for (encoder, wanted) in
            [("openai-chat@2", &in_chat), ("anthropic-messages@2", &in_messages), ("openai-responses@2", &in_responses)]
        {
            let script = Scripted::new("s").call("nothing", json!({})).say("Done.");
            let parameters =
                Parameters { max_tokens: Some(9), tool_choice: Some(choice.clone()), ..Parameters::default() };
            let agent = Agent::new("a").model(Encoding { encoder, script }).tools(nothing).parameters(parameters);
            let session = agent.forward(asked(&InMemory::new())).await.unwrap();
            let bodies = bodies::<ModelRequested>(&session).await;
            assert_eq!((bodies[0].parameters.is_some(), bodies[1].parameters.is_some()), (false, is_forced));
            let all = rebuilt(&session.view().await.unwrap(), &ContextViews::default()).await;
            let choices = all.into_iter().map(|rebuilt| {
                assert_eq!(rebuilt.verdict, Rebuilding::Rebuilt);
                serde_json::from_slice::<Value>(&rebuilt.bytes.unwrap()).unwrap()["tool_choice"].clone()
            });
            let second = if is_forced { &Value::Null } else { wanted };
            assert_eq!(choices.collect::<Vec<_>>(), [wanted.clone(), second.clone()], "{encoder}");
            // Without tools there is no choice.
            let script = Scripted::new("s").say("Done.");
            let parameters = Parameters { tool_choice: Some(choice.clone()), ..Parameters::default() };
            let agent = Agent::new("a").model(Encoding { encoder, script }).parameters(parameters);
            let session = agent.forward(asked(&InMemory::new())).await.unwrap();
            let all = rebuilt(&session.view().await.unwrap(), &ContextViews::default()).await;
            assert!(!String::from_utf8_lossy(all[0].bytes.as_ref().unwrap()).contains("tool_choice"));
        }
        // The scripted model records it too.
        let expected = choice.clone();
        let script = Scripted::from_fn(move |seen| {
            let held = seen.turn == 0 || !expected.is_forced();
            assert_eq!(seen.tool_choice.as_ref(), held.then_some(&expected));
            if seen.turn == 0 { Turn::new().call("nothing", json!({})) } else { "Done.".into() }
        });
        let parameters = Parameters { tool_choice: Some(choice), ..Parameters::default() };
        let agent = Agent::new("a").model(script).tools(nothing).parameters(parameters);
        let session = agent.forward(asked(&InMemory::new())).await.unwrap();
        for rebuilt in rebuilt(&session.view().await.unwrap(), &ContextViews::default()).await {
            assert_eq!(rebuilt.verdict, Rebuilding::Rebuilt);
        }
    }
}

/// A tool with another specification.
struct Respecified(BoxTool, ToolSpec);

impl Tool for Respecified {
    fn spec(&self) -> &ToolSpec {
        &self.1
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ToolOutcome> {
        self.0.call(call)
    }
}

fn respecified(change: impl FnOnce(&mut ToolSpec)) -> Respecified {
    let tool: BoxTool = Arc::new(tools::ask_human);
    let mut spec = tool.spec().clone();
    change(&mut spec);
    Respecified(tool, spec)
}

async fn run(store: &Arc<dyn Store>, agent: &Agent) -> rath::Result<Session> {
    store.run("r", Actor::program("test"), agent, async |session| session.user("Please.").map(drop)).await
}

/// Starts a run with the first agent, which waits for an answer, and resumes it with the second.
async fn resumed_with(store: &Arc<dyn Store>, then: &Agent, now: &Agent) -> rath::Result<Session> {
    let waiting = run(store, then).await.unwrap_err();
    let ErrorKind::Waiting(id) = waiting.kind() else { panic!("{waiting}") };
    let id = *id;
    drop(waiting);
    let asks = View::of(store, id, None).await.unwrap().pending().asks;
    let (asked, shown_digest) = (asks[0].record, asks[0].shown_digest);
    let verdict = rath::body::Verdict::Text("red".into());
    post(store, id, PostContent::Answer { asked, shown_digest, verdict, why: None }).await;
    run(store, now).await
}

fn painter(encoder: &'static str, tool: Respecified) -> Agent {
    let script = Scripted::new("s").call("ask_human", json!({"question": "Which colour?"})).say("Done.");
    Agent::new("painter").model(Encoding { encoder, script }).tools(tool)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_started_with_an_older_encoder_is_resumed_with_the_newer_one() {
    let same = || respecified(|_| ());
    for (then, now) in [("openai-chat@1", "openai-chat@2"), ("anthropic-messages@1", "anthropic-messages@2")] {
        let store = InMemory::new();
        let session = resumed_with(&store, &painter(then, same()), &painter(now, same())).await.unwrap();
        let encoders = bodies::<ModelRequested>(&session).await.into_iter().map(|request| request.encoder);
        assert_eq!(encoders.collect::<Vec<_>>(), [then, now]);
        for rebuilt in rebuilt(&session.view().await.unwrap(), &ContextViews::default()).await {
            assert_eq!(rebuilt.verdict, Rebuilding::Rebuilt);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_descriptions_may_change_while_a_run_is_open() {
    let agent = |change: &dyn Fn(&mut ToolSpec)| painter("openai-chat@2", respecified(change));
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::create(dir.path().join("store")).unwrap();
    let reworded = agent(&|spec| {
        spec.description = "Asks somebody.".into();
        spec.schema["properties"]["question"]["description"] = "The question to put.".into();
        spec.timeout = Some(Duration::from_secs(60));
    });
    let session = resumed_with(&store, &agent(&|_| ()), &reworded).await.unwrap();
    // Each request names its configuration, and the step is not entered again.
    let (steps, requests) = (bodies::<StepEntered>(&session).await, bodies::<ModelRequested>(&session).await);
    assert_eq!((steps.len(), requests.len()), (2, 2));
    assert!(
        requests[0].config.is_none()
            && requests[1].config.as_ref().is_some_and(|now| Some(now) != steps[1].config.as_ref())
    );
    let all = rebuilt(&session.view().await.unwrap(), &ContextViews::default()).await;
    for (rebuilt, wanted) in all.iter().zip(["Asks", "Asks somebody."]) {
        assert_eq!(rebuilt.verdict, Rebuilding::Rebuilt);
        assert!(String::from_utf8_lossy(rebuilt.bytes.as_ref().unwrap()).contains(wanted));
    }
    // A finished run is not run again.
    drop(session);
    let again = agent(&|spec| spec.description = "Asks a person again.".into());
    assert_eq!(run(&store, &again).await.unwrap().text().await.unwrap().as_deref(), Some("Done."));
    // Changes of a tool's schema, name or version are divergences.
    for (change, wanted) in [
        (
            &(|spec: &mut ToolSpec| spec.version = Some("2".into())) as &dyn Fn(&mut ToolSpec),
            "tools.ask_human.version: null was recorded, now it is \"2\"",
        ),
        (
            &|spec| spec.schema["properties"]["question"]["type"] = "integer".into(),
            "tools.ask_human.schema.properties.question.type: \"string\" was recorded, now it is \"integer\"",
        ),
        (&|spec| spec.name = "ask".into(), "tools: ask_human was removed"),
    ] {
        let error = resumed_with(&InMemory::new(), &agent(&|_| ()), &agent(change)).await.unwrap_err();
        let ErrorKind::Diverged(diverged) = error.kind() else { panic!("{error}") };
        assert_eq!(diverged.changed[0], wanted);
    }
}

/// A store from a version before encoders `@2`, context views and tool versions, with the code of its runs.
struct Begun {
    store: Arc<dyn Store>,
    _dir: tempfile::TempDir,
}

const ENCODERS: [&str; 9] = [
    "anthropic-messages",
    "openai-responses",
    "openai-chat",
    "openai-chat/ollama",
    "openai-chat/vllm",
    "openai-chat/llama.cpp",
    "openai-chat/openrouter",
    "openai-chat/deepseek",
    "openai-chat/common",
];

impl Begun {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let stored = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/begun");
        rath_testkit::copy_dir(&stored, dir.path());
        Self { store: Embedded::open(dir.path()).unwrap(), _dir: dir }
    }

    async fn session(&self, key: &str) -> View {
        let rows = self.store.sessions(rath::store::SessionFilter::Run(key.into()).into()).await.unwrap();
        View::of(&self.store, rows[0].id, None).await.unwrap()
    }
}

/// The current version of an encoder.
fn newest(encoder: &str) -> &'static str {
    Box::leak(format!("{encoder}@2").into_boxed_str())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_an_older_version_are_rebuilt_and_its_runs_are_resumed() {
    let begun = Begun::new();
    let over = begun.session("over").await;
    let all = rebuilt(&over, &ContextViews::default()).await;
    assert_eq!(all.len(), 2 * ENCODERS.len() + 1);
    assert!(all.iter().all(|rebuilt| rebuilt.verdict == Rebuilding::Rebuilt), "{all:?}");
    // The steps of the finished run are not run again.
    let chain = async |mut session: Session| {
        for (number, encoder) in ENCODERS.into_iter().enumerate() {
            let agent = Agent::new(format!("agent {}", number % 3)).prompt("Repeat “this”.\n");
            let agent =
                agent.model(Encoding { encoder: newest(encoder), script: Scripted::new("s") }).tools((echo, nothing));
            let view = [StandardView::Whole, StandardView::LastAnswer, StandardView::OwnStep][number % 3];
            session = agent.view(view).forward(session).await?;
        }
        Agent::new("scripted").model(Scripted::new("s")).forward(session).await
    };
    let input = async |_: &mut Session| unreachable!("it has begun");
    let session = begun.store.run("over", Actor::program("test"), &chain, input).await.unwrap();
    assert_eq!(session.text().await.unwrap().as_deref(), Some("Done."));
    assert_eq!(session.head().seq, over.reference().seq, "nothing was added");
    // The waiting runs are resumed, with other tool descriptions.
    for (key, encoder) in [("asks chat", "openai-chat"), ("asks anthropic", "anthropic-messages")] {
        let view = begun.session(key).await;
        let (id, asks) = (view.reference().session, view.pending().asks);
        let (asked, shown_digest) = (asks[0].record, asks[0].shown_digest);
        let verdict = rath::body::Verdict::Text("red".into());
        post(&begun.store, id, PostContent::Answer { asked, shown_digest, verdict, why: None }).await;
        let script = Scripted::new("s").call("ask_human", json!({"question": "Which colour?"})).say("Done.");
        let agent = |words: &str| {
            let reworded = respecified(|spec| spec.description = words.into());
            let model = Encoding { encoder: newest(encoder), script: script.clone() };
            let tools = (reworded, tools::read, tools::write, tools::edit, tools::shell);
            Agent::new("painter").prompt("Paint.").model(model).tools(tools)
        };
        let input = async |_: &mut Session| unreachable!("it has begun");
        let session = begun.store.run(key, Actor::program("test"), &agent("Asks."), input).await.unwrap();
        assert_eq!(session.text().await.unwrap().as_deref(), Some("Done."), "{key}");
        let all = rebuilt(&session.view().await.unwrap(), &ContextViews::default()).await;
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(|rebuilt| rebuilt.verdict == Rebuilding::Rebuilt), "{all:?}");
        let encoders = bodies::<ModelRequested>(&session).await.into_iter().map(|request| request.encoder);
        assert_eq!(encoders.collect::<Vec<_>>(), [format!("{encoder}@1"), format!("{encoder}@2")]);
    }
}
