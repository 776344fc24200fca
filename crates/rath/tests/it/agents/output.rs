//! Typed output of agents, and the validators that read it: a JSON schema and a judge.

use std::fmt::Debug;

use rath::body::{CheckVerdict, ModelRequested, StepLeft, Validated};
use rath::model::ToolChoice;
use rath::session::RunOptions;
use rath::store::Query;
use rath::workflow::validator::{self, validate};
use rath::workflow::{Join, gate, map, parallel};
use rath_testkit::{CrashPoint, CrashingStore};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
struct Weather {
    degrees: i64,
    /// The wind force.
    #[schemars(range(min = 0, max = 12))]
    wind: u8,
    sky: Sky,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Sky {
    /// No cloud.
    Clear,
    /// No sun.
    Covered,
}

const MILD: &str = r#"{"degrees": 21, "wind": 3, "sky": "clear"}"#;

fn mild() -> Weather {
    Weather { degrees: 21, wind: 3, sky: Sky::Clear }
}

fn agent(model: impl Model) -> Agent {
    Agent::new("weather").model(model).retries(0, Duration::ZERO).output::<Weather>()
}

fn says(answers: &[&str]) -> Scripted {
    answers.iter().fold(Scripted::new("scripted"), |script, answer| script.say(*answer))
}

/// A model whose API takes no schema.
fn without_schema(script: Scripted) -> Watched {
    watched(script).0
}

async fn run_of(store: &Arc<dyn Store>) -> Result<Session> {
    let input = async |session: &mut Session| {
        session.set_durability(Durability::Record);
        session.user("Please.").map(drop)
    };
    let mut session = store.begin_run("run", RunOptions::from(Actor::program("test")), input).await?;
    session.set_durability(Durability::Record);
    Ok(session)
}

/// How a run ended.
#[derive(Debug, PartialEq)]
struct Ending<T> {
    error: Option<String>,
    output: Option<T>,
    transcript: Vec<String>,
    usage: Usage,
}

async fn ending<T: DeserializeOwned>(session: &Session, error: Option<String>) -> Ending<T> {
    let output = session.output().await.unwrap();
    Ending { error, output, transcript: transcript(session).await, usage: session.usage() }
}

async fn ends<T: DeserializeOwned>(store: &Arc<dyn Store>, workflow: &impl Workflow) -> Option<Ending<T>> {
    let executed = run_of(store).await.ok()?.execute(workflow).await;
    // A dead store has no ending.
    store.sessions(Query::default()).await.ok()?;
    match executed {
        Ok(session) => Some(ending(&session, None).await),
        Err(error) => Some(ending(&error.sessions()[0], Some(format!("{}: {error}", error.code()))).await),
    }
}

/// Runs the workflow without a crash, and then with a crash before and after each commit. All runs must end the same way.
async fn survives<T: DeserializeOwned + Debug + PartialEq, W: Workflow>(workflow: impl Fn() -> W) -> Ending<T> {
    let store: Arc<dyn Store> = InMemory::new();
    let wanted = ends::<T>(&store, &workflow()).await.unwrap();
    let finished = ends::<T>(&store, &workflow()).await.unwrap();
    assert_eq!(finished, wanted, "the finished run is entered again");
    for moment in [CrashPoint::Before, CrashPoint::After] {
        for commits in 0.. {
            let store: Arc<dyn Store> = InMemory::new();
            let crashing = CrashingStore::new(store.clone(), commits, moment);
            let through: Arc<dyn Store> = crashing.clone();
            drop(ends::<T>(&through, &workflow()).await);
            if !crashing.is_dead() {
                break;
            }
            let resumed = ends::<T>(&store, &workflow()).await.unwrap();
            assert_eq!(resumed, wanted, "crash {moment:?} commit {commits}");
        }
    }
    wanted
}

#[tokio::test]
async fn a_typed_answer_is_the_value_of_the_step() {
    let store: Arc<dyn Store> = InMemory::new();
    let session = agent(says(&[MILD])).forward(asked(&store)).await.unwrap();
    assert_eq!(session.output().await.unwrap(), Some(mild()));
    assert_eq!(session.value("weather").await.unwrap(), Some(mild()));
    let left: Vec<StepLeft> = bodies(&session).await;
    assert_eq!(left[0].value.as_ref().unwrap().to_string(), r#"{"degrees":21,"wind":3,"sky":"clear"}"#);
    let mut session = session;
    session.publish().await.unwrap();
    let id = session.id();
    drop(session);
    let reopened = store.open(id, Actor::person("ada")).await.unwrap();
    assert_eq!(reopened.output().await.unwrap(), Some(mild()));
    assert_eq!(reopened.fork("later").value("weather").await.unwrap(), Some(mild()));
    assert_eq!(reopened.value::<Weather>("another").await.unwrap(), None);
    survives::<Weather, _>(|| agent(says(&[MILD]))).await;
}

#[tokio::test]
async fn a_type_that_is_no_object_is_asked_for_in_a_field() {
    let store: Arc<dyn Store> = InMemory::new();
    for answer in [r#"{"value": ["a", "b"]}"#, r#"["a", "b"]"#, "```json\n[\"a\", \"b\"]\n```"] {
        let agent = Agent::new("list").model(says(&[answer])).output::<Vec<String>>();
        let session = agent.forward(asked(&store)).await.unwrap();
        assert_eq!(session.output().await.unwrap(), Some(vec!["a".to_owned(), "b".to_owned()]));
    }
    let list = Agent::new("list").model(says(&[r#"{"value": ["a", "b"]}"#])).output::<Vec<String>>();
    let worker = Agent::new("worker").model(says(&["done"]));
    let session =
        rath::workflow::chain("both").then(list).then(map("each", worker)).forward(asked(&store)).await.unwrap();
    let said = transcript(&session).await;
    assert!(said.last().unwrap().contains("## 2\n\ndone"), "{said:?}");
}

#[tokio::test]
async fn the_model_is_told_what_is_wrong_and_answers_again() {
    let stormy = r#"{"degrees": 21, "wind": 13, "sky": "clear"}"#;
    let bad = r#"{"degrees": 21, "wind": "strong", "sky": "clear"}"#;
    let ended = survives::<Weather, _>(|| agent(says(&[bad, stormy, MILD]))).await;
    assert_eq!((ended.error, ended.output), (None, Some(mild())));
    let said = ended.transcript;
    assert_eq!(said.len(), 6, "{said:#?}");
    assert!(
        said[2].starts_with("user Your answer does not have the required format: wind: invalid type: string"),
        "{said:#?}"
    );
    assert!(said[4].contains("/wind: ") && said[4].contains("12"), "{said:#?}");
    assert!(said[4].contains(r#""degrees":"#), "the schema is repeated: {said:#?}");
}

#[tokio::test]
async fn answers_that_stay_wrong_fail() {
    let ended = survives::<Weather, _>(|| agent(says(&["Mild.", "Mild!", "Mild?", MILD]))).await;
    let error = ended.error.unwrap();
    assert!(error.starts_with("bad-output: ") && error.contains("attempts: 3"), "{error}");
    assert!(error.ends_with("Mild?"), "{error}");
    assert_eq!(ended.output, None);
    let ended = survives::<Weather, _>(|| agent(says(&["Mild.", MILD])).output_retries(0)).await;
    assert!(ended.error.unwrap().contains("attempts: 1"));
}

#[tokio::test]
async fn refusals_and_answers_that_are_cut_off_are_errors() {
    let stops = |text: &'static str, stop: &'static str| {
        move || agent(Scripted::new("s").turn(Turn::new().text(text).stop(stop)))
    };
    let ended = survives::<Weather, _>(stops("I must not talk about the weather.", "refusal")).await;
    assert_eq!(
        ended.error.as_deref(),
        Some("refused: the model of agent \"weather\" refused to answer: I must not talk about the weather.")
    );
    let ended = survives::<Weather, _>(stops("", "content_filter")).await;
    assert!(ended.error.unwrap().starts_with("refused: "));
    let ended = survives::<Weather, _>(stops(r#"{"degrees": 21, "wi"#, "max_tokens")).await;
    assert_eq!(ended.error.as_deref(), Some("cut-off: the answer of agent \"weather\" was cut off at the token limit"));
    let cut = || {
        let turn = Turn::new().call_text("final_answer", r#"{"degrees": 21, "wi"#).stop("max_tokens");
        agent(without_schema(Scripted::new("s").turn(turn)))
    };
    assert!(survives::<Weather, _>(cut).await.error.unwrap().starts_with("cut-off: "));
}

fn call(arguments: &str) -> Turn {
    Turn::new().call_text("final_answer", arguments)
}

#[tokio::test]
async fn a_model_without_schemas_must_call_a_tool() {
    let store: Arc<dyn Store> = InMemory::new();
    let session = agent(without_schema(Scripted::new("s").turn(call(MILD)))).forward(asked(&store)).await.unwrap();
    assert_eq!(session.output().await.unwrap(), Some(mild()));
    assert_eq!(session.text().await.unwrap().as_deref(), Some(r#"{"degrees":21,"wind":3,"sky":"clear"}"#));
    let requested: Vec<ModelRequested> = bodies(&session).await;
    assert_eq!(requested.len(), 1);
    assert_eq!(requested[0].parameters, None, "the choice is in the configuration");
    let ended = survives::<Weather, _>(|| {
        agent(without_schema(Scripted::new("s").turn(call(r#"{"degrees": 21}"#)).say("It is mild.").turn(call(MILD))))
    })
    .await;
    assert_eq!((ended.error, ended.output), (None, Some(mild())));
    let said = ended.transcript.join("\n");
    assert!(said.contains("The answer does not have the required format: missing field `wind`"), "{said}");
    assert!(said.contains("user That is not the required format. Call the tool `final_answer`."), "{said}");
    let ended = survives::<Weather, _>(|| {
        agent(without_schema(Scripted::new("s").turn(call("{}")).say("Mild.").turn(call("[]")).turn(call(MILD))))
    })
    .await;
    assert!(ended.error.unwrap().contains("attempts: 3"));
}

#[tokio::test]
async fn beside_other_tools_the_answer_is_forced_after_words() {
    let script = || {
        let script = Scripted::new("s").call("echo", json!({"text": "21"})).say("It is mild.");
        script.turn(call(MILD))
    };
    let make = move || agent(without_schema(script())).tools(echo);
    let store: Arc<dyn Store> = InMemory::new();
    let session = make().forward(asked(&store)).await.unwrap();
    let choices: Vec<Option<ToolChoice>> = bodies::<ModelRequested>(&session)
        .await
        .into_iter()
        .map(|requested| requested.parameters.and_then(|parameters| parameters.tool_choice))
        .collect();
    assert_eq!(choices, [None, None, Some(ToolChoice::Tool("final_answer".into()))]);
    let ended = survives::<Weather, _>(make).await;
    assert_eq!((ended.error, ended.output), (None, Some(mild())));
    assert!(ended.transcript.contains(&"user Give your final answer now: call the tool `final_answer`.".to_owned()));

    // The model may call the tool by itself, together with others, and a tool of the same name is left alone.
    /// Another tool.
    #[tool(effect = "pure")]
    fn final_answer(text: String) -> String {
        text
    }
    let both = || {
        let turn = Turn::new().call("final_answer", json!({"text": "x"})).call_text("final_answer_2", MILD);
        agent(without_schema(Scripted::new("s").turn(turn))).tools(final_answer)
    };
    let ended = survives::<Weather, _>(both).await;
    assert_eq!((ended.error, ended.output), (None, Some(mild())));

    // Asking for the call is not a retry.
    let wrong = || {
        let script = Scripted::new("s").say("Mild.").turn(call("{}")).say("Mild!").turn(call("{}")).turn(call(MILD));
        agent(without_schema(script)).tools(echo)
    };
    let ended = survives::<Weather, _>(wrong).await;
    assert!(ended.error.as_deref().is_some_and(|error| error.contains("attempts: 3")), "{ended:?}");
}

#[tokio::test]
async fn a_value_that_looks_like_the_field_around_it_is_kept() {
    let ended = survives::<Value, _>(|| {
        let model = without_schema(Scripted::new("s").turn(call(r#"{"value": {"value": 3}}"#)));
        Agent::new("any").model(model).output::<Value>()
    })
    .await;
    assert_eq!((ended.error, ended.output), (None, Some(json!({"value": 3}))));
}

#[tokio::test]
async fn an_answer_in_words_counts_where_a_call_was_asked_for() {
    let ended = survives::<Weather, _>(|| agent(without_schema(says(&[MILD]))).tools(echo)).await;
    assert_eq!((ended.error, ended.output, ended.transcript.len()), (None, Some(mild()), 2));
}

#[tokio::test]
async fn a_message_that_arrives_with_the_answer_is_answered() {
    let inner: Arc<dyn Store> = InMemory::new();
    let posted = Mutex::new(false);
    let store = Hooked::new(inner, move |batch| {
        let mut records = batch.parts.iter().flat_map(|part| &part.records);
        let requested = records.find(|record| *record.kind() == Kind::ModelRequested)?;
        let mut posted = posted.lock().unwrap();
        let what = PostContent::Message { text: "In Oslo.".into() };
        (!std::mem::replace(&mut *posted, true)).then(|| Post::new(requested.session(), Actor::person("grace"), what))
    });
    let script = Scripted::new("s").turn(call(MILD)).turn(call(r#"{"degrees": 2, "wind": 3, "sky": "covered"}"#));
    let session = run_of(&store).await.unwrap().execute(&agent(without_schema(script))).await.unwrap();
    assert_eq!(session.output::<Weather>().await.unwrap().unwrap().degrees, 2);
}

#[tokio::test]
async fn values_of_merged_branches_are_found_by_name() {
    let store: Arc<dyn Store> = InMemory::new();
    let other = r#"{"degrees": 2, "wind": 3, "sky": "covered"}"#;
    let branches = parallel("both").branch("oslo", agent(says(&[other]))).branch("rome", agent(says(&[MILD])));
    let session = run_of(&store).await.unwrap().execute(&branches.clone().join(Join::answers())).await.unwrap();
    let degrees =
        async |session: &Session, name: &str| session.value::<Weather>(name).await.unwrap().map(|it| it.degrees);
    assert_eq!((degrees(&session, "oslo").await, degrees(&session, "rome").await), (Some(2), Some(21)));
    assert_eq!(degrees(&session, "weather").await, Some(21), "the last branch counts");
    assert_eq!(degrees(&session, "bergen").await, None);
    let session = parallel("nested").branch("inner", branches).forward(asked(&store)).await.unwrap();
    assert_eq!((degrees(&session, "oslo").await, degrees(&session, "rome").await), (Some(2), Some(21)));
    let coldest = validator::check("coldest", |session: Session| async move {
        let weather: Weather = session.output().await?.unwrap();
        Ok((session, validator::Validation::accept().score(-weather.degrees as f64)))
    });
    let best = parallel("best").branch("oslo", agent(says(&[other]))).branch("rome", agent(says(&[MILD])));
    let session = best.join(Join::best(coldest)).forward(asked(&store)).await.unwrap();
    assert_eq!(degrees(&session, "weather").await, Some(2), "the rejected branch is not searched");
}

#[tokio::test]
async fn a_json_schema_checks_the_output() {
    let positive = || validator::schema(json!({"properties": {"degrees": {"minimum": 0}}})).unwrap();
    let store: Arc<dyn Store> = InMemory::new();
    let gated = gate("g", agent(says(&[MILD]))).validator(positive()).validator(positive());
    gated.forward(asked(&store)).await.unwrap();
    let cold = agent(says(&[r#"{"degrees": -3, "wind": 3, "sky": "clear"}"#]));
    let error = gate("g", cold).validator(positive()).forward(asked(&store)).await.unwrap_err();
    assert!(error.code() == "rejected" && error.to_string().contains("/degrees: "), "{error}");
    let words = Agent::new("words").model(says(&["Mild."]));
    let error = gate("g", words).validator(positive()).forward(asked(&store)).await.unwrap_err();
    assert!(error.to_string().contains("the answer is not JSON"), "{error}");
    assert!(validator::schema(json!({"$ref": "https://example.com/schema.json"})).is_err());
}

fn vote(accepted: bool, score: f64) -> String {
    json!({"accepted": accepted, "score": score, "reason": format!("It is worth {score}.")}).to_string()
}

/// A model that answers with the next of these votes.
fn votes(votes: &'static [&'static str]) -> Scripted {
    let next = AtomicU64::new(0);
    Scripted::from_fn(move |_| votes[next.fetch_add(1, Ordering::AcqRel) as usize % votes.len()])
}

async fn judged(judge: validator::Judge) -> (validator::Validation, Session) {
    let store: Arc<dyn Store> = InMemory::new();
    let session = Agent::new("poet").model(says(&["Roses are red."])).forward(asked(&store)).await.unwrap();
    let (session, validation) = validate(session, &validator::BoxValidator::new(judge)).await.unwrap();
    (validation, session)
}

#[tokio::test]
async fn a_judge_gives_a_verdict_with_its_record_as_evidence() {
    let yes = vote(true, 0.75);
    let (validation, session) = judged(validator::judge(says(&[yes.as_str()]), "It rhymes.")).await;
    assert_eq!((validation.verdict, validation.score), (CheckVerdict::Passed, Some(0.75)));
    assert_eq!(validation.reasons, ["It is worth 0.75."]);
    let validated: Vec<Validated> = bodies(&session).await;
    assert_eq!(validated[0].validator.as_deref(), Some("judge: It rhymes."));
    let evidence = validated[0].evidence[0].record.unwrap();
    let view = View::of(session.store(), evidence.session, Some(evidence.seq)).await.unwrap();
    assert_eq!(view.record().id(), evidence.id);
    assert_eq!(view.output::<Value>().await.unwrap().unwrap()["score"], 0.75);
    assert_eq!(transcript(&session).await.len(), 2, "the judge's conversation stays out of the context");
    let no = vote(false, 0.25);
    let own = Agent::new("critic").prompt("You hate poems.").model(says(&[no.as_str()]));
    let (validation, _) = judged(validator::judge(own, "It rhymes.")).await;
    assert_eq!((validation.verdict, validation.score), (CheckVerdict::Failed, Some(0.25)));
}

#[tokio::test]
async fn the_majority_of_judges_decides() {
    const YES: &str = r#"{"accepted": true, "score": 0.9, "reason": "It rhymes."}"#;
    const NO: &str = r#"{"accepted": false, "score": 0.3, "reason": "It does not."}"#;
    let (validation, session) = judged(validator::judge(votes(&[YES, NO, NO]), "It rhymes.").votes(3)).await;
    assert_eq!(validation.verdict, CheckVerdict::Failed);
    assert!((validation.score.unwrap() - 0.5).abs() < 1e-9);
    assert_eq!(validation.reasons, ["It does not.", "It does not.", "It rhymes."]);
    assert_eq!(validation.evidence.len(), 3);
    assert_eq!(session.usage().requests, 4, "the votes count");
    let (validation, _) = judged(validator::judge(votes(&[YES, NO]), "It rhymes.").votes(2)).await;
    assert_eq!(validation.verdict, CheckVerdict::Undecided);
}

#[tokio::test]
async fn judges_that_talk_nonsense_decide_nothing() {
    let nonsense = || Scripted::new("s").otherwise("Roses!");
    let (validation, _) = judged(validator::judge(nonsense(), "It rhymes.").votes(2)).await;
    assert_eq!((validation.verdict, validation.score), (CheckVerdict::Undecided, None));
    assert_eq!(validation.reasons[0], "no judge gave a verdict");
    assert!(validation.reasons[1].contains("gave no answer of the required format"), "{validation:?}");
    let (validation, _) =
        judged(validator::judge(votes(&[r#"{"accepted": true, "score": 7, "reason": "Wow."}"#]), "x")).await;
    assert_eq!(validation.verdict, CheckVerdict::Undecided, "a score above 1 is nonsense");
}

#[tokio::test]
async fn a_judged_run_survives_crashes() {
    let judged = || {
        let critic =
            validator::judge(Scripted::new("judge").otherwise(vote(true, 1.0).as_str()), "It is mild.").votes(2);
        gate("g", agent(says(&["Mild.", MILD]))).validator(critic)
    };
    let ended = survives::<Value, _>(judged).await;
    assert_eq!(ended.error, None);
}

#[tokio::test]
async fn a_typed_sub_agent_answers_with_json() {
    let store: Arc<dyn Store> = InMemory::new();
    let forecast = agent(without_schema(Scripted::new("s").turn(call(MILD)))).as_tool("Knows the weather.");
    let model = Scripted::new("s").call("weather", json!({"task": "Now?"})).say("Mild.");
    let session = Agent::new("guide").model(model).tools(forecast).forward(asked(&store)).await.unwrap();
    assert_eq!(results(&session).await[0].1, r#"{"degrees":21,"wind":3,"sky":"clear"}"#);
}
