//! A tool call that needs a person's approval, in a program without a terminal. The run stops at the question, a person
//! answers it later, and the run is resumed.
//!
//! cargo run --example approvals --package rath

use rath::control::{Answer, Control, Error};
use rath::prelude::*;
use serde_json::json;

/// Pays an invoice.
#[tool(effect = "irreversible")]
fn pay(
    /// The number of the invoice.
    invoice: u32,
) -> String {
    format!("invoice {invoice} is paid")
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    println!("{}", pay_with_approval().await?);
    Ok(())
}

pub(crate) async fn pay_with_approval() -> Result<String, Error> {
    let model = Scripted::new("scripted").call("pay", json!({ "invoice": 17 })).say("Done.");
    let clerk = Agent::new("clerk").model(model).tools(pay).tool_policy("pay", Decision::Ask);
    let store = InMemory::new(); // with Embedded::create(path)? the answer may come next week, from another program
    let run = async || {
        let task = async |session: &mut Session| session.user("Pay invoice 17.").map(drop);
        store.run("invoice-17", Actor::program("shop"), &clerk, task).await
    };

    if let Err(error) = run().await {
        println!("{error}"); // the run waits for an answer; nothing was paid
    }

    let ada = Control::new(&store, Actor::person("ada"));
    for question in ada.questions().await? {
        println!("{}", question.shown);
        ada.answer(&question, Answer::Yes).await?;
    }

    let session = run().await?; // the same key: the run continues after the answer and pays once
    Ok(session.to_string())
}
