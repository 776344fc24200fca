//! A tool with its own state outside the workspace: a bank in SQLite. A transfer is made only once even if its call is
//! repeated, because the idempotency key of the call is stored with it. An account is closed only if a person approves.
//!
//! cargo run --example ledger_tool --package rath

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rath::ErrorKind;
use rath::body::{OutsideEffect, ToolFinished};
use rath::control::{Answer, Control};
use rath::prelude::*;
use rath::store::Scan;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};
use serde_json::json;

type Failed = Box<dyn std::error::Error>;

pub(crate) struct Bank(Mutex<Connection>);

#[tool]
impl Bank {
    pub(crate) fn open(path: &Path) -> rusqlite::Result<Self> {
        let database = Connection::open(path)?;
        database.execute_batch(
            "CREATE TABLE IF NOT EXISTS accounts(name TEXT PRIMARY KEY, cents INTEGER NOT NULL CHECK (cents >= 0));
             CREATE TABLE IF NOT EXISTS transfers(key TEXT PRIMARY KEY, effects TEXT NOT NULL);
             INSERT INTO accounts SELECT * FROM (VALUES ('ada', 10000), ('bob', 0))
                 WHERE NOT EXISTS (SELECT 1 FROM accounts);",
        )?;
        Ok(Self(Mutex::new(database)))
    }

    /// Returns the balance of an account in cents.
    #[tool(effect = "pure")]
    async fn balance(&self, account: String) -> Result<Json<i64>, rusqlite::Error> {
        let database = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        database.query_row("SELECT cents FROM accounts WHERE name = ?1", [account], |row| row.get(0)).map(Json)
    }

    /// Moves cents from one account to another.
    #[tool(effect = "idempotent")]
    async fn transfer(&self, from: String, to: String, cents: u32, call: &Call) -> Result<ToolOutcome, Failed> {
        let mut database = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let transfer = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let (key, find) = (call.key.to_string(), "SELECT effects FROM transfers WHERE key = ?1");
        let known: Option<String> = transfer.query_row(find, [&key], |row| row.get(0)).optional()?;
        let outcome = ToolOutcome::done(format!("moved {cents} cents from {from} to {to}"));
        if let Some(effects) = known {
            // The transfer was made before a crash; only its record was lost.
            let effects: Vec<OutsideEffect> = serde_json::from_str(&effects)?;
            return Ok(effects.into_iter().fold(outcome, ToolOutcome::with_effect));
        }
        let mut effects = Vec::new();
        for (account, change) in [(from, -i64::from(cents)), (to, i64::from(cents))] {
            let add = "UPDATE accounts SET cents = cents + ?2 WHERE name = ?1 RETURNING cents";
            let after: i64 = transfer.query_row(add, (&account, change), |row| row.get(0))?;
            effects.push(effect(&account, after - change, Some(after)));
        }
        transfer.execute("INSERT INTO transfers VALUES (?1, ?2)", (&key, serde_json::to_string(&effects)?))?;
        transfer.commit()?; // stores the balances and the key together
        Ok(effects.into_iter().fold(outcome, ToolOutcome::with_effect))
    }

    /// Closes an account permanently.
    #[tool(effect = "irreversible")]
    async fn close_account(&self, account: String) -> Result<ToolOutcome, rusqlite::Error> {
        let database = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let remove = "DELETE FROM accounts WHERE name = ?1 RETURNING cents";
        let cents = database.query_row(remove, [&account], |row| row.get(0))?;
        Ok(ToolOutcome::done(format!("closed {account}")).with_effect(effect(&account, cents, None)))
    }
}

/// Describes the change of an account. It is reversible unless the account was closed.
fn effect(account: &str, before: i64, after: Option<i64>) -> OutsideEffect {
    let (system, object, before) = ("sqlite:bank".into(), format!("account/{account}"), Some(before.to_string()));
    OutsideEffect { system, object, before, reversible: after.is_some(), after: after.map(|cents| cents.to_string()) }
}

/// An agent that moves money.
pub(crate) fn clerk(bank: Bank) -> Agent {
    let script = Scripted::new("scripted")
        .call("balance", json!({ "account": "ada" }))
        .call("transfer", json!({ "from": "ada", "to": "bob", "cents": 2500 }))
        .call("transfer", json!({ "from": "ada", "to": "bob", "cents": 1000000 }))
        .call("close_account", json!({ "account": "bob" }))
        .say("25 dollars moved; there was not enough for the rest.");
    Agent::new("clerk").model(script).tools(bank).tool_policy("close_account", Decision::Ask)
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let dir = tempfile::tempdir()?;
    let (store, bank) = (InMemory::new(), dir.path().join("bank.db"));
    let run = async || {
        let clerk = clerk(Bank::open(&bank).map_err(|error| ErrorKind::Workflow(error.into()))?);
        let input = async |session: &mut Session| session.user("Move all of it, and close the account.").map(|_| ());
        store.run("monday", Actor::program("example"), &clerk, input).await
    };
    // The first call stops at a question.
    let Err(waiting) = run().await else { return Err("the run asked no question".into()) };
    let id = waiting.sessions()[0].id();
    drop(waiting);
    let ada = Control::new(&store, Actor::person("ada"));
    for question in ada.questions().await? {
        ada.answer_because(&question, Answer::No, Some("bob stays".into())).await?;
    }
    // The second call continues after the answer.
    for message in run().await?.context().await? {
        println!("{message}");
    }
    println!("\nRecorded changes outside the workspace:");
    for record in store.scan(Scan::session(id, 0, u64::MAX - 1)).await?.records {
        let finished = record.body::<ToolFinished>();
        for OutsideEffect { system, object, before, after, .. } in finished.map(|end| end.effects).unwrap_or_default() {
            println!("  {system} {object}: {} → {}", before.unwrap_or_default(), after.unwrap_or_default());
        }
    }
    Ok(())
}
