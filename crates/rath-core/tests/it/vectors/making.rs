//! Makes the valid vectors. Ids, salts and times are random, so this was run once and the result is checked in.

use rath_core::SandboxName;
use rath_core::body::{
    CallOutcome, Choice, Effect, Exit, Placed, Resolved, RestoreReason, Restored, SandboxClosed, SandboxLost,
    SandboxOpened, ToolFinished, ToolStarted,
};
use rath_core::files::{Changes, FilePath, Node, NodeKind, TREE, Tree, TreeEntry, TreeStore, Version, diff};

use super::*;

pub(super) fn write_valid_vectors() {
    let _ = fs::remove_dir_all(directory());
    fs::create_dir_all(directory().join("blobs")).unwrap();
    let mut heads = Heads::new();
    let mut write = |name: &str, lines: &[Line], of: Vec<Reference>| {
        fs::write(directory().join(name), to_text(lines)).unwrap();
        heads.insert(name.into(), of);
    };
    pollster::block_on(async {
        let store = InMemory::new();
        make_plain(&store).await.unwrap();
        let plain = export(&store).await;
        write("plain.jsonl", &plain, heads_of(&store).await);
        write("erased.jsonl", &erase(&plain, &[2, 5]), heads_of(&store).await);

        let store = InMemory::new();
        make_graph(&store).await.unwrap();
        write("graph.jsonl", &export(&store).await, heads_of(&store).await);

        let store = InMemory::new();
        make_blob(&store).await.unwrap();
        write("blob.jsonl", &export(&store).await, heads_of(&store).await);

        let store = InMemory::new();
        make_files(&store).await.unwrap();
        write("files.jsonl", &export(&store).await, heads_of(&store).await);

        let store = InMemory::new();
        make_unknown(&store).await.unwrap();
        let mut lines = export(&store).await;
        add_unknown_fields(&mut lines);
        write("unknown.jsonl", &lines, vec![lines.last().unwrap().reference()]);
    });
    fs::write(directory().join("heads.json"), to_json_text(&heads)).unwrap();
}

/// Adds the vector with files without changing the existing ones.
pub(super) fn add_files_vector() {
    let mut heads: Heads = read_json("heads.json");
    pollster::block_on(async {
        let store = InMemory::new();
        make_files(&store).await.unwrap();
        fs::write(directory().join("files.jsonl"), to_text(&export(&store).await)).unwrap();
        heads.insert("files.jsonl".into(), heads_of(&store).await);
    });
    fs::write(directory().join("heads.json"), to_json_text(&heads)).unwrap();
}

/// A session with files: every kind of placement record and of call record, and a merge with a conflict.
async fn make_files(store: &Arc<dyn Store>) -> rath_core::Result<()> {
    let tree_store = TreeStore::new(&**store);
    let version = |text: &'static str| {
        let tree_store = &tree_store;
        async move {
            let content = Blob::new(text.as_bytes(), "application/octet-stream");
            let node =
                Node { kind: NodeKind::File, mode: 0o644, sha256: content.reference.digest, size: text.len() as u64 };
            tree_store.blobs().blob_put(vec![content]).await?;
            let odd = TreeEntry { name: FilePath::from(&b"odd \xff"[..]), node };
            let src = tree_store.put(Tree { entries: vec![odd] }).await?;
            let below = Node { kind: NodeKind::Directory, mode: 0o755, sha256: src.digest, size: src.bytes };
            let entries = vec![TreeEntry { name: "a.txt".into(), node }, TreeEntry { name: "src".into(), node: below }];
            Ok::<_, rath_core::Error>(Version { tree: tree_store.put(Tree { entries }).await?, rules: None })
        }
    };
    let (first, ours, theirs) = (version("0\n").await?, version("ours\n").await?, version("theirs\n").await?);
    let mut session = Session::create(store, Actor::person("ada"));
    session.append(Placed {
        backend: "host".into(),
        isolated: false,
        origin: Some("/home/ada/shop".into()),
        in_place: false,
        workspace: Some(first.clone()),
        base: Some(first.clone()),
        setup: None,
        why: None,
    })?;
    let sandbox = SandboxName { id: "one".into(), generation: 1 };
    session.append(SandboxOpened {
        sandbox: sandbox.clone(),
        backend: "host".into(),
        isolated: false,
        isolation: None,
        directory: "/home/ada/shop".into(),
        not_enforced: Vec::new(),
        covered: Vec::new(),
    })?;
    let mut branch = session.fork("another way");
    for (line, id, after) in [(&mut session, "c1", &ours), (&mut branch, "c2", &theirs)] {
        line.append(ToolStarted {
            attempt: 1,
            call: id.into(),
            tool: "exec".into(),
            arguments: Some(r#"{"argv":["make"]}"#.into()),
            effect: Effect::Irreversible,
            isolated: Some(false),
            workspace: Some(first.clone()),
            outside: Changes::default(),
        })?;
        line.append(ToolFinished {
            exit: Some(Exit::Code(0)),
            workspace: Some(after.clone()),
            changed: Changes::of(diff(&tree_store, &first, after).await?),
            ..ToolFinished::new(id, CallOutcome::Done)
        })?;
    }
    let mut session = session.merge([branch], How::Append).await?;
    let path = session.state().conflicts[0].path.clone();
    let changed = Changes::default();
    session.append(Resolved { path, choice: Choice::Theirs, side: None, workspace: theirs.clone(), changed })?;
    session.append(Restored {
        why: RestoreReason::Undo,
        from: theirs,
        workspace: ours,
        point: None,
        outside: Changes::default(),
        changed: Changes::default(),
        kept: Vec::new(),
        conflicts: session.state().conflicts.clone(),
    })?;
    session.append(SandboxLost { sandbox: sandbox.clone(), why: "its directory is gone".into() })?;
    session.append(SandboxClosed { sandbox, why: "done".into() })?;
    session.publish().await
}

