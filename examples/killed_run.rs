//! A run that is killed and resumed. Run this example twice: the first process aborts inside a tool call; the second
//! one finds the run by its key and finishes it. The first tool is not called again.
//!
//! cargo run --example killed_run --package rath; cargo run --example killed_run --package rath

use std::path::Path;

use rath::prelude::*;
use serde_json::json;

/// Reserves a seat. Repeating the call makes no second reservation.
#[tool(effect = "idempotent")]
fn reserve() -> &'static str {
    println!("reserving a seat");
    "seat 12A"
}

/// Prints the ticket, on a printer that crashes the process the first time.
#[tool(effect = "idempotent")]
fn print_ticket(directory: Resource<Box<Path>>) -> Result<&'static str, std::io::Error> {
    let crashed_before = directory.join("crashed");
    if !crashed_before.exists() {
        std::fs::write(crashed_before, "")?;
        std::process::abort(); // like kill -9: nothing is cleaned up
    }
    Ok("the ticket is printed")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join("rath-killed-run");
    std::fs::create_dir_all(&directory)?;
    let store = Embedded::open(directory.join("store")).or_else(|_| Embedded::create(directory.join("store")))?;

    let model = Scripted::new("scripted").call("reserve", json!({})).call("print_ticket", json!({}));
    let agent = Agent::new("agent").model(model.say("Here is your ticket.")).tools((reserve, print_ticket));
    let agent = agent.with(directory.clone().into_boxed_path());

    let task = async |session: &mut Session| session.user("A ticket to Bergen.").map(drop);
    let session = store.run("ticket-to-bergen", Actor::program("shop"), &agent, task).await?;

    println!("{session}");
    std::fs::remove_dir_all(directory)?;
    Ok(())
}
