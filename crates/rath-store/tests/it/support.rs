//! Helpers of the tests.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use pollster::block_on;
use rath_core::body::{
    Answered, Asked, Assistant, Block, CallOutcome, Choice, Effect, Exit, Grant, Granted, ModelFailed, ModelResponded,
    NativeTurn, Output, Placed, QuestionKind, Resolved, RestoreReason, Restored, SandboxClosed, SandboxLost,
    SandboxOpened, Scope, ToolFinished, ToolStarted, Verdict,
};
use rath_core::files::{Change, Changes, TreeStore, diff, with_changes};
use rath_core::store::{Batch, Post, PostContent};
use rath_core::verify::VerifyReport;
use rath_core::{Actor, Blob, How, RunOptions, SandboxName, Session, SessionId, Store, Time, Usage};
use rath_store::Embedded;
use rath_workspace::{Options, Workspace};
use tempfile::TempDir;

/// An empty store in a directory of its own.
pub(crate) fn fresh() -> (Arc<dyn Store>, TempDir) {
    let dir = TempDir::new().unwrap();
    (Embedded::create(dir.path().join("store")).unwrap(), dir)
}

/// Text that hardly compresses, different for each seed.
pub(crate) fn noise(length: usize, seed: u64) -> String {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'!' + ((state >> 33) % 94) as u8)
    };
    (0..length).map(|_| next()).collect()
}

pub(crate) fn verify(path: &Path) -> VerifyReport {
    Embedded::open_as(path, "test").unwrap().verify(None, &mut |_, _| {}).unwrap()
}

