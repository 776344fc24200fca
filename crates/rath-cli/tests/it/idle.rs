//! Sessions that nobody works on, or another process: what becomes of words to them, and what a watcher is told.

use std::fs::File;

use serde_json::Value;

use crate::runs::{ASKING, bench, ended, lines, root, short, start, until, waits};
use crate::workspace::{Bench, command, text};

/// One agent that says one thing.
const SAYING: &str =
    "task = \"Say it.\"\n[agents.sayer]\nprompt = \"You say.\"\n[[turn]]\notherwise = true\ntext = \"Said.\"\n";

/// An agent that has a model of its own.
const AGENT: &str = "---\nname: asker\ntools: [ask_human]\n---\nYou ask.\n";

#[test]
fn no_word_is_said_twice() {
    let bench = bench(ASKING);
    let mut child = start(&bench, &["run", "-a", "run.toml", "--wait", "-q"]);
    assert!(until(&mut child, || waits(&bench).is_some()));
    let session = root(&bench).unwrap();
    bench.ok(&["cancel", &session, "--why", "enough"]);
    let (_, _, mut said) = ended(child);
    for look in ["show", "log", "steps"] {
        said += &bench.ok(&[look, &session]);
    }
    said += &bench.fails(1, &["resume", &session, "-q"]);
    assert!(said.contains("had been cancelled: person ada said so: enough"), "{said}");
    assert!(!said.contains("cancelled: cancelled"), "{said}");
    // A run that failed, too.
    bench.put("fails.toml", SAYING.replace("text = \"Said.\"", "fails = [{ why = \"broken\", retry = false }]"));
    bench.fails(1, &["run", "-a", "fails.toml", "-q"]);
    let said = bench.fails(1, &["resume", "@", "-q"]);
    assert!(said.contains("had failed: model scripted did not answer: broken"), "{said}");
}
