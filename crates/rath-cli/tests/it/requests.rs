//! Model requests that are rebuilt from the records: the same bytes that a server received.

use std::sync::Arc;

use rath::body::Block;
use rath::body::ModelRequested;
use rath::model::{
    Anthropic, BoxModel, Chat, ContextView, Delta, Encoded, Failure, Model, ModelAnswer, ModelInput, Parameters,
    Responses,
};
use rath::model::{Message, StandardView};
use rath::prelude::*;
use rath::store::BoxFuture;
use rath::{Blob, Digest, Kind, Record};
use serde_json::{Value, json};

use crate::server::{Reply, Server};
use crate::workspace::{TestProject, text};

/// Repeats its argument.
#[tool(effect = "pure")]
async fn echo(text: String) -> String {
    text
}

/// The answers of each API: first reasoning and a call, then text.
fn answers(api: &'static str) -> impl Fn(usize, &crate::server::Request) -> Reply {
    move |number, _| {
        let (calls, id) = (number % 2 == 0, format!("call_{number}"));
        let arguments = r#"{ "text":"héllo\u0021",  "text":"twice" }"#;
        let answer = match api {
            "anthropic" => {
                let thinking = json!({"type": "thinking", "thinking": "Hm.", "signature": "sig=="});
                let part = match calls {
                    true => json!({"type": "tool_use", "id": id, "name": "echo", "input": {"text": "hello"}}),
                    false => json!({"type": "text", "text": "Said."}),
                };
                json!({"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [thinking, part],
                    "stop_reason": if calls { "tool_use" } else { "end_turn" },
                    "usage": {"input_tokens": 3, "output_tokens": 1}})
            }
            "chat" => {
                let call =
                    json!([{"id": id, "type": "function", "function": {"name": "echo", "arguments": arguments}}]);
                let message = match calls {
                    true => {
                        json!({"role": "assistant", "content": null, "reasoning_content": "Hm.", "tool_calls": call})
                    }
                    false => json!({"role": "assistant", "content": "Said."}),
                };
                json!({"id": "c", "model": "m", "choices": [{"index": 0, "message": message,
                    "finish_reason": if calls { "tool_calls" } else { "stop" }}],
                    "usage": {"prompt_tokens": 3, "completion_tokens": 9}})
            }
            _ => {
                let reasoning = json!({"type": "reasoning", "id": format!("rs_{number}"), "summary": [],
                    "encrypted_content": "sealed"});
                let item = match calls {
                    true => {
                        json!({"type": "function_call", "id": format!("fc_{number}"), "call_id": id, "name": "echo",
                        "arguments": arguments, "status": "completed"})
                    }
                    false => json!({"type": "message", "id": format!("msg_{number}"), "role": "assistant",
                        "status": "completed", "content": [{"type": "output_text", "text": "Said.", "annotations": []}]}),
                };
                json!({"id": "r", "object": "response", "model": "m", "status": "completed",
                    "output": [reasoning, item], "usage": {"input_tokens": 3, "output_tokens": 9}})
            }
        };
        Some((200, "application/json", answer.to_string()))
    }
}

fn model(api: &str, url: &str) -> BoxModel {
    match api {
        "anthropic" => Arc::new(Anthropic::new("m").base_url(url)),
        "chat" => Arc::new(Chat::openai_compatible("m", url)),
        "deepseek" => Arc::new(Chat::deepseek("m").base_url(url)),
        _ => Arc::new(Responses::new("m").base_url(url)),
    }
}

/// The requests of a session itself, in order.
async fn requests(session: &Session) -> Vec<Record> {
    let own = session.view().await.unwrap().own_records().await.unwrap();
    own.into_iter().filter(|record| *record.kind() == Kind::ModelRequested).collect()
}

