//! What these tests share.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use pollster::block_on;
use rath_core::body::{Assistant, Block, ModelResponded};
use rath_core::verify::Report;
use rath_core::{Actor, How, Session, Store, Usage};
use rath_store::Embedded;
use tempfile::TempDir;

/// An empty store in a directory of its own.
pub(crate) fn fresh() -> (Arc<dyn Store>, TempDir) {
    let dir = TempDir::new().unwrap();
    (Embedded::create(dir.path().join("store")).unwrap(), dir)
}

pub(crate) fn verify(path: &Path) -> Report {
    Embedded::open_here(path, "test").unwrap().verify(None, &mut |_, _| {}).unwrap()
}

/// A store with everything in it: forks, merges, blobs, labels, steps, calls, a detached and an untouched session.
pub(crate) fn furnished(store: &Arc<dyn Store>) -> Vec<rath_core::SessionId> {
    let mut root = Session::create(store, Actor::person("ada").authenticated("ada", "os-user"));
    root.set_title("Furnished").unwrap();
    root.system("Be brief.").unwrap();
    root.user("What is in the file?").unwrap();
    block_on(root.publish()).unwrap();
    let mut reader = root.fork("read it");
    reader.act_as(Actor::agent("reader"));
    reader.enter("reading").unwrap();
    let block = Block::ToolUse { id: "c1".into(), name: "read".into(), arguments: r#"{"path":"a.txt"}"#.into() };
    reader.append(Assistant { blocks: vec![block] }).unwrap();
    reader.tool_result("c1", "line\n".repeat(4000)).unwrap();
    let usage = Usage { requests: 1, input_tokens: 20, output_tokens: 5, ..Usage::default() };
    reader.append(ModelResponded { model: Some("scripted".into()), usage }).unwrap();
    reader.assistant("Four thousand lines.").unwrap();
    reader.leave(rath_core::body::Outcome::Done).unwrap();
    block_on(reader.publish()).unwrap();
    let mut guesser = root.fork("guess");
    guesser.assistant("Nothing, probably.").unwrap();
    block_on(guesser.publish()).unwrap();
    let detached = {
        let mut detached = block_on(reader.detach("keep a copy")).unwrap();
        detached.note("on its own").unwrap();
        block_on(detached.publish()).unwrap();
        detached.id()
    };
    let ids = vec![root.id(), reader.id(), guesser.id(), detached];
    let mut root = block_on(root.merge([reader, guesser], How::Append)).unwrap();
    root.label("reviewed", "").unwrap();
    for n in 0..300 {
        root.note(format!("later note {n}")).unwrap();
        if n % 50 == 0 {
            block_on(root.publish()).unwrap();
        }
    }
    block_on(root.compress(2, 4, "they looked")).unwrap();
    root.append_json("company.custom", r#"{"kept": "as it is"}"#).unwrap();
    block_on(root.publish()).unwrap();
    ids
}

/// Runs one test of this binary as a child process; `role` and `dir` reach it by environment.
pub(crate) fn child(test: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("RATH_TEST_CHILD", dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The directory, in a child; `None` in the test run itself.
pub(crate) fn child_dir() -> Option<std::path::PathBuf> {
    std::env::var_os("RATH_TEST_CHILD").map(Into::into)
}