/// Adds sessions with forks, merges, blobs, labels, steps, calls, a detached session and an unused one.
pub(crate) fn sample_sessions(store: &Arc<dyn Store>) -> Vec<SessionId> {
    let mut root = Session::create(store, Actor::person("ada").authenticated("ada", "os-user"));
    root.set_title("Furnished").unwrap();
    root.system("Be brief.").unwrap();
    root.user("What is in the file?").unwrap();
    block_on(root.publish()).unwrap();
    let mut reader = root.fork("read it");
    reader.act_as(Actor::agent("reader"));
    reader.enter("reading").unwrap();
    let block = Block::ToolUse { id: "c1".into(), name: "read".into(), arguments: r#"{"path":"a.txt"}"#.into() };
    reader.append(Assistant::new(vec![block])).unwrap();
    reader.tool_result("c1", noise(20_000, 3)).unwrap();
    let usage = Usage { requests: 1, input_tokens: 20, output_tokens: 5, ..Usage::default() };
    reader.append(ModelResponded { model: Some("scripted".into()), usage, ..ModelResponded::default() }).unwrap();
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

/// Adds a session that is published at once and is so long that its segments are compressed.
pub(crate) fn long_session(store: &Arc<dyn Store>) -> SessionId {
    let mut session = Session::create(store, Actor::person("ada"));
    for n in 0..400 {
        session.user(format!("Line {n} of a long story: {}.", "and then they sailed on ".repeat(n % 7))).unwrap();
    }
    block_on(session.publish()).unwrap();
    session.id()
}

/// Sessions with a record of each kind that format 6 added.
pub(crate) fn kinds_of_format_6(store: &Arc<dyn Store>) -> SessionId {
    let mut session = Session::create(store, Actor::program("nightly"));
    session.user("Read the file, then wait.").unwrap();
    let block = Block::ToolUse { id: "c1".into(), name: "read".into(), arguments: r#"{"path":"a.txt"}"#.into() };
    let call = session.append(Assistant::new(vec![block])).unwrap();
    session.tool_result("c1", "a long result of a tool, of which the model needs the beginning").unwrap();
    block_on(session.publish()).unwrap();
    block_on(session.trim(2, "a long result")).unwrap();
    for id in ["one", "two"] {
        let name = format!(r#"{{"id":"{id}","for":"time","until":1700000000000000,"why":"the build is not done"}}"#);
        session.append_json("awaited", &name).unwrap();
    }
    session.append_json("received", r#"{"id":"one"}"#).unwrap();
    block_on(session.publish()).unwrap();
    let id = session.id();
    let replayed = format!(r#"{{"session":"{id}","from":0,"to":4,"mode":"check","verdict":"same"}}"#);
    session.append_json("replayed", &replayed).unwrap();
    block_on(session.publish()).unwrap();
    let mut received = session.fork("as if it came from another store");
    received.append_json("arrived", &format!(r#"{{"from":"another store","listed":"{call}"}}"#)).unwrap();
    block_on(received.publish()).unwrap();
    id
}

/// Adds a run with its input, a question, a queued answer, and a consumed post.
pub(crate) fn run_with_inbox(store: &Arc<dyn Store>) -> SessionId {
    let actor = Actor::program("nightly");
    let input = async |session: &mut Session| session.user("Tidy up.").map(drop);
    let mut session = block_on(store.begin_run("nightly", actor, input)).unwrap();
    let asked = Asked::new(QuestionKind::Question, None, "May I?");
    let shown_digest = asked.shown_digest;
    session.append(asked).unwrap();
    let what = PostContent::Answer { asked: session.head().id, shown_digest, verdict: Verdict::Yes, why: None };
    block_on(session.publish()).unwrap();
    let id = session.id();
    drop(session);
    let post = |id: SessionId, name: &str, what| Post {
        id: name.into(),
        session: id,
        actor: Actor::person("ada"),
        time: Time(1_700_000_000_000_000),
        what,
    };
    block_on(store.post(post(id, "taken", PostContent::Message { text: "hurry".into() }))).unwrap();
    block_on(store.commit(Batch { consumed_posts: vec!["taken".into()], ..Batch::default() })).unwrap();
    block_on(store.post(post(id, "answer", what))).unwrap();
    id
}

/// Adds a conversation with a model: usage with costs, a picture, a failed request, a native turn, a permanent
/// permission, and a second run of another program.
pub(crate) fn model_conversation(store: &Arc<dyn Store>) -> SessionId {
    let conditions = |program: &str| RunOptions {
        program: Some(Blob::new(program.as_bytes().to_vec(), "text/markdown")),
        ..Actor::person("ada").into()
    };
    let picture = Blob::new(vec![0x89, b'P', b'N', b'G'], "image/png");
    let input = async |session: &mut Session| session.user_with("What is this?", [("a.png", picture)]).map(drop);
    let session = block_on(store.begin_run("a talk", conditions("---\nname: a\n---\n"), input)).unwrap();
    let works = async |mut session: Session| {
        let raw = Blob::new(b"HTTP says no".to_vec(), "text/plain");
        store.blob_put(vec![raw.clone()]).await?;
        let raw = Some(raw.reference);
        let partial = Some("It is".into());
        session.append(ModelFailed { status: Some(529), retried: true, partial, raw, ..ModelFailed::new("busy") })?;
        let usage = Usage {
            requests: 1,
            input_tokens: 900,
            cached_tokens: 300,
            cache_write_tokens: 200,
            output_tokens: 40,
            cost_nano_usd: 1_234_567,
            ..Usage::default()
        };
        let prices = Some("a-table@1.2.3".to_owned());
        session.append(ModelResponded { model: Some("a-1".into()), usage, prices, ..ModelResponded::default() })?;
        let json = r#"{"role":"assistant","content":"It is small."}"#.into();
        let sent = Some(NativeTurn { api: "openai-chat".into(), model: "a-1".into(), json });
        session.append(Assistant { sent, ..Assistant::text("It is small.") })?;
        let always = Grant {
            tool: "shell".into(),
            effect: Effect::Irreversible,
            scope: Scope::Command { words: vec!["git".into(), "push".into()] },
        };
        let asked = Asked::new(QuestionKind::Approval, None, "May I push?");
        let (shown_digest, policy) = (asked.shown_digest, Some("ask shell \"git push\"".to_owned()));
        let asked = session.append(Asked { always: Some(Box::new(always.clone())), policy, ..asked })?;
        session.append(Answered { asked, shown_digest, verdict: Verdict::Yes, why: None })?;
        session.append(Granted { asked, allows: always })?;
        Ok(session)
    };
    let session = block_on(session.execute(&works)).unwrap();
    let id = session.id();
    drop(session);
    let mut session = block_on(store.continue_run(id, conditions("---\nname: b\n---\n"))).unwrap();
    session.user("And now?").unwrap();
    let says = async |mut session: Session| {
        session.assistant("Good night.")?;
        Ok(session)
    };
    block_on(session.execute(&says)).unwrap();
    id
}

/// Adds a session that works on files: a placement, commands, a fork with a merge conflict, its resolution, and an
/// undo.
pub(crate) fn session_with_files(store: &Arc<dyn Store>, dir: &Path) -> SessionId {
    let (root, state) = (dir.join("files"), dir.join("state"));
    fs::create_dir_all(root.join("src/deep")).unwrap();
    fs::create_dir_all(root.join("empty")).unwrap();
    fs::write(root.join("app.conf"), "pool = 20\nretries = 3\nregion = eu\n").unwrap();
    fs::write(root.join(".gitignore"), "*.log\n").unwrap();
    fs::write(root.join("noise.log"), "not versioned").unwrap();
    fs::write(root.join(OsStr::from_bytes(b"odd \n\xff name")), "odd").unwrap();
    fs::write(root.join("src/deep/run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(root.join("src/deep/run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    std::os::unix::fs::symlink("../app.conf", root.join("src/link")).unwrap();
    let large = fs::File::create(root.join("large.bin")).unwrap();
    large.set_len(9 << 20).unwrap();
    large.write_all_at(b"in the middle", 5 << 20).unwrap();
    let open = || Workspace::open(store.clone(), &root, &state, &Options::default()).unwrap().0;
    let save = || open().save().unwrap().version;
    let mut session = Session::create(store, Actor::person("ada"));
    let first = save();
    let placed = Placed {
        backend: "host".into(),
        isolated: false,
        origin: Some("/home/ada/shop".into()),
        in_place: false,
        workspace: Some(first.clone()),
        base: Some(first),
        setup: None,
        why: None,
    };
    session.append(placed).unwrap();
    let sandbox = SandboxName { id: "sandbox".into(), generation: 1 };
    let opened = SandboxOpened {
        sandbox: sandbox.clone(),
        backend: "host".into(),
        isolated: false,
        isolation: None,
        directory: "/home/ada/shop".into(),
        not_enforced: vec!["memory".into()],
        covered: vec![],
    };
    session.append(opened).unwrap();
    let call = |session: &mut Session, id: &str, edit: &dyn Fn()| {
        let before = session.state().workspace.clone().unwrap();
        let started = ToolStarted {
            attempt: 1,
            call: id.into(),
            tool: "exec".into(),
            arguments: Some(r#"{"shell":"sed …"}"#.into()),
            effect: Effect::Irreversible,
            isolated: Some(false),
            workspace: Some(before.clone()),
            outside: Changes::default(),
        };
        session.append(started).unwrap();
        open().restore(None, &before).unwrap();
        edit();
        let after = save();
        let changed = Changes::of(block_on(diff(&TreeStore::new(&**store), &before, &after)).unwrap());
        let output = Output { text: Some("done\n".into()), cut_from: Some(9), ..Output::new("stdout") };
        let finished = ToolFinished {
            exit: Some(Exit::Code(0)),
            output: vec![output],
            duration_us: Some(1200),
            isolated: Some(false),
            workspace: Some(after),
            changed,
            killed_orphans: 1,
            ..ToolFinished::new(id, CallOutcome::Done)
        };
        session.append(finished).unwrap();
    };
    let write = |text: &str| fs::write(root.join("app.conf"), text).unwrap();
    let mut branch = session.fork("a larger pool");
    call(&mut branch, "c1", &|| write("pool = 50\nretries = 3\nregion = eu\n"));
    call(&mut session, "c2", &|| write("pool = 30\nretries = 3\nregion = us\n"));
    let mut session = block_on(session.merge([branch], How::Append)).unwrap();
    let now = session.state().workspace.clone().unwrap();
    let conflict = session.state().conflicts[0].clone();
    let change = Change { path: conflict.path.clone(), before: conflict.ours, after: conflict.theirs };
    let decided = block_on(with_changes(&TreeStore::new(&**store), &now, &[change])).unwrap();
    let (path, changed) = (conflict.path, Changes::default());
    session.append(Resolved { path, choice: Choice::Theirs, side: None, workspace: decided.clone(), changed }).unwrap();
    let restored = Restored {
        why: RestoreReason::Undo,
        from: decided,
        workspace: now,
        point: Some(session.head().point()),
        outside: Changes::default(),
        changed: Changes::default(),
        kept: vec!["kept".into()],
        conflicts: session.state().conflicts.clone(),
    };
    session.append(restored).unwrap();
    session.append(SandboxLost { sandbox: sandbox.clone(), why: "its directory is gone".into() }).unwrap();
    session.append(SandboxClosed { sandbox, why: "the session moved".into() }).unwrap();
    block_on(session.publish()).unwrap();
    session.id()
}

/// Runs one test of this binary as a child process. It gets `dir` in an environment variable.
pub(crate) fn child(test: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("RATH_TEST_CHILD", dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The directory, if this process is a child; `None` in the test run itself.
pub(crate) fn child_dir() -> Option<std::path::PathBuf> {
    std::env::var_os("RATH_TEST_CHILD").map(Into::into)
}
