//! `rath`: look at sessions, branch them, merge them, verify them.

mod commands;
mod config;
mod expression;
mod graph;
mod output;
mod settings;
mod space;
mod terminal;
mod time;

use std::process::ExitCode;

use clap::Parser as _;

use crate::commands::{Answer, Cli};
use crate::settings::Settings;

/// Sessions are many small allocations; the system's allocator gives them back to the kernel too eagerly.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let settings = Settings::from_environment(&cli.global);
    match pollster::block_on(cli.command.run(&settings)) {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(3),
        Ok(Answer::Failed) => ExitCode::from(1),
        Err(error) => {
            output::complain(&settings, &error);
            ExitCode::from(if error.is::<expression::Unclear>() { 2 } else { 1 })
        }
    }
}
