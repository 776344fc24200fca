//! Two opinions and one decision: fork, work on both branches, keep one, and print the context and the history.
//!
//! cargo run --example two_opinions --package rath

use rath::prelude::*;

fn main() -> Result<()> {
    pollster::block_on(async {
        let store = InMemory::new();
        let session = ask_two(store.clone()).await?;
        println!("{session}");
        println!("The model is shown:");
        for message in session.context().await? {
            println!("{message}");
        }
        println!("\nThe history keeps everything:");
        for record in session.history().await?.all().await? {
            println!("  {}  {}", record.point(), rath::summary::of(&record));
        }
        Ok(())
    })
}

async fn ask_two(store: std::sync::Arc<dyn Store>) -> Result<Session> {
    let mut session = store.create(Actor::person("ada"));
    session.user("Which colour for the door?")?;

    let mut warm = session.fork("warm colours");
    warm.act_as(Actor::agent("warm"));
    warm.assistant("Red.")?;
    let mut cold = session.fork("cold colours");
    cold.act_as(Actor::agent("cold"));
    cold.assistant("Blue.")?;

    let kept = warm.id();
    session.merge([warm, cold], How::keep(kept, "the house is white")).await
}
