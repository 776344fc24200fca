//! The command reference, docs/reference/cli.md: generated from the command line's own help.

use std::fmt::Write as _;
use std::path::Path;

use super::{Cli, GROUPS, help};

const INTRODUCTION: &str = "\
# Command line

<!-- Generated from the help of `rath`: RATH_UPDATE_TRANSCRIPTS=1 cargo test -p rath-cli reference -->

`rath COMMAND --help` shows the same text. Every command also takes the global options.

";

/// The whole page.
fn page() -> String {
    let mut root = Cli::described().term_width(100);
    root.build();
    let mut text = INTRODUCTION.to_owned();
    text.push_str("## Global options\n\n```text\n");
    let help = root.clone().render_long_help().to_string();
    let options = help.split("Global Options:\n").nth(1).unwrap_or_default();
    let options = options.split("\nExit codes:").next().unwrap_or_default();
    text.push_str(options.trim_end());
    text.push_str("\n```\n\n");
    for (group, names) in GROUPS {
        let _ = writeln!(text, "## {group}\n");
        for name in *names {
            let command = root.find_subcommand(name).expect("each name in GROUPS is a command");
            section(&mut text, command, &format!("rath {name}"), 3);
        }
    }
    text.push_str("## Topics\n\nThese texts are in the binary: `rath help TOPIC`.\n\n");
    for (name, topic) in help::TOPICS {
        let _ = writeln!(text, "### {name}\n\n```text\n{}\n```\n", topic.trim_end());
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn section(text: &mut String, command: &clap::Command, name: &str, level: usize) {
    // Short help is compact: one line an option. It shows all options here.
    let mut command = command.clone().mut_args(|argument| argument.hide_short_help(false)).term_width(100);
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let help = command.render_help().to_string();
    let help = help.find("Usage:").map_or("", |at| &help[at..]);
    // Every command has the global options, which have a section of their own.
    let (before, after) = help.split_once("\nGlobal Options:").unwrap_or((help, ""));
    let after = after.split("\n\n").skip_while(|part| part.is_empty() || part.trim_start().starts_with('-'));
    let after: Vec<_> = after.filter(|part| !part.starts_with(' ')).collect();
    let mut shown = before.trim_end().to_owned();
    if !after.is_empty() {
        shown.push_str("\n\n");
        shown.push_str(after.join("\n\n").trim_end());
    }
    let lines: Vec<_> = shown.lines().map(str::trim_end).collect();
    let (heading, about) = ("#".repeat(level), about.trim_end());
    let _ = writeln!(text, "{heading} `{name}`\n\n{about}\n\n```text\n{}\n```\n", lines.join("\n"));
    for subcommand in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        if subcommand.get_name() != "help" {
            section(text, subcommand, &format!("{name} {}", subcommand.get_name()), level + 1);
        }
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the test reads whether it shall write the page")]
fn the_command_reference_is_up_to_date() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    let page = page();
    if std::env::var_os("RATH_UPDATE_TRANSCRIPTS").is_some() {
        std::fs::write(&file, page).unwrap();
        return;
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == page,
        "docs/reference/cli.md is stale: RATH_UPDATE_TRANSCRIPTS=1 cargo test -p rath-cli reference"
    );
}
