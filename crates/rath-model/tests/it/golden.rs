//! The bytes of version 1 of every encoder, checked in.
//!
//! If this fails, stored requests are no longer rebuilt to what was sent. Undo the change, or make a new version of the
//! encoder; never update the files under `golden/`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rath_core::body::{Assistant, Attachment, Block, Effect, NativeTurn, System, ToolResult, User};
use rath_core::{Blob, Content, Digest, FileAccess, Message, MessageBody, Parameters, Point, ToolSpec};
use rath_model::{RequestInput, encode_with};
use serde_json::json;

const ENCODERS: [&str; 9] = [
    "anthropic-messages@1",
    "openai-responses@1",
    "openai-chat@1",
    "openai-chat/ollama@1",
    "openai-chat/vllm@1",
    "openai-chat/llama.cpp@1",
    "openai-chat/openrouter@1",
    "openai-chat/deepseek@1",
    "openai-chat/common@1",
];

fn say(text: impl Into<Content>) -> MessageBody {
    MessageBody::User(User { text: text.into(), post: None, attached: Vec::new() })
}

fn text(text: &str) -> Block {
    Block::Text { text: text.into() }
}

fn call(id: &str, arguments: &str) -> Block {
    Block::ToolUse { id: id.into(), name: "look".into(), arguments: arguments.into() }
}

fn result(call: &str, shown: Option<&str>, failed: bool) -> MessageBody {
    MessageBody::Tool(ToolResult { shown: shown.map(Into::into), failed, ..ToolResult::new(call) })
}

fn sent(api: &str, model: &str, json: &str) -> MessageBody {
    let sent = NativeTurn { api: api.into(), model: model.into(), json: json.into() };
    MessageBody::Assistant(Assistant { blocks: vec![text("As sent.")], sent: Some(sent) })
}

/// Attached files: one for each way in which files are encoded.
fn files() -> Vec<(Option<&'static str>, Blob)> {
    vec![
        (None, Blob::new(*b"\x89PNG", "image/png")),
        (Some("a.pdf"), Blob::new(*b"%PDF", "application/pdf")),
        (Some("b.json"), Blob::new(*b"{\"a\":1}", "application/json; charset=utf-8")),
        (Some("c.mp3"), Blob::new(*b"\xff\x00", "audio/mpeg")),
        (None, Blob::new(*b"\xff\x01", "audio/mpeg")),
    ]
}

/// Conversations that cover every branch of the encoders.
fn conversations() -> [Vec<MessageBody>; 3] {
    let attached =
        files().into_iter().map(|(name, blob)| Attachment { content: blob.reference, name: name.map(Into::into) });
    let attached = MessageBody::User(User { text: "See.".into(), post: None, attached: attached.collect() });
    let in_a_blob = Content::Blob(Blob::new(*b"not read", "text/plain").reference);
    let image = Block::Image { image: Blob::new(*b"png", "image/png").reference };
    let reasoning = Block::Reasoning { text: "Where?".into() };
    let branch: rath_core::SessionId = "01a1e349-ccc3-7310-a97d-ad9381b284a7".parse().unwrap();
    let marker = |why: Option<&str>| MessageBody::Marker { branch, why: why.map(Into::into) };
    let anthropic = r#"[{"type":"thinking","thinking":"","signature":"sig=="},{"type":"text","text":"As sent."}]"#;
    let chat = r#"{"role":"assistant","content":"As sent.","reasoning_details":[{"x":1.50}]}"#;
    let responses = r#"[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"}]"#;
    let system = |text: &str| MessageBody::System(System { text: text.into() });
    [
        vec![
            system("Speak English."),
            attached,
            MessageBody::Assistant(Assistant::new(vec![
                reasoning,
                text("Let me."),
                text(" "),
                image,
                call("a~1", ""),
                call("b", "{\"at\": "),
                call("c", "{\"at\": \"é\u{2028}\"}"),
                call("d", "null"),
            ])),
            say("Hurry!"),
            result("b", Some("not JSON"), true),
            result("a~1", Some("nothing here"), false),
            result("d", None, false),
            result("gone", Some("late"), false),
            system("Be kind."),
            sent("anthropic-messages", "m", anthropic),
            sent("openai-chat", "m", chat),
            sent("openai-chat/deepseek", "m", chat),
            sent("openai-responses", "m", responses),
            sent("openai-responses", "another", responses),
            MessageBody::Summary { text: "They looked.".into() },
            marker(Some("guess")),
            marker(None),
            MessageBody::Erased,
            say(in_a_blob),
            say("Thanks."),
        ],
        // The model speaks first and last; call ids repeat.
        vec![
            MessageBody::Assistant(Assistant::new(vec![text("I begin."), call("x", "{}")])),
            result("x", Some("one"), false),
            MessageBody::Assistant(Assistant::new(vec![call("x", "[1]")])),
            result("x", Some(" "), false),
            MessageBody::Assistant(Assistant::new(vec![text("Done.")])),
        ],
        Vec::new(),
    ]
}

fn parameters() -> [Parameters; 3] {
    let schema = json!({"$schema": "x", "type": "object", "properties": {
        "n": {"type": "integer", "format": "uint8", "minimum": 1}, "of": {"$ref": "#/$defs/A"}},
        "$defs": {"A": {"type": "array", "items": {"type": "object", "properties": {}}, "maxItems": 3}}});
    [
        Parameters::default(),
        Parameters {
            max_tokens: Some(300),
            temperature: Some(0.985_690_694_632_869_5),
            effort: Some("low".into()),
            answer_schema: Some(schema),
            ..Parameters::default()
        },
        Parameters { temperature: Some(0.5), effort: Some("2048".into()), ..Parameters::default() },
    ]
}

/// All requests of an encoder, one per line.
fn requests(encoder: &str) -> String {
    let spec = json!({
        "name": "look", "description": "Looks “around”.", "effect": Effect::Pure, "touches": FileAccess::Nothing,
        "schema": {"type": "object", "required": ["at"], "properties": {"at": {"type": "string", "description": "Where."}}},
    });
    let tools: [ToolSpec; 1] = [serde_json::from_value(spec).unwrap()];
    let files: BTreeMap<Digest, Arc<[u8]>> =
        files().into_iter().map(|(_, blob)| (blob.reference.digest, blob.bytes)).collect();
    let origin = Point { session: "01a1e349-ccc3-7310-a97d-ad9381b284a7".parse().unwrap(), seq: 0 };
    let mut lines = String::new();
    for said in conversations() {
        let messages: Vec<Message> = said.into_iter().map(|said| Message::new(origin, said)).collect();
        for (parameters, (model, prompt, tools)) in parameters().iter().zip([
            ("m", "Be brief.\n", &tools[..]),
            ("claude-3-5-x", " ", &[]),
            ("gpt-4o", "Go.", &tools),
        ]) {
            let request_input =
                RequestInput { agent: "agent", model, prompt, tools, parameters, messages: &messages, files: &files };
            lines += &String::from_utf8(encode_with(encoder, &request_input).unwrap().unwrap()).unwrap();
            lines.push('\n');
        }
    }
    lines
}

#[test]
fn version_1_produces_the_golden_bytes() {
    for encoder in ENCODERS {
        let name = encoder.replace('/', "-");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.jsonl"));
        let made = requests(encoder);
        let kept = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        for (number, (made, kept)) in made.lines().zip(kept.lines()).enumerate() {
            assert_eq!(made, kept, "{encoder}, request {number}: stored requests would no longer be rebuilt");
        }
        assert_eq!(made.len(), kept.len(), "{encoder}");
    }
}
