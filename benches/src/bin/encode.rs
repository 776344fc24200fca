//! Measures encoding the request of a long conversation, compared with only serializing its JSON.

#![allow(clippy::disallowed_methods, reason = "a benchmark owns its clock")]

use std::collections::BTreeMap;
use std::hint::black_box;

use anyhow::{Context as _, Result};
use pollster::block_on;
use rath_bench::{Better, Row, median, millis, time};
use rath_core::body::{Assistant, Block};
use rath_core::{Actor, Encoded, InMemory, Message, Parameters, Session};
use rath_model::{RequestInput, encode_with};
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MESSAGES: usize = 1000;
const ENCODERS: [(&str, &str); 3] =
    [("Messages", "anthropic-messages@2"), ("Chat", "openai-chat@2"), ("Responses", "openai-responses@2")];

fn main() -> Result<()> {
    let messages = conversation()?;
    let (parameters, files) = (Parameters::default(), BTreeMap::new());
    let prompt = "You are careful with files. Say what you do, and do no more than you were asked for.";
    let request_input = RequestInput {
        agent: "agent",
        model: "m",
        prompt,
        tools: &[],
        parameters: &parameters,
        messages: &messages,
        files: &files,
    };
    for (name, encoder) in ENCODERS {
        let encode = || -> Result<Encoded> {
            Ok(Encoded::new(encode_with(encoder, &request_input).context("there is no such encoder")??))
        };
        let request = encode()?;
        let value: Value = serde_json::from_slice(request.body())?;
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        for _ in 0..101 {
            floor.push(millis(time(|| black_box(serde_json::to_vec(&value))).0));
            ours.push(millis(time(|| black_box(encode())).0));
        }
        let (ours, floor) = (median(ours), median(floor));
        let name = format!("encode a request of {MESSAGES} messages, digest included: {name}");
        Row::new("loop", &name, "ms", ours, 2.0 * floor, Better::Less).floor(floor).print();
    }
    Ok(())
}

/// The conversation: a quarter user messages, a quarter answers, and half tool calls with results.
fn conversation() -> Result<Vec<Message>> {
    let mut session = Session::create(&InMemory::new(), Actor::program("bench"));
    for round in 0..MESSAGES / 4 {
        let id = format!("call_{round}");
        session.user(format!("Please read \"file {round}\" and tell me what is in it.\nBe brief. Grüße, 王."))?;
        let arguments = json!({"path": format!("src/dir/file_{round}.rs"), "from": 1, "lines": 200}).to_string();
        session.append(Assistant::new(vec![
            Block::Text { text: "I look at it.".into() },
            Block::ToolUse { id: id.clone(), name: "read".into(), arguments: arguments.into() },
        ]))?;
        session.tool_result(id, "fn main() {\n    println!(\"hello\");\n}\n".repeat(12))?;
        session.assistant("It prints a greeting, \"hello\", a dozen times. ".repeat(4))?;
    }
    Ok(block_on(session.context())?)
}
