//! The project's own commands: `cargo xtask test [--fast]`, `cargo xtask bench AREA [--json] [--quick]`.

#![allow(clippy::disallowed_methods, reason = "running commands is what this program is for")]

mod bench;
mod rooms;
mod run;
mod test;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask test            install what the tests need, then run all of them
cargo xtask test --fast     the warm loop: tests and lints, under a minute
cargo xtask bench ledger    measure records and sessions against peers and the machine's limits
cargo xtask bench placement measure files and commands, against git too
cargo xtask bench loop      measure turns of an agent, in memory and on disk, against peers
    --json                  one object a row
    --quick                 small sizes, to see that it runs
    --no-peers              only our side and the limits";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match &words[..] {
        ["test"] => test::all(),
        ["test", "--fast"] => test::fast(),
        ["bench", area, flags @ ..] => bench::area(area, flags),
        [] | ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            Ok(())
        }
        other => Err(anyhow::anyhow!("unknown: {}\n\n{HELP}", other.join(" "))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
