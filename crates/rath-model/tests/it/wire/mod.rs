//! Tests of the clients over real sockets.

mod agent;
mod hostile;
mod mock;
mod server;
mod tiny;
mod tls;

use std::sync::Mutex;
use std::time::Duration;

use rath_core::{
    Actor, BoxModel, Delta, Digest, Failure, InMemory, Model, ModelAnswer, ModelInput, Parameters, RequestSpec,
    Session, StandardView, TokenCount,
};
use rath_model::{Anthropic, Chat, Responses};

/// Long enough for any machine: only a hang takes longer.
const FOR_EVER: Duration = Duration::from_secs(60);

pub(crate) const KEY: &str = "sk-test-0123456789abcdefghij";

/// The stream of each API for the text "Hello, world".
pub(crate) fn streams() -> [String; 3] {
    let named = |events: &[&str]| -> String {
        let line = |data: &&str| {
            let kind = data.split('"').nth(3).unwrap();
            format!("event: {kind}\ndata: {data}\n\n")
        };
        events.iter().map(line).collect()
    };
    let anthropic = named(&[
        r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[],"stop_reason":null,"usage":{"input_tokens":3,"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello, "}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"world"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}"#,
        r#"{"type":"message_stop"}"#,
    ]);
    let chat: String = [
        r#"{"id":"c1","model":"gpt","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello, "}}]}"#,
        r#"{"id":"c1","model":"gpt","choices":[{"index":0,"delta":{"content":"world"}}]}"#,
        r#"{"id":"c1","model":"gpt","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        r#"{"id":"c1","model":"gpt","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":9}}"#,
        "[DONE]",
    ]
    .map(|data| format!("data: {data}\n\n"))
    .concat();
    let message = r#"{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hello, world"}]}"#;
    let completed = format!(
        r#"{{"type":"response.completed","response":{{"id":"r1","model":"gpt","status":"completed","output":[{message}],"usage":{{"input_tokens":3,"output_tokens":9}}}}}}"#
    );
    let responses = named(&[
        r#"{"type":"response.created","response":{"id":"r1","model":"gpt","status":"in_progress","output":[]}}"#,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"msg_1","role":"assistant","content":[]}}"#,
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Hello, "}"#,
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"world"}"#,
        &completed,
    ]);
    [anthropic, chat, responses]
}

/// Creates a client with this idle timeout.
type Maker = Box<dyn Fn(Duration) -> BoxModel>;

/// A client for each API at this address.
pub(crate) fn clients(url: &str) -> [Maker; 3] {
    let url = url.to_owned();
    let (a, b, c) = (url.clone(), url.clone(), url);
    macro_rules! client {
        ($new:expr, $url:ident) => {
            Box::new(move |idle| {
                let client = $new.key(KEY).base_url($url.as_str()).idle_timeout(idle).response_limit(100_000);
                assert!(!format!("{client:?}").contains(KEY));
                std::sync::Arc::new(client)
            })
        };
    }
    [client!(Anthropic::new("m"), a), client!(Chat::new("m"), b), client!(Responses::new("m"), c)]
}

/// The token count of a request, as the model reports it.
pub(crate) async fn count(model: &dyn Model) -> Result<TokenCount, Failure> {
    let mut session = Session::create(&InMemory::new(), Actor::program("test"));
    session.user("Begin.").unwrap();
    let parameters = Parameters { temperature: Some(0.5), ..Parameters::default() };
    let shown = ModelInput::of(&session, asking(&parameters));
    model.count(&shown, &model.encode(&shown).await.unwrap()).await
}

fn asking(parameters: &Parameters) -> RequestSpec<'_> {
    let config = Digest::of(b"config");
    RequestSpec {
        agent: "agent",
        prompt: "Be brief.",
        tools: &[],
        parameters,
        view: &StandardView::Whole,
        injected: &[],
        config,
    }
}

/// Makes one attempt. Returns the answer and the streamed text.
pub(crate) async fn ask(model: &dyn Model) -> (Result<ModelAnswer, Failure>, String) {
    let mut session = Session::create(&InMemory::new(), Actor::program("test"));
    session.user("Begin.").unwrap();
    let parameters = Parameters::default();
    let shown = ModelInput::of(&session, asking(&parameters));
    let request = model.encode(&shown).await.unwrap();
    let deltas = Mutex::new(String::new());
    let hear = |delta| {
        if let Delta::Text(text) = delta {
            deltas.lock().unwrap().push_str(&text);
        }
    };
    let answer = tokio::time::timeout(FOR_EVER, model.send(&shown, &request, &hear)).await.expect("the request hangs");
    if let Err(failure) = &answer {
        assert!(!format!("{failure:?} {failure}").contains(KEY), "{failure:?}");
    }
    (answer, deltas.into_inner().unwrap())
}

/// The failure of one attempt.
pub(crate) async fn failure(model: &dyn Model) -> Failure {
    ask(model).await.0.expect_err("the attempt should fail")
}
