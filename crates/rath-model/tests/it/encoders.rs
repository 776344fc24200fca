//! Encoding requests for the three APIs.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use rath_core::body::{Assistant, Attachment, Block, Effect, NativeTurn, System, ToolResult, User};
use rath_core::{Actor, Blob, Digest, InMemory, Message, MessageBody, Parameters, Point, Session, ToolSpec};
use rath_model::chat::Dialect;
use rath_model::{RequestInput, anthropic, chat, encode_with, responses};
use serde_json::{Value, json};

type Files = BTreeMap<Digest, Arc<[u8]>>;

fn point() -> Point {
    let session = Session::create(&InMemory::new(), Actor::program("test"));
    Point { session: session.id(), seq: 0 }
}

fn messages(said: Vec<MessageBody>) -> Vec<Message> {
    let origin = point();
    said.into_iter().map(|said| Message::new(origin, said)).collect()
}

fn user(text: &str) -> MessageBody {
    attached(text, Vec::new())
}

fn attached(text: &str, attached: Vec<Attachment>) -> MessageBody {
    MessageBody::User(User { text: text.into(), post: None, attached })
}

fn system(text: &str) -> MessageBody {
    MessageBody::System(System { text: text.into() })
}

fn result(call: &str, text: &str, failed: bool) -> MessageBody {
    MessageBody::Tool(ToolResult { shown: Some(text.into()), failed, ..ToolResult::new(call) })
}

fn call(id: &str, arguments: &str) -> Block {
    Block::ToolUse { id: id.into(), name: "look".into(), arguments: arguments.into() }
}

fn turn(blocks: Vec<Block>) -> MessageBody {
    MessageBody::Assistant(Assistant::new(blocks))
}

fn text(text: &str) -> Block {
    Block::Text { text: text.into() }
}

fn sent(api: &str, blocks: Vec<Block>, json: &str) -> MessageBody {
    let sent = NativeTurn { api: api.into(), model: "m".into(), json: json.into() };
    MessageBody::Assistant(Assistant { blocks, sent: Some(sent) })
}

fn look() -> ToolSpec {
    let schema = json!({"type": "object", "properties": {"at": {"type": "string"}}});
    ToolSpec { effect: Effect::Pure, ..ToolSpec::new("look", "Looks.", schema) }
}

/// The conversation that all three APIs encode.
fn conversation(api: &str, verbatim: &str) -> Vec<Message> {
    let reasoning = Block::Reasoning { text: "Where?".into() };
    messages(vec![
        system("Speak English."),
        user("Look."),
        turn(vec![reasoning, text("Let me."), call("a~1", ""), call("b", "{\"at\": "), call("c", "{\"at\": \"x\"}")]),
        user("Hurry!"),
        result("b", "not JSON", true),
        result("a~1", "nothing here", false),
        sent(api, vec![text("Done.")], verbatim),
        user("Thanks."),
    ])
}

fn request(encoder: &str, said: &[Message], parameters: &Parameters) -> String {
    request_with(encoder, said, parameters, &Files::new())
}

fn request_with(encoder: &str, said: &[Message], parameters: &Parameters, files: &Files) -> String {
    let tools = [look()];
    let request_input = RequestInput {
        agent: "agent",
        model: "m",
        prompt: "Be brief.",
        tools: &tools,
        parameters,
        messages: said,
        files,
    };
    String::from_utf8(encode_with(encoder, &request_input).unwrap().unwrap()).unwrap()
}

#[test]
fn a_request_to_anthropic() {
    let verbatim = r#"[{"type":"thinking","thinking":"","signature":"sig=="},{"type":"text","text":"Done."}]"#;
    let parameters = Parameters { temperature: Some(0.5), ..Parameters::default() };
    let expected = [
        r#"{"model":"m","max_tokens":32000,"temperature":0.5,"#,
        r#""tools":[{"name":"look","description":"Looks.","#,
        r#""input_schema":{"properties":{"at":{"type":"string"}},"type":"object"},"#,
        r#""cache_control":{"type":"ephemeral"}}],"#,
        r#""system":[{"type":"text","text":"Be brief."},"#,
        r#"{"type":"text","text":"Speak English.","cache_control":{"type":"ephemeral"}}],"#,
        r#""messages":[{"role":"user","content":[{"type":"text","text":"Look."}]},"#,
        r#"{"role":"assistant","content":[{"type":"text","text":"Let me."},"#,
        r#"{"type":"tool_use","id":"call_0","name":"look","input":{}},"#,
        r#"{"type":"tool_use","id":"b","name":"look","input":{"arguments":"{\"at\": "}},"#,
        r#"{"type":"tool_use","id":"c","name":"look","input":{"at": "x"}}]},"#,
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_0","content":"nothing here"},"#,
        r#"{"type":"tool_result","tool_use_id":"b","content":"not JSON","is_error":true},"#,
        r#"{"type":"tool_result","tool_use_id":"c","content":"The call was not finished; it has no result.","#,
        r#""is_error":true},"#,
        r#"{"type":"text","text":"Hurry!","cache_control":{"type":"ephemeral"}}]},"#,
        r#"{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"sig=="},"#,
        r#"{"type":"text","text":"Done."}]},"#,
        r#"{"role":"user","content":[{"type":"text","text":"Thanks.","cache_control":{"type":"ephemeral"}}]}],"#,
        r#""stream":true}"#,
    ];
    let said = conversation("anthropic-messages", verbatim);
    assert_eq!(request("anthropic-messages@1", &said, &parameters), expected.concat());
}

