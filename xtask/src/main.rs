//! The project's own commands: `cargo xtask test [--fast|--nightly]`, `cargo xtask bench AREA [--json] [--quick]`,
//! `cargo xtask fuzz [TARGET] [--seconds N]`, `cargo xtask providers [DIR]`.

#![allow(clippy::disallowed_methods, reason = "running commands is what this program is for")]

mod bench;
mod binaries;
mod crates;
mod fuzz;
mod providers;
mod run;
mod test;
mod tools;

use std::process::ExitCode;

use test::Extent;

const HELP: &str = "\
cargo xtask test            install what the tests need, then run all of them
cargo xtask test --fast     lints and most tests, with a tenth of the iterations, for use while editing
cargo xtask test --nightly  all tests with 20 times the iterations, then fuzzing
cargo xtask bench ledger    benchmark records and sessions, and compare with other programs and the machine's limits
cargo xtask bench placement benchmark files and commands, and compare with git
cargo xtask bench loop      benchmark agent turns, requests, answers and the terminal, and compare with other programs
cargo xtask bench compose   benchmark branches that are joined, and what a combinator costs, and compare with LangGraph
    --json                  one object a row
    --quick                 small sizes, to see that it runs
    --no-peers              only our side and the limits
    --keep                  keep the figures in benches/baseline.json; each run names the rows that got worse since
cargo xtask fuzz [TARGET]   feed hostile input to what reads input: record, bundle, import, expression, sse, shell
    --seconds N             for so long each
cargo xtask providers [DIR] read recorded answers of providers and compare them with what the vendors' clients read";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match &words[..] {
        ["test"] => test::test(Extent::Whole).map(|()| true),
        ["test", "--fast"] => test::test(Extent::Fast).map(|()| true),
        ["test", "--nightly"] => test::test(Extent::Nightly).map(|()| true),
        ["bench", area, flags @ ..] => bench::area(area, flags).map(|()| true),
        ["fuzz", words @ ..] => fuzz::fuzz(words).map(|()| true),
        ["providers"] => providers::providers(None),
        ["providers", folder] => providers::providers(Some(folder)),
        [] | ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            Ok(true)
        }
        other => Err(anyhow::anyhow!("unknown: {}\n\n{HELP}", other.join(" "))),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
