//! A tool, an agent, a session, `forward`.
//!
//! cargo run --example first_agent --package rath

use rath::prelude::*;
use serde_json::json;

/// Says how warm it is somewhere.
#[tool(effect = "pure")]
async fn temperature(
    /// The town.
    town: String,
) -> String {
    format!("{town}: 21 °C")
}

#[tokio::main]
async fn main() -> Result<()> {
    let model = Scripted::new("scripted") // no key, no network: the same answers every time
        .call("temperature", json!({ "town": "Bergen" }))
        .say("It is 21 °C in Bergen: leave the coat at home.");
    let agent = Agent::new("guide").prompt("You help travellers.").model(model).tools(temperature);

    let store = Memory::new(); // or Embedded::create(path)?
    let mut session = store.create(Actor::person("ada"));
    session.user("Do I need a coat in Bergen?")?;
    let session = agent.forward(session).await?; // the whole model: Session in, Session out

    println!("{session}"); // everything that happened, on the record
    Ok(())
}