/// Several turns with calls, a long text and an image; then a summary that replaces the beginning; then a fork.
async fn work(project: &TestProject, model: BoxModel) -> Vec<Record> {
    let store = Embedded::open(project.path(".rath")).unwrap();
    // A number whose shortest form is easily lost when it is parsed and printed again.
    let parameters =
        Parameters { temperature: Some(0.985_690_694_632_869_5), max_tokens: Some(300), ..Parameters::default() };
    let agent = Agent::new("parrot").prompt("Repeat “this”.\n").shared_model(model).tools(echo).parameters(parameters);
    let mut session = store.create(Actor::person("ada"));
    let picture = Blob::new(*b"\x89PNG\r\n\x1a\n", "image/png");
    session.user_with("Look. ".repeat(3000), [("cat.png", picture)]).unwrap();
    let mut session = agent.forward(session).await.unwrap();
    session.user("And again, \u{2028}with \"marks\".").unwrap();
    let mut session = agent.forward(session).await.unwrap();
    session.compress(0, 1, "It was looked at something.").await.unwrap();
    session.user("Once more.").unwrap();
    let session = agent.forward(session).await.unwrap();
    let mut fork = session.fork("another way");
    fork.user("Differently.").unwrap();
    let mut fork = agent.clone().view(StandardView::LastAnswer).forward(fork).await.unwrap();
    fork.publish().await.unwrap();
    [requests(&session).await, requests(&fork).await].concat()
}

#[test]
fn requests_are_rebuilt_byte_for_byte() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for (api, encoder) in [
        ("anthropic", "anthropic-messages@2"),
        ("chat", "openai-chat/common@2"),
        ("deepseek", "openai-chat/deepseek@2"),
        ("responses", "openai-responses@2"),
    ] {
        let project = TestProject::new();
        let server = Server::new(answers(if api == "deepseek" { "chat" } else { api }));
        let asked = runtime.block_on(work(&project, model(api, &server.url())));
        let received = server.requests();
        assert_eq!((asked.len(), received.len()), (8, 8), "{api}");
        for (record, received) in asked.iter().zip(&received) {
            let at = format!("{}@{}", record.session(), record.seq());
            let out = project.run(&["show", &at, "--request", "--raw"]);
            assert_eq!(out.status.code(), Some(0), "{api} {at}: {}", text(&out.stderr));
            assert_eq!(text(&out.stdout), text(&received.body), "{api} {at}");
            let body: ModelRequested = record.body().unwrap();
            assert_eq!((body.encoder.as_str(), body.request), (encoder, Digest::of(&out.stdout)));
            let value = project.json(&["show", &at, "--request"]);
            assert_eq!((&value["verdict"], &value["bytes"]), (&"rebuilt".into(), &received.body.len().into()));
            assert_eq!(value["request"], serde_json::from_slice::<Value>(&received.body).unwrap());
            assert_eq!(project.json(&["show", &at, "--context"])["rebuilt"], true);
        }
        let last = text(&received[7].body);
        assert!(last.contains("Differently.") && !last.contains("looked at something"), "{last}");
        assert!(text(&received[4].body).contains("looked at something"), "{api}");
        let kept = if api == "anthropic" { "sig==" } else { "sealed" };
        if matches!(api, "anthropic" | "responses") {
            assert!(text(&received[3].body).contains(kept), "reasoning goes back as it was sent: {api}");
        }
        assert!(text(&received[0].body).contains("0.9856906946328695") || api == "responses", "{api}");
    }
}

#[test]
fn a_record_after_a_request_shows_the_latest_request_before_it() {
    let project = TestProject::new();
    let asked = wait_for_it(work(&project, Arc::new(Scripted::new("s").otherwise("Said."))));
    let last = asked.last().unwrap();
    let fork = last.session();
    let out = project.run(&["show", &format!("{fork}@-0"), "--request"]);
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{said}");
    let point = format!("{}@{} parrot calls s, encoder scripted@1, the last request before", fork.short(), last.seq());
    assert!(said.contains(&point) && said.contains("✓ rebuilt"), "{said}");
    assert!(text(&out.stdout).starts_with("{\n  \"attempt\": 1,\n  \"config\": "), "{}", text(&out.stdout));
    // Before its own first request, a fork has the requests of its parent.
    let value = project.json(&["show", &format!("{fork}@1"), "--request"]);
    assert_eq!(value["at"]["session"], asked[0].session().to_string());
    assert_eq!(value["verdict"], "rebuilt");
    let raw = project.run(&["show", &format!("{fork}@1"), "--request", "--raw"]);
    assert_eq!(value["recorded"], Digest::of(&raw.stdout).hex().as_str());
    let said = project.fails(1, &["show", &format!("{}@1", asked[0].session()), "--request"]);
    assert!(said.contains("there is no model request up to"), "{said}");
    assert_eq!(project.run(&["show", "--raw"]).status.code(), Some(2));
}

