//! The smallest program: a tool, an agent, a session, and a call of `forward`.
//!
//! cargo run --example first_agent --package rath

use rath::prelude::*;
use serde_json::json;

/// Returns the temperature in a town.
#[tool(effect = "pure")]
async fn temperature(
    /// The town.
    town: String,
) -> String {
    format!("{town}: 21 °C")
}

#[tokio::main]
async fn main() -> Result<()> {
    let model = Scripted::new("scripted") // fixed answers, without an API key or network access
        .call("temperature", json!({ "town": "Bergen" }))
        .say("It is 21 °C in Bergen: leave the coat at home.");
    let agent = Agent::new("guide").prompt("You help travellers.").model(model).tools(temperature);

    let store = InMemory::new(); // or Embedded::create(path)?
    let mut session = store.create(Actor::person("ada"));
    session.user("Do I need a coat in Bergen?")?;
    let session = agent.forward(session).await?; // takes a session and returns it with the agent's work

    println!("{session}"); // all records
    Ok(())
}
