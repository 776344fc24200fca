//! Outcomes of tools other than text: images, files and JSON, questions, hand-offs, branches.

use rath::ErrorKind;
use rath::body::{Asked, MergeStrategy, Merged, OutputPart, Role, StepEntered, StepLeft, ToolFinished, Verdict};
use rath::workflow::chain;
use rath_testkit::{CrashPoint, CrashingStore};
use serde_json::json;

use super::*;

const PICTURE: &[u8] = b"\x89PNG\r\n\x1a\nno more than that";

/// Looks at the sky.
#[tool(effect = "pure", paths = "")]
fn look_up() -> ToolOutcome {
    ToolOutcome::done("Clouds.").with_json(&json!({ "cover": 0.5 })).with_image("image/png", PICTURE).with_file(
        "forecast.pdf",
        "application/pdf",
        "%PDF",
    )
}

/// Shows a picture and nothing else.
#[tool(effect = "pure", paths = "")]
fn show_picture() -> ToolOutcome {
    ToolOutcome::default().with_image("image/png", PICTURE)
}

/// Returns two long texts.
#[tool(effect = "pure", paths = "")]
fn ramble() -> ToolOutcome {
    ToolOutcome::done("a".repeat(10_000)).with_text("b").with_image("image/png", PICTURE)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_are_recorded_and_shown() {
    let script = Scripted::new("s").call("look_up", json!({})).call("show_picture", json!({}));
    let script = script.call("ramble", json!({})).say("Nice.");
    let agent = Agent::new("watcher").model(script).tools((look_up, show_picture, ramble));
    let dir = tempfile::tempdir().unwrap();
    for store in [InMemory::new(), Embedded::create(dir.path().join("store")).unwrap()] {
        let session = agent.forward(asked(&store)).await.unwrap();
        let finished = bodies::<ToolFinished>(&session).await;
        let parts: Vec<_> = finished[0].output.iter().map(|output| (output.part, output.name.as_deref())).collect();
        let json = (Some(OutputPart::Json), None);
        let image = (Some(OutputPart::Image), None);
        assert_eq!(parts, [(None, None), json, image, (Some(OutputPart::File), Some("forecast.pdf"))]);
        assert_eq!(finished[2].output.iter().map(|output| output.part).collect::<Vec<_>>(), [None, image.0]);
        // The content for the model, and its copy in a detached session.
        for session in [session.detach("to remember").await.unwrap(), session] {
            let view = session.view().await.unwrap();
            let messages = session.context().await.unwrap();
            let tools: Vec<&ToolResult> = messages
                .iter()
                .filter_map(|message| match &message.body {
                    MessageBody::Tool(result) => Some(result),
                    _ => None,
                })
                .collect();
            let mut shown = Vec::new();
            for result in &tools {
                shown.push(view.content(result.shown.as_ref().unwrap()).await.unwrap());
            }
            let rambled = format!("{}\nb", "a".repeat(10_000));
            assert_eq!(shown, ["Clouds.\n{\"cover\":0.5}".to_owned(), String::new(), rambled]);
            let attached: Vec<Vec<String>> =
                tools.iter().map(|result| result.attached.iter().map(ToString::to_string).collect()).collect();
            let picture = format!("[attached: image/png, {} bytes]", PICTURE.len());
            let file = "[attached: forecast.pdf, application/pdf, 4 bytes]".to_owned();
            assert_eq!(attached, [vec![picture.clone(), file], vec![picture.clone()], vec![picture]]);
            let stored = store.blob_get(tools[1].attached[0].content.digest).await.unwrap().unwrap();
            assert_eq!(*stored, *PICTURE);
        }
    }
}

/// Asks for a confirmation.
#[tool(effect = "idempotent", paths = "")]
fn confirm(what: String, times: Resource<AtomicU64>) -> ToolOutcome {
    times.fetch_add(1, Ordering::AcqRel);
    ToolOutcome::ask(format!("Shall I {what}?"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_tool_can_ask_a_person() {
    let times = Arc::new(AtomicU64::new(0));
    let turn = Turn::new().call("confirm", json!({ "what": "leave" })).call("echo", json!({ "text": "here" }));
    let script = Scripted::new("s").turn(turn).say("Good.");
    let agent = Agent::new("asking").model(script).tools((confirm, echo)).with_shared(times.clone());
    let input = async |session: &mut Session| session.user("Please.").map(|_| ());
    let run = async |store: &Arc<dyn Store>| store.run("r", Actor::program("test"), &agent, input).await;
    for commits in 0..12 {
        for moment in [CrashPoint::Before, CrashPoint::After] {
            let store = InMemory::new();
            let mortal: Arc<dyn Store> = CrashingStore::new(store.clone(), commits, moment);
            drop(run(&mortal).await);
            let error = run(&store).await.unwrap_err();
            let ErrorKind::Waiting(id) = *error.kind() else { panic!("{error}") };
            drop(error);
            let at = format!("killed {moment:?} commit {commits}");
            let asked = stored::<Asked>(&store, id).await;
            assert_eq!((asked.len(), asked[0].shown.to_string()), (1, "Shall I leave?".to_owned()), "{at}");
            // A resumed run does not repeat the question.
            let before = times.load(Ordering::Acquire);
            drop(run(&store).await.unwrap_err());
            assert_eq!(times.load(Ordering::Acquire), before, "{at}");
            let asks = View::of(&store, id, None).await.unwrap().pending().asks;
            let verdict = Verdict::Text("rather not".into());
            let answer =
                PostContent::Answer { asked: asks[0].record, shown_digest: asks[0].shown_digest, verdict, why: None };
            post(&store, id, answer).await;
            let session = run(&store).await.unwrap();
            let results = results(&session).await;
            assert_eq!((&*results[0].1, results[0].2, &*results[1].1), ("rather not", false, "here"), "{at}");
            assert_eq!(times.load(Ordering::Acquire), before, "{at}");
            assert!(session.pending().is_empty(), "{at}");
        }
    }
}

/// Hands over to the billing department.
#[tool(effect = "pure", paths = "")]
fn to_billing() -> ToolOutcome {
    ToolOutcome::hand_off("billing", "Billing takes it from here.")
}

/// Hands over to an unknown department.
#[tool(effect = "pure", paths = "")]
fn to_marketing() -> ToolOutcome {
    ToolOutcome::hand_off("marketing", "Marketing takes it from here.")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_off_survives_a_kill_at_every_commit() {
    let billing = Scripted::new("s").call("echo", json!({ "text": "42 euros" })).say("Paid.");
    let billing = Agent::new("billing").model(billing).tools(echo);
    let turn = Turn::new().call("to_billing", json!({})).call("echo", json!({ "text": "meanwhile" }));
    let triage = Agent::new("triage").model(Scripted::new("s").turn(turn).say("Never said."));
    let triage = triage.tools((to_billing, echo)).hands_off_to("billing", billing);
    let last = Agent::new("last").model(Scripted::new("s").say("Thanks."));
    let workflow = chain("desk").then(triage).then(last);
    let input = async |session: &mut Session| session.user("Please.").map(|_| ());
    for commits in 0..20 {
        for moment in [CrashPoint::Before, CrashPoint::After] {
            let store = InMemory::new();
            let mortal: Arc<dyn Store> = CrashingStore::new(store.clone(), commits, moment);
            drop(mortal.run("r", Actor::program("test"), &workflow, input).await);
            let session = store.run("r", Actor::program("test"), &workflow, input).await.unwrap();
            let at = format!("killed {moment:?} commit {commits}");
            let steps = bodies::<StepEntered>(&session).await;
            let agents = steps.iter().filter(|step| step.role == Some(Role::Agent));
            assert_eq!(agents.map(|step| &*step.name).collect::<Vec<_>>(), ["triage", "billing", "last"], "{at}");
            let left = bodies::<StepLeft>(&session).await;
            let handed: Vec<_> = left.iter().filter_map(|left| left.hand_off.as_deref()).collect();
            assert_eq!(handed, ["billing"], "{at}");
            let said = transcript(&session).await;
            let said: Vec<&str> = said.iter().filter_map(|line| line.strip_prefix("assistant ")).collect();
            assert_eq!(said[2..], ["Paid.", "Thanks."], "{at}");
            let results = results(&session).await;
            let results: Vec<&str> = results.iter().map(|(_, text, _)| text.as_str()).collect();
            assert_eq!(results, ["Billing takes it from here.", "meanwhile", "42 euros"], "{at}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_off_to_an_unknown_agent_is_a_failed_call() {
    let billing = Agent::new("billing").model(Scripted::new("s").say("Never said."));
    let script = Scripted::new("s").call("to_marketing", json!({})).say("I stay.");
    let triage = Agent::new("triage").model(script).tools(to_marketing).hands_off_to("billing", billing);
    let session = triage.forward(asked(&InMemory::new())).await.unwrap();
    let (_, text, failed) = &results(&session).await[0];
    assert!(*failed && text.contains("\"marketing\"") && text.contains("billing"), "{text}");
    assert_eq!(session.text().await.unwrap().as_deref(), Some("I stay."));
}

/// Asks two helpers the same question, on forks of the call's branch, and returns both answers.
#[tool(effect = "idempotent", paths = "", branches)]
async fn consult(question: String, call: &Call, helper: Resource<Agent>) -> Result<ToolOutcome> {
    let Some(branch) = call.branch() else { return Ok(ToolOutcome::failed("There is no branch.")) };
    let branch = branch
        .step("consult", async move |mut session: Session| {
            if let Err(error) = session.user(question) {
                return Err(error.with_sessions(vec![session]));
            }
            let second = session.fork("a second opinion");
            let session = helper.forward(session).await?;
            let second = match helper.forward(second).await {
                Ok(second) => second,
                Err(error) => return Err(error.with_sessions(vec![session])),
            };
            session.merge([second], How::Append).await
        })
        .await?;
    let said = branch.context().await?;
    let answers = said.iter().filter_map(|message| match &message.body {
        MessageBody::Assistant(turn) if turn.calls().next().is_none() => Some(message.body.to_string()),
        _ => None,
    });
    let answers: Vec<String> = answers.collect();
    Ok(ToolOutcome::done(answers.join(" ")).with_branch(branch))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_custom_tool_can_fork_and_merge_its_branch() {
    let usage = |tokens| Usage { requests: 1, input_tokens: tokens, ..Usage::default() };
    let helper = Scripted::new("s").turn(Turn::new().text("Perhaps.").usage(usage(1)));
    let helper = Agent::new("helper").model(helper).view(StandardView::LastAnswer);
    let script = Scripted::new("s")
        .turn(Turn::new().call("consult", json!({ "question": "Really?" })).usage(usage(100)))
        .turn(Turn::new().text("Two say perhaps.").usage(usage(100)));
    let agent = Agent::new("outer").model(script).tools(consult).with(helper);
    let input = async |session: &mut Session| session.user("Please.").map(|_| ());
    for commits in 0..16 {
        for moment in [CrashPoint::Before, CrashPoint::After] {
            let store = InMemory::new();
            let mortal: Arc<dyn Store> = CrashingStore::new(store.clone(), commits, moment);
            drop(mortal.run("r", Actor::program("test"), &agent, input).await);
            let session = store.run("r", Actor::program("test"), &agent, input).await.unwrap();
            let at = format!("killed {moment:?} commit {commits}");
            assert_eq!(results(&session).await[0].1, "Perhaps. Perhaps.", "{at}");
            assert!(session.usage().input_tokens >= 202, "{at}: {:?}", session.usage());
            let merged = bodies::<Merged>(&session).await;
            assert_eq!((merged.len(), &merged[0].how), (1, &MergeStrategy::FilesOnly), "{at}");
            let inner = stored::<Merged>(&store, merged[0].branches[0].session).await;
            assert_eq!((inner.len(), &inner[0].how), (1, &MergeStrategy::Append), "{at}");
            assert!(session.pending().is_empty(), "{at}");
        }
    }
}

/// Fails on its branch.
#[tool(effect = "idempotent", paths = "", branches)]
async fn stumble(call: &Call, helper: Resource<Agent>) -> Result<ToolOutcome> {
    let branch = call.branch().unwrap();
    let branch = helper.forward(branch).await?;
    Ok(ToolOutcome::done("Never said.").with_branch(branch))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_on_the_branch_of_a_custom_tool_keeps_the_branch() {
    // The helper fails because it has no model.
    let helper = Agent::new("helper");
    let script = Scripted::new("s").call("stumble", json!({})).say("It failed.");
    let agent = Agent::new("outer").model(script).tools(stumble).with(helper);
    let session = agent.forward(asked(&InMemory::new())).await.unwrap();
    let (_, text, failed) = &results(&session).await[0];
    assert!(*failed && text.starts_with("It failed: "), "{text}");
    let merged = bodies::<Merged>(&session).await;
    assert!(merged[0].branches[0].without_files, "its records and its usage are merged, its files are not");
    assert!(session.pending().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_on_the_branch_of_a_custom_tool_waits() {
    let script = Scripted::new("s").call("ask_human", json!({ "question": "Inside?" })).say("Asked.");
    let helper = Agent::new("helper").model(script).tools(tools::ask_human);
    let script = Scripted::new("s").call("consult", json!({ "question": "Ask." })).say("Done.");
    let agent = Agent::new("outer").model(script).tools(consult).with(helper);
    let input = async |session: &mut Session| session.user("Please.").map(|_| ());
    let store = InMemory::new();
    for _ in 0..2 {
        let error = store.run("r", Actor::program("test"), &agent, input).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Waiting(_)), "{error}");
        drop(error);
        let mut answered = 0;
        for row in store.sessions(rath::store::SessionFilter::All.into()).await.unwrap() {
            for ask in View::of(&store, row.id, None).await.unwrap().pending().asks.iter().filter(|ask| !ask.inherited)
            {
                let (asked, shown_digest) = (ask.record, ask.shown_digest);
                post(&store, row.id, PostContent::Answer { asked, shown_digest, verdict: Verdict::Yes, why: None })
                    .await;
                answered += 1;
            }
        }
        assert_eq!(answered, 1, "the first helper asks, then the second");
    }
    let session = store.run("r", Actor::program("test"), &agent, input).await.unwrap();
    assert_eq!(results(&session).await[0].1, "Asked. Asked.");
}
