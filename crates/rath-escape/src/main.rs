//! Attempts to escape from the sandbox that it runs in.
//!
//! `escape list` lists the attempts: name, description, and whether it is harmless without a sandbox. `escape NAME
//! [FACT=VALUE..]` makes one attempt and prints the result in one line: `refused: HOW` (exit code 0), `ESCAPED: WHAT`
//! (exit code 42) or `cannot try: WHY` (exit code 77). The facts come from the harness in `tests/it`, such as the path
//! of a planted secret or the port of a listener. A harmful attempt needs the fact `harm=yes`. Attempts create
//! temporary files in the directory `scratch`, which must exist.

#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "an attempt starts processes and looks into the environment")]

mod abi;
mod attempt;
mod bombs;
mod descriptors;
mod devices;
mod environment;
mod facts;
mod git;
mod identity;
mod ipc;
mod kernel;
mod lingering;
mod mounts;
mod namespaces;
mod network;
mod outside;
mod privileges;
mod processes;
mod procfs;
mod secrets;
mod settings;
mod signals;
mod sockets;
mod sys;
mod terminal;

use std::process::ExitCode;

use crate::attempt::{Attempt, Failed};
use crate::facts::Facts;

const ROOMS: &[&[Attempt]] = &[
    secrets::ATTEMPTS,
    environment::ATTEMPTS,
    procfs::ATTEMPTS,
    outside::ATTEMPTS,
    git::ATTEMPTS,
    descriptors::ATTEMPTS,
    mounts::ATTEMPTS,
    namespaces::ATTEMPTS,
    processes::ATTEMPTS,
    signals::ATTEMPTS,
    identity::ATTEMPTS,
    privileges::ATTEMPTS,
    kernel::ATTEMPTS,
    abi::ATTEMPTS,
    devices::ATTEMPTS,
    settings::ATTEMPTS,
    terminal::ATTEMPTS,
    ipc::ATTEMPTS,
    sockets::ATTEMPTS,
    network::ATTEMPTS,
    bombs::ATTEMPTS,
    lingering::ATTEMPTS,
];

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let name = words.next().unwrap_or_else(|| "list".to_owned());
    let mut all = ROOMS.iter().copied().flatten();
    if name == "list" {
        all.for_each(|attempt| println!("{attempt}"));
        return ExitCode::SUCCESS;
    }
    let Some(attempt) = all.find(|attempt| attempt.name == name) else {
        eprintln!("there is no attempt \"{name}\"; `escape list` names them");
        return ExitCode::FAILURE;
    };
    let facts = Facts::new(words);
    let (line, code) = match attempt.make(&facts) {
        Ok(what) => (format!("ESCAPED: {what}"), 42),
        Err(Failed::Refused(how)) => (format!("refused: {how}"), 0),
        Err(Failed::CannotTry(why)) => (format!("cannot try: {why}"), 77),
    };
    println!("{}", line.replace('\n', " "));
    ExitCode::from(code)
}