#[test]
fn a_request_to_chat_completions() {
    let verbatim = r#"{"role":"assistant","content":"Done.","reasoning_details":[{"x":1.50}]}"#;
    let parameters = Parameters { max_tokens: Some(99), effort: Some("low".into()), ..Parameters::default() };
    let expected = [
        r#"{"model":"m","max_completion_tokens":99,"reasoning_effort":"low","#,
        r#""tools":[{"type":"function","function":{"name":"look","description":"Looks.","#,
        r#""parameters":{"properties":{"at":{"type":"string"}},"type":"object"}}}],"#,
        r#""messages":[{"role":"system","content":"Be brief.\n\nSpeak English."},"#,
        r#"{"role":"user","content":"Look."},"#,
        r#"{"role":"assistant","content":"Let me.","tool_calls":["#,
        r#"{"id":"call_0","type":"function","function":{"name":"look","arguments":"{}"}},"#,
        r#"{"id":"b","type":"function","function":{"name":"look","arguments":"{\"arguments\":\"{\\\"at\\\": \"}"}},"#,
        r#"{"id":"c","type":"function","function":{"name":"look","arguments":"{\"at\": \"x\"}"}}]},"#,
        r#"{"role":"tool","content":"nothing here","tool_call_id":"call_0"},"#,
        r#"{"role":"tool","content":"Failed: not JSON","tool_call_id":"b"},"#,
        r#"{"role":"tool","content":"Failed: The call was not finished; it has no result.","tool_call_id":"c"},"#,
        r#"{"role":"user","content":"Hurry!"},"#,
        r#"{"role":"assistant","content":"Done.","reasoning_details":[{"x":1.50}]},"#,
        r#"{"role":"user","content":"Thanks."}],"#,
        r#""stream":true,"stream_options":{"include_usage":true}}"#,
    ];
    let said = conversation("openai-chat", verbatim);
    assert_eq!(request("openai-chat@1", &said, &parameters), expected.concat());
    let local = request("openai-chat/ollama@1", &said, &parameters);
    assert!(local.contains(r#""max_tokens":99"#), "{local}");
    assert!(
        local.contains(r#"{"role":"assistant","content":"Done."}"#),
        "a turn of another dialect is rebuilt: {local}"
    );
}

#[test]
fn a_request_to_responses() {
    let verbatim = concat!(
        r#"[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"},"#,
        r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Done."}]}]"#
    );
    let parameters = Parameters { max_tokens: Some(99), effort: Some("low".into()), ..Parameters::default() };
    let items = format!("{},", &verbatim[1..verbatim.len() - 1]);
    let expected = [
        r#"{"model":"m","max_output_tokens":99,"reasoning":{"effort":"low"},"#,
        r#""instructions":"Be brief.\n\nSpeak English.","#,
        r#""tools":[{"type":"function","name":"look","description":"Looks.","#,
        r#""parameters":{"properties":{"at":{"type":"string"}},"type":"object"},"strict":false}],"#,
        r#""input":[{"role":"user","content":"Look."},"#,
        r#"{"role":"assistant","content":"Let me."},"#,
        r#"{"type":"function_call","call_id":"call_0","name":"look","arguments":"{}"},"#,
        r#"{"type":"function_call","call_id":"b","name":"look","arguments":"{\"arguments\":\"{\\\"at\\\": \"}"},"#,
        r#"{"type":"function_call","call_id":"c","name":"look","arguments":"{\"at\": \"x\"}"},"#,
        r#"{"type":"function_call_output","call_id":"call_0","output":"nothing here"},"#,
        r#"{"type":"function_call_output","call_id":"b","output":"Failed: not JSON"},"#,
        r#"{"type":"function_call_output","call_id":"c","#,
        r#""output":"Failed: The call was not finished; it has no result."},"#,
        r#"{"role":"user","content":"Hurry!"},"#,
        &items,
        r#"{"role":"user","content":"Thanks."}],"#,
        r#""include":["reasoning.encrypted_content"],"store":false,"stream":true}"#,
    ];
    let said = conversation("openai-responses", verbatim);
    assert_eq!(request("openai-responses@1", &said, &parameters), expected.concat());
}

#[test]
fn call_ids_are_made_unique() {
    let said = messages(vec![
        user("Look."),
        turn(vec![call("x", "{}")]),
        result("x", "one", false),
        sent("anthropic-messages", vec![call("x", "{}")], r#"[{"type":"tool_use","id":"x","name":"look","input":{}}]"#),
        result("x", "two", false),
    ]);
    let request: Value = serde_json::from_str(&request(anthropic::ENCODER, &said, &Parameters::default())).unwrap();
    let ids: Vec<&Value> = [1, 2, 3, 4].map(|at| &request["messages"][at]["content"][0]).to_vec();
    assert_eq!((&ids[0]["id"], &ids[1]["tool_use_id"], &ids[1]["content"]), (&json!("x"), &json!("x"), &json!("one")));
    assert_eq!(ids[2]["id"], ids[3]["tool_use_id"]);
    assert_ne!(ids[2]["id"], "x", "a native turn whose call id is taken is rebuilt");
    assert_eq!(ids[3]["content"], "two");
}

#[test]
fn requests_start_and_end_with_a_user_message() {
    let said = messages(vec![turn(vec![text("I begin.")]), turn(vec![text("And end. ")]), turn(vec![text(" \n")])]);
    let request: Value = serde_json::from_str(&request(anthropic::ENCODER, &said, &Parameters::default())).unwrap();
    let roles: Vec<_> = request["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    assert_eq!(request["messages"][1]["content"].as_array().unwrap().len(), 2);
}

#[test]
fn thinking_effort_is_a_budget_or_a_level() {
    let asked = |effort: &str| {
        let (effort, temperature) = (Some(effort.into()), Some(0.2));
        let parameters = Parameters { effort, temperature, max_tokens: Some(3000), ..Parameters::default() };
        let request = request(anthropic::ENCODER, &messages(vec![user("Think.")]), &parameters);
        let request: Value = serde_json::from_str(&request).unwrap();
        [&request["thinking"], &request["output_config"], &request["temperature"]].map(Clone::clone)
    };
    assert_eq!(asked("2048"), [json!({"type": "enabled", "budget_tokens": 2048}), Value::Null, Value::Null]);
    assert_eq!(asked("9999")[0]["budget_tokens"], 2999);
    assert_eq!(asked("high"), [json!({"type": "adaptive"}), json!({"effort": "high"}), Value::Null]);
    assert_eq!(asked("none"), [json!({"type": "disabled"}), Value::Null, json!(0.2)]);
}

fn words() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just(" ".into()), Just("null".into()), Just("{\"a\":1}".into()), ".{0,12}"]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]", Just(String::new()), "\\PC{0,50}"]
}

fn block() -> impl Strategy<Value = Block> {
    prop_oneof![
        words().prop_map(|text| Block::Text { text: text.into() }),
        words().prop_map(|text| Block::Reasoning { text: text.into() }),
        (name(), words()).prop_map(|(id, arguments)| call(&id, &arguments)),
        Just(Block::Image { image: Blob::new(&b"png"[..], "image/png").reference }),
    ]
}

fn said() -> impl Strategy<Value = MessageBody> {
    let api = prop_oneof![
        Just("anthropic-messages".to_owned()),
        Just("openai-chat".to_owned()),
        Just("openai-responses".to_owned())
    ];
    let json =
        prop_oneof![Just("[]".to_owned()), Just("[{\"type\":\"x\"}]".to_owned()), Just("{}".to_owned()), words()];
    let blocks = || prop::collection::vec(block(), 0..4);
    prop_oneof![
        words().prop_map(|text| system(&text)),
        words().prop_map(|text| user(&text)),
        words().prop_map(|text| MessageBody::Summary { text: text.into() }),
        Just(MessageBody::Marker { branch: point().session, why: None }),
        Just(MessageBody::Erased),
        blocks().prop_map(turn),
        (api, blocks(), json).prop_map(|(api, blocks, json)| sent(&api, blocks, &json)),
        (name(), words(), any::<bool>()).prop_map(|(call, text, failed)| result(&call, &text, failed)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn encoding_any_conversation_is_deterministic(said in prop::collection::vec(said(), 0..12), prompt in words()) {
        let (said, tools, parameters, files) = (messages(said), [look()], Parameters::default(), Files::new());
        let request_input = RequestInput { agent: "agent", model: "m", prompt: &prompt, tools: &tools, parameters: &parameters, messages: &said, files: &files };
        let encoders = Dialect::ALL.map(Dialect::encoder);
        for encoder in encoders.into_iter().chain([anthropic::ENCODER, responses::ENCODER]) {
            let bytes = encode_with(encoder, &request_input).unwrap().unwrap();
            let request: Value = serde_json::from_slice(&bytes).unwrap();
            prop_assert_eq!(&bytes, &encode_with(encoder, &request_input).unwrap().unwrap());
            if encoder == anthropic::ENCODER {
                alternates(&request)?;
            }
        }
        prop_assert!(encode_with("unknown@1", &request_input).is_none());
        prop_assert!(chat::encode(&request_input, Dialect::OpenAiCompatible).is_ok());
    }
}

#[test]
fn images_and_documents_are_attached() {
    let blobs = [
        Blob::new(*b"png", "image/png"),
        Blob::new(*b"pdf", "application/pdf"),
        Blob::new(*b"words", "text/plain; charset=utf-8"),
        Blob::new(*b"\xff\x00", "audio/mpeg"),
    ];
    let files: Files = blobs.iter().map(|blob| (blob.reference.digest, blob.bytes.clone())).collect();
    let of =
        |blob: &Blob, name: Option<&str>| Attachment { content: blob.reference.clone(), name: name.map(Into::into) };
    let [png, pdf, words, sound] = &blobs;
    let all = vec![of(png, None), of(pdf, Some("a.pdf")), of(words, Some("b.txt")), of(sound, None)];
    let said = messages(vec![attached("Look.", all), user("Well?"), attached("", vec![of(png, None)])]);
    let parts = |encoder, pointer: &str| -> Value {
        let request = request_with(encoder, &said, &Parameters::default(), &files);
        serde_json::from_str::<Value>(&request).unwrap().pointer(pointer).unwrap().clone()
    };
    let cannot = "[attached: audio/mpeg, 2 bytes]";
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"}});
    let text = |title: &str, data: &str| {
        json!({"type": "document", "title": title,
            "source": {"type": "text", "media_type": "text/plain", "data": data}})
    };
    let mut last = image.clone();
    last["cache_control"] = json!({"type": "ephemeral"});
    let wanted = json!([
        {"type": "text", "text": "Look."},
        image,
        {"type": "document", "title": "a.pdf",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "cGRm"}},
        text("b.txt", "words"),
        text("audio.mpeg", cannot),
        {"type": "text", "text": "Well?"},
        last,
    ]);
    assert_eq!(parts(anthropic::ENCODER, "/messages/0/content"), wanted);
    let url = "data:image/png;base64,cG5n";
    let pdf = "data:application/pdf;base64,cGRm";
    let wanted = json!([
        {"type": "text", "text": "Look."},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": pdf}},
        {"type": "text", "text": "b.txt:\n\nwords"},
        {"type": "text", "text": format!("audio.mpeg:\n\n{cannot}")},
        {"type": "text", "text": "Well?"},
        {"type": "image_url", "image_url": {"url": url}},
    ]);
    assert_eq!(parts(Dialect::OpenAi.encoder(), "/messages/1/content"), wanted);
    let files = json!([
        {"type": "input_image", "image_url": url},
        {"type": "input_file", "filename": "a.pdf", "file_data": pdf},
        {"type": "input_text", "text": "b.txt:\n\nwords"},
        {"type": "input_text", "text": format!("audio.mpeg:\n\n{cannot}")},
    ]);
    let wanted = json!([
        {"role": "user", "content": "Look."},
        {"role": "user", "content": files},
        {"role": "user", "content": "Well?"},
        {"role": "user", "content": [{"type": "input_image", "image_url": url}]},
    ]);
    assert_eq!(parts(responses::ENCODER, "/input"), wanted);
}

#[test]
fn images_of_a_tool_result_follow_the_results_of_the_turn() {
    let png = Blob::new(*b"png", "image/png");
    let files: Files = BTreeMap::from([(png.reference.digest, png.bytes.clone())]);
    let attached = vec![Attachment { content: png.reference.clone(), name: None }];
    let shown = MessageBody::Tool(ToolResult { shown: Some("Here.".into()), attached, ..ToolResult::new("a") });
    let turn = turn(vec![call("a", "{}"), call("b", "{}")]);
    let said = messages(vec![user("Look."), turn, shown, result("b", "Nothing.", false)]);
    let request = |encoder| -> Value {
        serde_json::from_str(&request_with(encoder, &said, &Parameters::default(), &files)).unwrap()
    };
    let texts = |value: &Value, key: &str| -> Vec<String> {
        let items = value.as_array().unwrap().iter();
        items.map(|item| item[key].as_str().unwrap_or_default().to_owned()).collect()
    };
    let shown_text = "Here.\n[attached: image/png, 3 bytes]";
    let request_to_anthropic = request(anthropic::ENCODER);
    let content = request_to_anthropic["messages"].as_array().unwrap().last().unwrap()["content"].clone();
    assert_eq!(texts(&content, "type"), ["tool_result", "tool_result", "text", "image"]);
    assert!(content[0].to_string().contains(&json!(shown_text).to_string()), "{content}");
    assert_eq!(content[2]["text"], "What is attached to the result of call a:");
    assert_eq!(content[3]["source"]["data"], "cG5n");
    let in_chat = request(Dialect::OpenAi.encoder())["messages"].clone();
    assert!(texts(&in_chat, "role").ends_with(&["assistant", "tool", "tool", "user"].map(String::from)), "{in_chat}");
    let last = in_chat.as_array().unwrap().last().unwrap()["content"].clone();
    assert_eq!(texts(&last, "type"), ["text", "image_url"]);
    let to_responses = request(responses::ENCODER)["input"].clone();
    assert!(
        to_responses
            .to_string()
            .ends_with(r#"[{"image_url":"data:image/png;base64,cG5n","type":"input_image"}],"role":"user"}]"#),
        "{to_responses}"
    );
    assert!(to_responses.to_string().contains(&json!(shown_text).to_string()), "{to_responses}");
}

#[test]
fn an_answer_schema_is_encoded() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}});
    let parameters = Parameters { answer_schema: Some(schema), ..Parameters::default() };
    let closed =
        |n: Value| json!({"type": "object", "properties": {"n": n}, "required": ["n"], "additionalProperties": false});
    let said = messages(vec![user("How many?")]);
    let field = |encoder, key: &str, parameters: &Parameters| -> Value {
        serde_json::from_str::<Value>(&request(encoder, &said, parameters)).unwrap()[key].clone()
    };
    let plain = closed(json!({"type": "integer"}));
    let wanted = json!({"format": {"type": "json_schema", "schema": plain}});
    assert_eq!(field(anthropic::ENCODER, "output_config", &parameters), wanted);
    let both = Parameters { effort: Some("low".into()), ..parameters.clone() };
    assert_eq!(field(anthropic::ENCODER, "output_config", &both)["effort"], "low");
    let limited = closed(json!({"type": "integer", "minimum": 1}));
    let wanted = json!({"name": "answer", "strict": true, "schema": limited});
    let format = field(Dialect::Ollama.encoder(), "response_format", &parameters);
    assert_eq!((&format["type"], &format["json_schema"]), (&json!("json_schema"), &wanted));
    let wanted = json!({"format": {"type": "json_schema", "name": "answer", "strict": true, "schema": limited}});
    assert_eq!(field(responses::ENCODER, "text", &parameters), wanted);
}

/// Checks that roles alternate, no message is empty, and every call is answered in the next message.
fn alternates(request: &Value) -> Result<(), TestCaseError> {
    let messages = request["messages"].as_array().unwrap();
    for (at, message) in messages.iter().enumerate() {
        prop_assert_eq!(&message["role"], if at % 2 == 0 { "user" } else { "assistant" });
        let content = message["content"].as_array().unwrap();
        prop_assert!(!content.is_empty());
        let calls: Vec<&Value> = content.iter().filter(|block| block["type"] == "tool_use").map(|b| &b["id"]).collect();
        if !calls.is_empty() {
            let next = messages[at + 1]["content"].as_array().unwrap();
            let answered: Vec<&Value> = next.iter().take(calls.len()).map(|block| &block["tool_use_id"]).collect();
            prop_assert_eq!(calls, answered);
        }
    }
    prop_assert_eq!(messages.len() % 2, 1, "the last message is from the user");
    let marks = request.to_string().matches("cache_control").count();
    prop_assert!(marks <= 4);
    Ok(())
}