/// Exports all records of a store as lines and its blobs, including the contents of file trees, as files.
pub(super) async fn export(store: &Arc<dyn Store>) -> Vec<Line> {
    let page = store.scan(Scan::all()).await.unwrap();
    assert!(!page.more);
    let named = page.records.iter().flat_map(|record| blob_references(record.body_bytes().unwrap()));
    let mut open: Vec<_> = named.map(|blob| (blob.digest, blob.media_type == TREE)).collect();
    while let Some((digest, tree)) = open.pop() {
        let content = store.blob_get(digest).await.unwrap().unwrap();
        let entries = if tree { Tree::decode(&content).unwrap().entries } else { Vec::new() };
        open.extend(entries.iter().map(|entry| (entry.node.sha256, entry.node.is_directory())));
        fs::write(directory().join("blobs").join(digest.to_string()), content).unwrap();
    }
    page.records.iter().map(Line::of).collect()
}

pub(super) async fn heads_of(store: &Arc<dyn Store>) -> Vec<Reference> {
    store.sessions(Query::default()).await.unwrap().iter().map(|row| row.head_reference()).collect()
}

/// Sleeps, so that a record's time can be changed a little and still be between those of its neighbours.
pub(super) fn pause() {
    std::thread::sleep(Duration::from_millis(2));
}

