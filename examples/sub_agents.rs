//! Parallel sub-agents: an agent calls another one three times in one turn, and each call runs on its own branch of the
//! session.
//!
//! cargo run --example sub_agents --package rath

use rath::prelude::*;
use serde_json::json;

#[tokio::main]
async fn main() -> Result<()> {
    println!("{}", compare_cities().await?);
    Ok(())
}

pub(crate) async fn compare_cities() -> Result<Session> {
    // Scripted models stand in for real ones: `.model(Anthropic::new("claude-sonnet-4-5").key(key))`.
    let researcher = Agent::new("researcher")
        .prompt("Find out what the task asks for. Reply in one sentence.")
        .model(Scripted::new("small").say("It rains on 200 days a year."));

    let ask = |city: &str| json!({ "task": format!("How often does it rain in {city}?") });
    let three_at_once =
        ["Bergen", "Seattle", "London"].iter().fold(Turn::new(), |turn, city| turn.call("researcher", ask(city)));
    let lead = Agent::new("lead")
        .prompt("Compare the cities that the user names.")
        .model(Scripted::new("large").turn(three_at_once).say("They are equally wet."))
        .tools(researcher.as_tool("Answers one question about one city."));

    let mut session = InMemory::new().create(Actor::person("ada"));
    session.user("Where does it rain most: Bergen, Seattle or London?")?;
    lead.forward(session).await
}
