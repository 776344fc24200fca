//! Agents against aimock, a third-party server: text, parallel calls, and temporary errors.

#![allow(clippy::disallowed_methods, reason = "the server is a process")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rath::agent::{Event, Observer};
use rath::body::{ModelFailed, ModelRequested, ModelResponded};
use rath::prelude::*;
use rath_core::{BoxModel, Delta, Kind};
use rath_model::{Anthropic, Chat, Responses};
use serde_json::json;

use super::agent::{bodies, echo};

/// A running aimock, stopped on drop.
struct Mock {
    child: Child,
    url: String,
}

impl Drop for Mock {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Mock {
    /// Starts aimock. `None` if it is not installed; the test is then reported as skipped.
    fn start(dir: &Path) -> Option<Self> {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("aimock/node_modules/@copilotkit/aimock/dist/cli.js");
        if !program.is_file() {
            let why = "aimock is not installed; `cargo xtask test` installs it if npm and its registry are available";
            rath_testkit::Requirement::Npm.skip(why);
            return None;
        }
        let refused = |status: u16, kind: &str, at: u32| {
            json!({"match": {"userMessage": "limited", "sequenceIndex": at},
                "response": {"error": {"message": "Not now", "type": kind}, "status": status}})
        };
        let calls = ["red", "blue"].map(|text| json!({"name": "echo", "arguments": json!({"text": text}).to_string()}));
        let fixtures = json!({"fixtures": [
            refused(429, "rate_limit_error", 0),
            refused(529, "overloaded_error", 1),
            {"match": {"userMessage": "limited"}, "response": {"content": "At last."}},
            {"match": {"userMessage": "colours", "hasToolResult": true}, "response": {"content": "Red and blue."}},
            {"match": {"userMessage": "colours"}, "response": {"toolCalls": calls}},
            {"match": {"userMessage": "greet"}, "response": {"content": "Good morning, dear reader of a stream."}},
        ]});
        let file = dir.join("fixtures.json");
        std::fs::write(&file, fixtures.to_string()).unwrap();
        let mut child = Command::new("node")
            .arg(program)
            .args(["--port", "0", "--chunk-size", "5", "--fixtures"])
            .arg(file)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut addresses = lines.filter_map(|line| Some(line.split_once("listening on ")?.1.trim().to_owned()));
        let url = addresses.next().expect("aimock prints its address");
        Some(Self { child, url })
    }

    /// A client for each API. aimock counts the requests of each `x-test-id` separately.
    fn clients(&self) -> [(&'static str, BoxModel); 3] {
        let v1 = format!("{}/v1", self.url);
        [
            ("messages", Arc::new(Anthropic::new("claude-sonnet-4-5").base_url(&self.url).header("x-test-id", "a"))),
            ("chat", Arc::new(Chat::new("gpt-5-mini").base_url(&v1).header("x-test-id", "b").priced_as("openai"))),
            ("responses", Arc::new(Responses::new("gpt-5").base_url(&v1).header("x-test-id", "c"))),
        ]
    }
}

/// Runs an agent. Returns the session and the pieces of text that were streamed.
async fn answered(model: BoxModel, question: &str) -> (Session, Vec<String>) {
    let mut session = rath_core::InMemory::new().create(Actor::person("ada"));
    session.user(question).unwrap();
    let deltas = Arc::new(Mutex::new(Vec::new()));
    let hears = deltas.clone();
    session.provide(Observer::new(move |event| {
        if let Event::Delta { delta: Delta::Text(text) } = event.what {
            hears.lock().unwrap().push(text);
        }
    }));
    let agent = Agent::new("parrot").prompt("Repeat.").shared_model(model).tools(echo);
    let session = agent.retries(2, Duration::from_millis(1)).forward(session).await.unwrap();
    let deltas = deltas.lock().unwrap().clone();
    (session, deltas)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_api_works_with_a_third_party_server() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mock) = Mock::start(dir.path()) else { return };
    for (api, model) in mock.clients() {
        let (session, deltas) = answered(model.clone(), "Please greet me.").await;
        let text = session.text().await.unwrap();
        assert_eq!(text.as_deref(), Some("Good morning, dear reader of a stream."), "{api}");
        assert!(deltas.len() > 3, "{api}: streamed in pieces: {deltas:?}");
        assert_eq!(deltas.concat(), text.unwrap(), "{api}");

        let (session, _) = answered(model.clone(), "Name two colours.").await;
        assert_eq!(session.text().await.unwrap().as_deref(), Some("Red and blue."), "{api}");
        let results = session.context().await.unwrap().into_iter().filter(|message| message.body.role() == "tool");
        let results: Vec<String> = results.map(|message| message.body.to_string()).collect();
        assert_eq!(results.len(), 2, "{api}: {results:?}");
        assert!(results[0].ends_with("red") && results[1].ends_with("blue"), "{api}: {results:?}");

        let (session, _) = answered(model, "I am limited.").await;
        assert_eq!(session.text().await.unwrap().as_deref(), Some("At last."), "{api}");
        let failed: Vec<ModelFailed> = bodies(&session, Kind::ModelFailed).await;
        let statuses: Vec<_> = failed.iter().map(|failed| (failed.status, failed.retried)).collect();
        assert_eq!(statuses, [(Some(429), true), (Some(529), true)], "{api}");
        for failed in failed {
            let raw = session.store().blob_get(failed.raw.unwrap().digest).await.unwrap().unwrap();
            assert!(String::from_utf8_lossy(&raw).contains("Not now"), "{api}: the error response is stored verbatim");
        }
        let attempts: Vec<ModelRequested> = bodies(&session, Kind::ModelRequested).await;
        let numbers: Vec<_> = attempts.iter().map(|request| request.attempt).collect();
        assert_eq!(numbers, [None, Some(2), Some(3)], "{api}: every attempt is a record");
        assert!(attempts.iter().all(|request| request.request == attempts[0].request), "{api}: with the same bytes");
        let answers: Vec<ModelResponded> = bodies(&session, Kind::ModelResponded).await;
        let priced = answers.iter().all(|answer| answer.prices.is_some() && answer.usage.cost_nano_usd > 0);
        assert_eq!(priced, api == "chat", "{api}: {answers:?}");
    }
}