/// One session with every kind of record that `Session` methods write.
async fn make_plain(store: &Arc<dyn Store>) -> rath_core::Result<()> {
    let ada = Actor::person("Ada \"Λ\" 王\u{2028}C:\\ada\t\u{7}🦀").authenticated("ada@例え.jp", "os-user");
    let mut session = Session::create(store, ada);
    pause();
    session.set_title("Sortieren, 整列, ترتيب")?;
    session.system("Answer briefly.\r\nUse \"double quotes\", C:\\paths and / slashes.")?;
    pause();
    session.user("What is quick to sort? 如何排序? 🧮\u{2028}\u{2029}\u{0}\u{1f}\u{7f}")?;
    pause();
    session.enter("answer")?;
    session.note("Nobody but people reads this.")?;
    pause();
    session.act_as(Actor::agent("sorter \u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}"));
    session.enter("look up")?;
    let usage =
        Usage { requests: 1, input_tokens: 1200, output_tokens: 90, cost_nano_usd: 1_250_000, ..Usage::default() };
    session.append(ModelResponded { model: Some("scripted-1".into()), usage, ..ModelResponded::default() })?;
    let call = |id: &str, arguments: &str| Block::ToolUse {
        id: id.into(),
        name: "search".into(),
        arguments: arguments.into(),
    };
    session.append(Assistant::new(vec![
        Block::Reasoning { text: "I should look that up.".into() },
        Block::Text { text: "Let me look. ☕".into() },
        call("call-1", r#"{"query": "排序 \u2028 quick", "limit":1.0}"#),
        call("call-2", "{}"),
    ]))?;
    session.tool_result("call-1", "Quicksort; \"introsort\"")?;
    session.append(ToolResult { shown: Some("no query".into()), failed: true, ..ToolResult::new("call-2") })?;
    session.leave(Outcome::Done)?;
    session.assistant("Quicksort.")?;
    session.label("sprache", "日本語")?;
    session.unlabel("sprache")?;
    session.leave(Outcome::Done)?;
    session.compress(1, 4, "Ada asked what is quick to sort; it is quicksort.").await?;
    session.enter("again")?;
    session.append(Assistant::new(vec![call("call-3", "{}")]))?;
    session.cancel("Ada has read enough")?;
    pause();
    session.close("done").await
}

/// Two forks merged with `Append`, one of two others kept, and one detached session.
async fn make_graph(store: &Arc<dyn Store>) -> rath_core::Result<()> {
    let mut session = Session::create(store, Actor::person("ada"));
    session.enter("compare")?;
    pause();
    session.user("Name a sorting algorithm.")?;
    pause();
    let mut quick = session.fork("fast on average");
    quick.act_as(Actor::agent("quick"));
    let usage = Usage { requests: 1, output_tokens: 3, ..Usage::default() };
    quick.append(ModelResponded { usage, ..ModelResponded::default() })?;
    pause();
    quick.assistant("Quicksort.")?;
    pause();
    let mut stable = session.fork("stable");
    stable.act_as(Actor::agent("stable"));
    stable.assistant("Merge sort.")?;
    pause();
    let session = session.merge([quick, stable], How::Append).await?;
    pause();

    let mut kept = session.fork("");
    kept.assistant("Use quicksort.")?;
    let mut dropped = session.fork_at(Point { session: session.id(), seq: 2 }, "ask again").await?;
    dropped.assistant("Use bogosort.")?;
    let chosen = kept.id();
    let mut session = session.merge([kept, dropped], How::keep(chosen, "it ends")).await?;

    let mut alone = session.detach("to a colleague").await?;
    alone.user("And for linked lists?")?;
    alone.publish().await?;
    session.leave(Outcome::Done)?;
    session.publish().await
}

/// Contents above the inline limit, one exactly at it, and an image.
async fn make_blob(store: &Arc<dyn Store>) -> rath_core::Result<()> {
    let mut session = Session::create(store, Actor::person("ada"));
    let long = |word: &str, bytes: usize| word.repeat(bytes / word.len() + 1);
    session.user(long("長い話 ", rath_core::INLINE_LIMIT))?;
    session.note("x".repeat(rath_core::INLINE_LIMIT))?;
    let picture = Blob::new(&b"not really a picture"[..], "image/png");
    store.blob_put(vec![picture.clone()]).await?;
    session.append(Assistant::new(vec![
        Block::Text { text: long("a long answer ", rath_core::INLINE_LIMIT).into() },
        Block::Image { image: picture.reference },
    ]))?;
    session.publish().await
}

async fn make_unknown(store: &Arc<dyn Store>) -> rath_core::Result<()> {
    let mut session = Session::create(store, Actor::person("ada"));
    session.user("How is the weather?")?;
    session.append_json("weather.report", r#"{ "sky":"☁",  "celsius":-1.50, "n":1e2, "wind":null }"#)?;
    session.append_json("user", r#"{"text":"Thanks.","mood":"a field of a later version"}"#)?;
    session.publish().await
}

/// Records as a later version may write them, with additional fields in header and actor.
pub(super) fn add_unknown_fields(lines: &mut Vec<Line>) {
    let mut fields = successor(lines.last().unwrap(), "user");
    // Keys are sorted by UTF-16 code units: U+1F600 starts with 0xD83D and sorts before U+FB00.
    fields["\u{1f600}"] = json!({"\u{fb00}": [], "\u{1f600}": {}, "": [true, false, null]});
    fields["\u{fb00}"] = json!("\u{8}\u{c}\n\r\t\u{1}\u{7f}\u{2028}\"\\/");
    fields["annex"] = json!({"body_digest": "of something else", "parents": ["of something else"]});
    fields["limits"] = json!([-(1i64 << 53), -7, 0, 1i64 << 53]);
    lines.push(sealed(fields, r#"{"text":"Later."}"#));

    let mut fields = successor(lines.last().unwrap(), "weather.report");
    fields["actor"]["device"] = json!("barometer");
    lines.push(sealed(fields, "{}"));

    // A known field, but one that only a broken clock produces.
    let mut fields = successor(lines.last().unwrap(), "note");
    fields["time"] = lines.last().unwrap().fields()["time"].clone();
    fields["clock_behind"] = json!(1500);
    lines.push(sealed(fields, r#"{"text":"The clock was set back."}"#));
}

pub(super) fn erase(lines: &[Line], places: &[usize]) -> Vec<Line> {
    let mut lines = lines.to_vec();
    for place in places {
        lines[*place] = Line { header: lines[*place].header.clone(), salt: None, body: None };
    }
    lines
}

/// A header that follows `line`, without its digest.
pub(super) fn successor(line: &Line, kind: &str) -> Value {
    let before = line.fields();
    json!({
        "actor": {"kind": "agent", "name": "by hand"}, "kind": kind, "parents": [line.id()],
        "seq": before["seq"].as_u64().unwrap() + 1, "session": before["session"],
        "time": before["time"].as_u64().unwrap() + 1, "v": 1,
    })
}

/// The record with this header and body and the correct hash.
pub(super) fn sealed(mut fields: Value, body: &str) -> Line {
    let salt = *b"sixteen bytes...";
    fields["body_digest"] = json!(Digest::of_parts(&[&salt, body.as_bytes()]));
    let header = serde_jcs::to_string(&fields).unwrap();
    Line { header, salt: Some(const_hex::encode(salt)), body: Some(body.into()) }
}
