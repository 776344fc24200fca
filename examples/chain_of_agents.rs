//! Two agents with a real provider, one after the other: the first drafts, the second edits.
//!
//! cargo run --example chain_of_agents --package rath -- YOUR_ANTHROPIC_KEY

use rath::model::Anthropic;
use rath::model::StandardView;
use rath::prelude::*;
use rath::workflow::chain;

#[tokio::main]
async fn main() -> Result<()> {
    let Some(key) = std::env::args().nth(1) else {
        println!("usage: chain_of_agents YOUR_ANTHROPIC_KEY");
        return Ok(());
    };
    let model = Anthropic::new("claude-sonnet-4-5").key(key);
    let drafter = Agent::new("drafter")
        .prompt("Write one paragraph that answers the question for an engineer in a hurry.")
        .model(model.clone())
        .budget(Budget::turns(3).usd(0.10));
    let editor = Agent::new("editor")
        .prompt("Shorten the draft to two sentences. Reply with the two sentences only.")
        .model(model)
        .view(StandardView::LastAnswer); // the editor is shown the draft, not the question

    let store = InMemory::new(); // or Embedded::create(path)?
    let mut session = store.create(Actor::person("ada"));
    session.user("Why is a B-tree a good index for a database on disk?")?;
    let session = chain("answer").then(drafter).then(editor).forward(session).await?;

    println!("{}", session.text().await?.unwrap_or_default());
    println!("{}", session.usage());
    Ok(())
}
