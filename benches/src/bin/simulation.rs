//! Measures how many schedules of the protocol simulation one core runs per second.

#![allow(clippy::disallowed_methods, reason = "a benchmark owns its clock")]

use std::time::Instant;

use anyhow::Result;
use rath_bench::{Better, Row, median};
use rath_testkit::simulation::explore;

const ROUNDS: u64 = 5;

fn main() -> Result<()> {
    let quick = std::env::args().any(|word| word == "--quick");
    let many = if quick { 2_000 } else { 100_000 };
    let mut rates = Vec::new();
    for round in 0..ROUNDS {
        let begun = Instant::now();
        explore(round * many..(round + 1) * many, None).map_err(|failure| anyhow::anyhow!("{failure}"))?;
        rates.push(many as f64 / begun.elapsed().as_secs_f64());
    }
    let name = "simulated schedules of lease, commit, post and crash, one core";
    Row::new("ledger", name, "/s", median(rates), 3_000.0, Better::More).print();
    Ok(())
}