/// A model with its own request format, under this encoder name.
struct Own(&'static str);

impl Model for Own {
    fn name(&self) -> &str {
        "own"
    }

    fn encoder(&self) -> &str {
        self.0
    }

    fn encode<'a>(&'a self, _: &'a ModelInput<'a>) -> BoxFuture<'a, Result<Encoded, Failure>> {
        Box::pin(std::future::ready(Ok(Encoded::new(b"{}".to_vec()))))
    }

    fn send<'a>(
        &'a self,
        _: &'a ModelInput<'a>,
        _: &'a Encoded,
        _: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>> {
        Box::pin(std::future::ready(Ok(ModelAnswer {
            blocks: vec![Block::Text { text: "Said.".into() }],
            ..ModelAnswer::default()
        })))
    }
}

/// A context view that the command line does not know.
#[derive(Debug)]
struct Nothing;

impl ContextView for Nothing {
    fn name(&self) -> &str {
        "nothing@1"
    }

    fn messages<'a>(&'a self, _: &'a View) -> BoxFuture<'a, rath::Result<Vec<Message>>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

#[test]
fn an_unregistered_context_view_is_reported() {
    let project = TestProject::new();
    let store = Embedded::open(project.path(".rath")).unwrap();
    let request = wait_for_it(async {
        let mut session = store.create(Actor::person("ada"));
        session.user("Hello.").unwrap();
        let agent = Agent::new("parrot").model(Scripted::new("s").say("Said.")).view(Nothing);
        let session = agent.forward(session).await.unwrap();
        requests(&session).await.remove(0).point().to_string()
    });
    let value = project.json(&["show", &request, "--request"]);
    assert_eq!(value["verdict"], "view_not_registered");
    assert_eq!(value["why"], "no context view nothing@1 is registered");
    let said = project.fails(3, &["show", &request, "--request"]);
    assert!(said.contains("✗ cannot be rebuilt: no context view nothing@1"), "{said}");
    let value = project.json(&["show", &request, "--context"]);
    assert_eq!((&value["rule"], &value["rebuilt"]), (&"nothing@1".into(), &false.into()));
}

#[test]
fn a_request_that_cannot_be_rebuilt_is_reported_with_its_reason() {
    let project = TestProject::new();
    let store = Embedded::open(project.path(".rath")).unwrap();
    let (requests, secret) = wait_for_it(async {
        let mut session = store.create(Actor::person("ada"));
        session.user("The secret.").unwrap();
        let secret = session.head();
        for model in [Own("anthropic-messages@2"), Own("mine@7")] {
            session = Agent::new("parrot").model(model).forward(session).await.unwrap();
        }
        session.publish().await.unwrap();
        (requests(&session).await, secret)
    });
    let at = |number: usize| requests[number].point().to_string();
    let verdict = |number: usize| {
        let value = project.json(&["show", &at(number), "--request"]);
        format!("{}: {}", value["verdict"].as_str().unwrap(), value["why"].as_str().unwrap())
    };
    let out = project.run(&["show", &at(0), "--request", "--raw"]);
    assert_eq!(out.status.code(), Some(3));
    assert_eq!(verdict(0), format!("differs: what is stored makes {}", Digest::of(&out.stdout)));
    assert!(text(&out.stdout).contains("The secret."), "what it makes is shown");
    assert_eq!(verdict(1), "encoder_gone: this version has no encoder mine@7");
    wait_for_it(store.erase(vec![secret])).unwrap();
    assert_eq!(verdict(0), format!("erased: {} was erased", secret.point()));
    let said = project.fails(3, &["show", &at(0), "--request"]);
    assert!(said.contains("✗ cannot be rebuilt: ") && said.contains("was erased"), "{said}");
    assert!(project.run(&["show", &at(0), "--request", "--raw"]).stdout.is_empty());
    wait_for_it(store.erase(vec![requests[1].reference()])).unwrap();
    assert_eq!(verdict(1), format!("erased: {} was erased", requests[1].point()));
}

fn wait_for_it<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}
