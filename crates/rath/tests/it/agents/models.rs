//! Failing models.

use rath::agent::{Event, Observer};
use rath::body::{Failed, ModelFailed, ModelRequested, Outcome, StepLeft};
use rath::{ErrorKind, Kind};
use serde_json::json;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transient_failure_is_retried_and_recorded() {
    let overloaded = Failure { status: Some(529), ..Failure::transient("overloaded") };
    let turn = Turn::new().fails_first(2, overloaded).breaks_off_after(6).text("Three times is enough.");
    let script = Scripted::new("scripted").turn(turn);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let mut session = asked(&InMemory::new());
    let hears = heard.clone();
    session.provide(Observer::new(move |event| {
        if let Event::Retrying { why } = event.what {
            hears.lock().unwrap().push(format!("{}: {why}", event.agent));
        }
    }));
    let agent = Agent::new("patient").model(script).tools(nothing).retries(3, Duration::ZERO);
    let session = agent.forward(session).await.unwrap();
    assert_eq!(session.text().await.unwrap().as_deref(), Some("Three times is enough."));
    let failures = bodies::<ModelFailed>(&session).await;
    assert_eq!(failures.len(), 3);
    assert!(failures.iter().all(|failure| failure.retried && !failure.lost));
    assert_eq!((failures[0].status, &*failures[0].why), (Some(529), "overloaded"));
    let partial = failures[2].partial.as_ref().map(ToString::to_string);
    assert_eq!(partial.as_deref(), Some("Three "), "what had come of the answer is kept");
    let attempts: Vec<_> = bodies::<ModelRequested>(&session).await.iter().map(|request| request.attempt).collect();
    assert_eq!(attempts, [None, Some(2), Some(3), Some(4)]);
    assert_eq!(session.usage().requests, 1, "only answers are counted");
    assert_eq!(transcript(&session).await.len(), 2, "the model is not shown its failures");
    assert_eq!(heard.lock().unwrap().len(), 3);
    assert_eq!(session.state().run(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_count_from_zero_in_every_turn() {
    let failing = |turn: Turn| turn.fails_first(2, Failure::transient("busy"));
    let script = Scripted::new("scripted")
        .turn(failing(Turn::new()).call("nothing", json!({})))
        .turn(failing(Turn::new()).text("Done."));
    let agent = Agent::new("patient").model(script).tools(nothing).retries(2, Duration::ZERO);
    let session = agent.forward(asked(&InMemory::new())).await.unwrap();
    assert_eq!(count(&session, Kind::ModelFailed).await, 4);
}

async fn given_up(script: Scripted, retries: u32) -> (Session, String) {
    let agent = Agent::new("hopeless").model(script).tools(nothing).retries(retries, Duration::ZERO);
    let error = agent.forward(asked(&InMemory::new())).await.unwrap_err();
    assert!(matches!(error.cause(), Some(ErrorKind::Model { .. })), "{error}");
    assert_eq!(error.code(), "model-failed");
    assert!(error.is_recorded());
    let text = error.to_string();
    let session = error.into_sessions().remove(0);
    assert!(session.pending().is_empty());
    assert_eq!(session.unpublished_count(), 0);
    let failed = bodies::<Failed>(&session).await;
    assert_eq!((failed.len(), failed[0].code.as_deref(), &*failed[0].why), (1, Some("model-failed"), &*text));
    assert_eq!(bodies::<StepLeft>(&session).await.last().unwrap().outcome, Outcome::Failed);
    (session, text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_are_limited() {
    let (session, text) = given_up(Scripted::new("busy").turn(Failure::transient("overloaded")), 2).await;
    assert_eq!(text, "model busy did not answer: overloaded");
    let retried: Vec<_> = bodies::<ModelFailed>(&session).await.iter().map(|failed| failed.retried).collect();
    assert_eq!(retried, [true, true, false]);
    let (session, _) = given_up(Scripted::new("busy").turn(Failure::transient("overloaded")), 0).await;
    assert_eq!(count(&session, Kind::ModelFailed).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permanent_failure_is_not_retried() {
    let script = Scripted::new("gone").call("nothing", json!({})).turn(Failure::permanent("no such model"));
    let (session, text) = given_up(script, 5).await;
    assert_eq!(text, "model gone did not answer: no such model");
    assert_eq!((count(&session, Kind::ModelFailed).await, count(&session, Kind::ModelRequested).await), (1, 2));
    assert_eq!(results(&session).await.len(), 1, "what was done before is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_to_wait_longer_than_the_limit_is_a_failure() {
    let busy = Failure { after: Some(Duration::from_secs(3600)), status: Some(429), ..Failure::transient("busy") };
    let (session, text) = given_up(Scripted::new("busy").turn(busy), 5).await;
    let wanted = "model busy did not answer: busy; the provider asks to wait 3600 s, longer than the limit of 60 s";
    assert_eq!(text, wanted);
    let failures = bodies::<ModelFailed>(&session).await;
    assert_eq!((failures.len(), failures[0].retried, failures[0].status), (1, false, Some(429)));
}

/// A model that cannot encode requests.
struct Speechless(Scripted);

impl Model for Speechless {
    fn name(&self) -> &str {
        "speechless"
    }
    fn encoder(&self) -> &str {
        self.0.encoder()
    }
    fn encode<'a>(&'a self, shown: &'a ModelInput<'a>) -> BoxFuture<'a, Result<Encoded, Failure>> {
        Box::pin(async move {
            match shown.attempt {
                1 => Err(Failure::transient("the words do not come")),
                _ => self.0.encode(shown).await,
            }
        })
    }
    fn send<'a>(
        &'a self,
        shown: &'a ModelInput<'a>,
        request: &'a Encoded,
        heard: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>> {
        self.0.send(shown, request, heard)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_cannot_be_encoded_is_a_failure() {
    let agent = Agent::new("slow").model(Speechless(Scripted::new("s").say("There."))).retries(1, Duration::ZERO);
    let session = agent.forward(asked(&InMemory::new())).await.unwrap();
    assert_eq!((count(&session, Kind::ModelFailed).await, count(&session, Kind::ModelRequested).await), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deltas_add_up_to_the_answer() {
    let heard = Arc::new(Mutex::new(String::new()));
    let mut session = asked(&InMemory::new());
    let hears = heard.clone();
    session.provide(Observer::new(move |event| {
        if let Event::Delta { delta: Delta::Text(text) } = event.what {
            hears.lock().unwrap().push_str(&text);
        }
    }));
    let turn = Turn::new().text("In several pieces.").chunks(5, Duration::ZERO);
    let session = Agent::new("teller").model(Scripted::new("s").turn(turn)).forward(session).await.unwrap();
    assert_eq!(session.text().await.unwrap().as_deref(), Some(&**heard.lock().unwrap()));
}
