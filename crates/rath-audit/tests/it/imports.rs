//! Importing files of other systems. The OpenRath files were written by OpenRath: `benches/peers/openrath_files.py`.

use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;
use rath::body::{Assistant, Block, ImportSource, Imported, Linked, ToolResult};
use rath::prelude::{Actor, Embedded, InMemory, SessionId, Store, View};
use rath::store::SessionFilter;
use rath::{Kind, Record};
use rath_audit::import::{ImportOutcome, ImportedFile, Importer, jsonl, openrath};

fn file(name: &str) -> Vec<u8> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/data/openrath", name].iter().collect();
    std::fs::read(path).unwrap()
}

async fn import_file(
    store: &Arc<dyn Store>,
    name: &str,
    bytes: &[u8],
) -> Result<ImportedFile, rath_audit::import::ImportError> {
    let mut importer = Importer::new(store, Actor::person("ada"), false).await?;
    importer.import(name, bytes, openrath::read(bytes).unwrap()).await
}

async fn own(store: &Arc<dyn Store>, session: SessionId) -> Vec<Record> {
    View::of(store, session, None).await.unwrap().own_records().await.unwrap()
}

fn words(records: &[Record]) -> Vec<String> {
    records.iter().filter(|record| record.kind().is_conversation()).map(rath::summary::of).collect()
}

/// The repairs of a file, one line each.
fn repairs(name: &str) -> Vec<String> {
    let parsed = openrath::read(&file(name)).unwrap();
    parsed.repairs.iter().map(|repair| format!("{}: {}; {}", repair.line, repair.what, repair.how)).collect()
}

#[tokio::test]
async fn an_openrath_file_becomes_a_session() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::create(dir.path().join("store")).unwrap();
    let bytes = file("plain.jsonl");
    let file_import = import_file(&store, "plain.jsonl", &bytes).await.unwrap();
    assert!(file_import.repairs.is_empty());
    let records = own(&store, file_import.session).await;
    assert_eq!(file_import.outcome, ImportOutcome::New { records: records.len() as u64 });
    let imported: Imported = records[0].body().unwrap();
    assert_eq!(imported.original.as_deref(), Some("01980000-0000-7000-8000-000000000000"));
    assert_eq!(imported.created_at.as_deref(), Some("2026-11-16T08:00:00+00:00"));
    assert!(imported.trailer.unwrap().contains("final_chunk_count"));
    assert_eq!(store.blob_get(imported.source.digest).await.unwrap().unwrap()[..], bytes[..]);
    // Every record names the line that it came from.
    let lines: Vec<_> = String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect();
    for record in records.iter().filter(|record| record.kind().is_conversation()) {
        let source = ImportSource::of(record).unwrap().unwrap();
        assert_eq!(source.blob, imported.source.digest);
        assert!(lines[source.line as usize - 1].contains(record.kind().as_str()), "{record:?}");
    }
    let turn: Assistant = records[4].body().unwrap();
    assert!(matches!(&turn.blocks[1], Block::ToolUse { id, name, arguments }
        if id == "call_1" && name == "run_shell" && arguments.to_string() == r#"{"command":"ls"}"#));
    let result: ToolResult = records[5].body().unwrap();
    assert_eq!(result.shown.unwrap().to_string(), r#"{"exit_code": 0, "stdout": "a.txt\n"}"#);
    let view = View::of(&store, file_import.session, None).await.unwrap();
    assert_eq!(view.text().await.unwrap().as_deref(), Some("One: a.txt."));
    assert!(view.pending().is_empty());
    assert_eq!(view.context().await.unwrap().len(), 5);
    drop((view, store));
    let report = Embedded::open_as(dir.path().join("store"), "test").unwrap().verify(None, &mut |_, _| {}).unwrap();
    assert!(report.is_valid(), "{:?}", report.findings);
}

#[tokio::test]
async fn importing_twice_gives_one_session_and_parents_are_linked() {
    let store = InMemory::new();
    let plain = import_file(&store, "plain.jsonl", &file("plain.jsonl")).await.unwrap();
    let forked = import_file(&store, "forked.jsonl", &file("forked.jsonl")).await.unwrap();
    let body: Imported = own(&store, forked.session).await[0].body().unwrap();
    assert_eq!(body.lineage, ["fork", "op_fork"]);
    assert_eq!(body.parents[0].original, "01980000-0000-7000-8000-000000000000");
    assert_eq!(body.parents[0].here.unwrap().session, plain.session);
    for name in ["plain.jsonl", "another name.jsonl"] {
        let again = import_file(&store, name, &file("plain.jsonl")).await.unwrap();
        assert_eq!((again.outcome, again.session), (ImportOutcome::Known, plain.session));
    }
    assert_eq!(store.sessions(SessionFilter::All.into()).await.unwrap().len(), 2);
    let mut again = Importer::new(&store, Actor::person("ada"), true).await.unwrap();
    let bytes = file("plain.jsonl");
    let other = again.import("plain.jsonl", &bytes, openrath::read(&bytes).unwrap()).await.unwrap();
    assert_ne!(other.session, plain.session);
    let lonely = import_file(&InMemory::new(), "forked.jsonl", &file("forked.jsonl")).await.unwrap();
    assert!(matches!(lonely.outcome, ImportOutcome::New { .. }), "a parent that is not in the store is only named");
}

#[test]
fn damaged_files_are_read_and_each_repair_is_listed() {
    assert_eq!(
        repairs("separators.jsonl"),
        [
            "2: the text has U+0085, where some readers end the line; read as part of the text",
            "2: the text has U+2028, where some readers end the line; read as part of the text",
            "3: the text has U+2029, where some readers end the line; read as part of the text",
        ]
    );
    let crashed = repairs("crashed.jsonl");
    assert!(crashed[0].starts_with("6: the last line is truncated: it is not JSON"), "{crashed:?}");
    assert_eq!(crashed[1], "0: there is no trailer: the writer did not finish; read what is there");
    assert_eq!(
        repairs("retried.jsonl"),
        [
            "5: a second header: the writer was started again; skipped",
            "6: chunk 0 again, with the same content; skipped",
            "7: chunk 1 again, with the same content; skipped",
            "8: chunk 2 again, with different content; used the later content; line 4 is only in the source file",
        ]
    );
    assert_eq!(
        repairs("gaps.jsonl"),
        [
            "4: chunk 1 again, with the same content; skipped",
            "5: chunk 4 comes next: 2 to 3 are missing; continued without",
            "6: the trailer counts 4 chunks, the file has 3; read what is there",
        ]
    );
}

/// Parses lines, and returns the repairs too.
fn parse_lines(lines: &[&str]) -> (rath_audit::import::ParsedConversation, Vec<String>) {
    let parsed = openrath::read((lines.join("\n") + "\n").as_bytes()).unwrap();
    let repairs =
        parsed.repairs.iter().map(|repair| format!("{}: {}; {}", repair.line, repair.what, repair.how)).collect();
    (parsed, repairs)
}

const HEADER: &str = r#"{"record_type":"header","schema_version":1,"id":"a"}"#;
const TRAILER: &str = r#"{"record_type":"trailer","final_chunk_count":2}"#;

#[test]
fn chunks_without_an_index_keep_their_position() {
    let bare = r#"{"record_type":"chunk","kind":"user","payload":{"content":"no index"}}"#;
    let zero = r#"{"record_type":"chunk","index":0,"kind":"user","payload":{"content":"zero"}}"#;
    let two = r#"{"record_type":"chunk","index":2,"kind":"user","payload":{"content":"two"}}"#;
    let lines = |parsed: &rath_audit::import::ParsedConversation| {
        parsed.messages.iter().map(|said| said.line).collect::<Vec<_>>()
    };
    let (parsed, repairs) = parse_lines(&[HEADER, bare, zero, TRAILER]);
    assert_eq!(lines(&parsed), [2, 3]);
    assert_eq!(repairs, ["2: the chunk has no index; read in its position"]);
    let (parsed, repairs) = parse_lines(&[HEADER, zero, bare, two, TRAILER.replace('2', "3").as_str()]);
    assert_eq!(lines(&parsed), [2, 3, 4]);
    assert_eq!(repairs, ["3: the chunk has no index; read in its position"]);
}

#[test]
fn chunks_after_the_trailer_are_read() {
    let zero = r#"{"record_type":"chunk","index":0,"kind":"user","payload":{"content":"zero"}}"#;
    let one = r#"{"record_type":"chunk","index":1,"kind":"user","payload":{"content":"one"}}"#;
    let (parsed, repairs) = parse_lines(&[HEADER, TRAILER, zero, one]);
    assert_eq!(repairs, ["3: a chunk follows the trailer; read in its position"]);
    assert!(parsed.trailer.is_some());
}

#[test]
fn fields_that_are_not_text_are_repaired() {
    let header = r#"{"record_type":"header","schema_version":"1","id":5,"created_at":7,"parent_session_ids":"p"}"#;
    let said = r#"{"record_type":"chunk","index":0,"kind":"user","payload":{"content":5}}"#;
    let call = r#"{"record_type":"chunk","index":1,"kind":"assistant","payload":{"content":null,"tool_calls":[{"id":7,"type":"function","function":{"name":"ls","arguments":{"path":"."}}}]}}"#;
    let (parsed, repairs) = parse_lines(&[header, said, call, TRAILER]);
    assert_eq!(parsed.original.as_deref(), Some("5"));
    assert_eq!(
        repairs,
        [
            "1: the header's schema version is not a number: \"1\"; read as version 1",
            "1: the header's \"id\" is not text; its JSON is used as text",
            "1: the header's \"created_at\" is not text; its JSON is used as text",
            "1: the header's \"parent_session_ids\" is not a list; omitted; it is in the source file",
            "2: the chunk's \"content\" is not text; its JSON is used as text",
            "3: a call's \"id\" is not text; its JSON is used as text",
            "3: a call's \"arguments\" is not text; its JSON is used as text",
        ]
    );
    assert!(openrath::read(HEADER.replace(":1", ":2").as_bytes()).is_err());
}

#[tokio::test]
async fn repairs_are_recorded() {
    let store = InMemory::new();
    let imported = import_file(&store, "retried.jsonl", &file("retried.jsonl")).await.unwrap();
    let records = own(&store, imported.session).await;
    let body: Imported = records[0].body().unwrap();
    assert_eq!(body.repairs, imported.repairs);
    assert_eq!(
        words(&records),
        [
            "system: You are careful.",
            "user: Which files are here?",
            "assistant: Let me think.",
            "assistant: One: a.txt."
        ]
    );
    let odd = import_file(&store, "separators.jsonl", &file("separators.jsonl")).await.unwrap();
    let records = own(&store, odd.session).await;
    let said: rath::body::User = records[2].body().unwrap();
    assert_eq!(said.text.to_string(), "one\u{2028}two\u{85}three");
}

#[tokio::test]
async fn a_file_that_grew_extends_its_session() {
    let store = InMemory::new();
    let whole = file("plain.jsonl");
    let ends: Vec<_> = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    // The file is truncated in the middle of the fourth line.
    let torn = &whole[..ends[2] + 20];
    let first = import_file(&store, "plain.jsonl", torn).await.unwrap();
    assert_eq!(words(&own(&store, first.session).await).len(), 2);
    let second = import_file(&store, "plain.jsonl", &whole[..ends[4]]).await.unwrap();
    assert_eq!((second.session, second.outcome), (first.session, ImportOutcome::Extended { records: 2 }));
    let third = import_file(&store, "plain.jsonl", &whole).await.unwrap();
    assert_eq!((third.session, third.outcome), (first.session, ImportOutcome::Extended { records: 1 }));
    let records = own(&store, first.session).await;
    let complete = import_file(&InMemory::new(), "plain.jsonl", &whole).await.unwrap();
    assert_eq!(words(&records).len(), 5);
    assert!(matches!(complete.outcome, ImportOutcome::New { records: 7 }));
    let linked: Vec<Linked> =
        records.iter().filter(|record| *record.kind() == Kind::Linked).map(|record| record.body().unwrap()).collect();
    let source = linked[1].source.clone().unwrap();
    assert_eq!(store.blob_get(source.digest).await.unwrap().unwrap()[..], whole[..]);
    assert_eq!(ImportSource::of(records.last().unwrap()).unwrap().unwrap().line, 6);
    for known in [torn, &whole[..ends[4]], &whole[..ends[1]], &whole[..]] {
        assert_eq!(import_file(&store, "plain.jsonl", known).await.unwrap().outcome, ImportOutcome::Known);
    }
}

#[tokio::test]
async fn chunks_of_a_grown_file_are_not_garbage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = Embedded::create(&path).unwrap();
    let line = |words: &str| format!("{{\"role\":\"user\",\"content\":\"{words}\"}}\n");
    let short = [line("one"), line("two"), line("three")].concat().into_bytes();
    // A file of several chunks, which grows in small steps.
    let long = [line(&"long ".repeat(500_000)), line("more"), line("end")].concat().into_bytes();
    for (name, bytes) in [("short.jsonl", &short), ("long.jsonl", &long)] {
        let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
        for end in ends {
            let part = &bytes[..end];
            let mut importer = Importer::new(&store, Actor::person("ada"), false).await.unwrap();
            importer.import(name, part, jsonl::read(part).unwrap()).await.unwrap();
        }
    }
    let embedded = Embedded::open_as(&path, "test").unwrap();
    embedded.collect(false, &mut |_| {}).unwrap();
    let report = embedded.verify(None, &mut |_, _| {}).unwrap();
    assert!(report.is_valid(), "{:?}", report.findings);
}

#[tokio::test]
async fn a_different_file_does_not_extend_the_session() {
    let store = InMemory::new();
    let whole = file("plain.jsonl");
    let imported = import_file(&store, "plain.jsonl", &whole).await.unwrap();
    let other = String::from_utf8(whole.clone()).unwrap().replace("Which files", "What files");
    let refused = import_file(&store, "plain.jsonl", other.as_bytes()).await.unwrap_err();
    assert_eq!(refused.code(), "import-differs");
    assert!(refused.to_string().ends_with("from a file with a different line 3"), "{refused}");
    let mut session = store.open(imported.session, Actor::person("eve")).await.unwrap();
    session.user("I go on here.").unwrap();
    session.publish().await.unwrap();
    drop(session);
    let grown =
        [&whole[..], b"{\"record_type\":\"chunk\",\"index\":5,\"kind\":\"user\",\"payload\":{\"content\":\"x\"}}\n"];
    let refused = import_file(&store, "plain.jsonl", &grown.concat()).await.unwrap_err();
    assert!(refused.to_string().contains("the session was continued after the import:"), "{refused}");
}

#[test]
fn other_files_are_rejected() {
    for bytes in ["", "\n\n", "hello\n", "{\"role\":\"user\",\"content\":\"x\"}\n", "[1]\n", "\u{feff}"] {
        let why = openrath::read(bytes.as_bytes()).unwrap_err();
        assert!(why.to_string().contains("not an OpenRath session file"), "{bytes:?}: {why}");
    }
    let header =
        |id: &str, version: u32| format!("{{\"record_type\":\"header\",\"schema_version\":{version},\"id\":{id:?}}}\n");
    let future = openrath::read(header("a", 2).as_bytes()).unwrap_err();
    assert_eq!(future.to_string(), "line 1: the file has schema version 2; this version of rath reads 1");
    let two = openrath::read((header("a", 1) + &header("b", 1)).as_bytes()).unwrap_err();
    assert!(two.to_string().starts_with("line 2: another session starts here than in line 1"), "{two}");
}

#[test]
fn damaged_lines_are_omitted_one_by_one() {
    let chunk = |index: u64, text: &str| {
        format!(
            "{{\"record_type\": \"chunk\", \"index\": {index}, \"kind\": \"user\", \"payload\": {{\"content\": \"{text}\"}}}}"
        )
    };
    let text = [
        chunk(0, "before the header"),
        "{\"record_type\": \"header\", \"id\": \"x\"}".into(),
        "not json".into(),
        format!("{{\"record_type\": \"chunk\", \"ind{}", chunk(1, "behind a cut")),
        "{\"record_type\": \"chunk\", \"index\": 2, \"kind\": \"poem\", \"payload\": {}}".into(),
        "{\"record_type\": \"song\"}".into(),
        chunk(2, "half \\ud83d a character"),
        "{\"record_type\": \"trailer\", \"final_chunk_count\": 3}".into(),
        chunk(18_446_744_073_709_551_615, "at the end of numbers"),
        chunk(18_446_744_073_709_551_615, "and once more"),
    ];
    let parsed = openrath::read(text.join("\n").as_bytes()).unwrap();
    let said: Vec<_> = parsed.messages.iter().map(|said| said.line).collect();
    assert_eq!(said, [1, 4, 7, 10]);
    let lines: Vec<_> = parsed.repairs.iter().map(|repair| repair.line).collect();
    assert_eq!(lines, [2, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10], "{:#?}", parsed.repairs);
    assert!(format!("{:?}", parsed.messages[2]).contains("half \u{fffd} a character"));
}

fn chunks(indexes: &[u64]) -> Vec<u8> {
    let chunk = |index: &u64| {
        format!(
            "{{\"record_type\": \"chunk\", \"index\": {index}, \"kind\": \"user\", \"payload\": {{\"content\": \"word {index}\"}}}}\n"
        )
    };
    let header = "{\"record_type\": \"header\", \"schema_version\": 1, \"id\": \"7f3c\"}\n".to_owned();
    std::iter::once(header).chain(indexes.iter().map(chunk)).collect::<String>().into_bytes()
}

#[tokio::test]
async fn chunks_are_sorted_by_index() {
    let store = InMemory::new();
    let mut bytes = chunks(&[0, 2, 1]);
    bytes.extend(b"{\"record_type\": \"trailer\", \"final_chunk_count\": 3}\n");
    let imported = import_file(&store, "mixed", &bytes).await.unwrap();
    let repairs: Vec<_> = imported.repairs.iter().map(|r| format!("{}: {}; {}", r.line, r.what, r.how)).collect();
    assert_eq!(repairs, ["4: chunk 1 follows chunk 2; read in the order of the indexes"]);
    assert_eq!(words(&own(&store, imported.session).await[2..]), ["user: word 0", "user: word 1", "user: word 2"]);
}

#[tokio::test]
async fn new_lines_between_imported_ones_are_rejected() {
    let store = InMemory::new();
    let imported = import_file(&store, "grows", &chunks(&[0, 2, 1])).await.unwrap();
    let more = import_file(&store, "grows", &chunks(&[0, 2, 1, 4])).await.unwrap();
    assert!(matches!(more.outcome, ImportOutcome::Extended { records: 1 }), "{:?}", more.outcome);
    let refused = import_file(&store, "grows", &chunks(&[0, 2, 1, 4, 3])).await.unwrap_err();
    assert!(refused.to_string().contains("belong between"), "{refused}");
    let said = words(&own(&store, imported.session).await);
    assert_eq!(said.last().map(String::as_str), Some("user: word 4"));
}

#[tokio::test]
async fn plain_conversations() {
    let text = r#"{"role":"developer","content":"Be brief."}
{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image_url","image_url":{"url":"x"}}],"timestamp":"2026-01-02T03:04:05Z"}
{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"look","arguments":"{}"}}]}
{"role":"tool","tool_call_id":"c","content":"a cat"}
{"role":"assistant","content":"A cat."}
{"role":"narrator","content":"..."}
"#;
    let parsed = jsonl::read(text.as_bytes()).unwrap();
    let repairs: Vec<_> = parsed.repairs.iter().map(|repair| (repair.line, repair.what.as_str())).collect();
    assert_eq!(repairs, [(2, "a part of type \"image_url\" is not text"), (6, "its role is \"narrator\"")]);
    let store = InMemory::new();
    let mut importer = Importer::new(&store, Actor::person("ada"), false).await.unwrap();
    let imported = importer.import("talk.jsonl", text.as_bytes(), parsed.clone()).await.unwrap();
    let records = own(&store, imported.session).await;
    assert_eq!(words(&records).len(), 5);
    let source = ImportSource::of(&records[3]).unwrap().unwrap();
    assert_eq!((source.line, source.time.as_deref()), (2, Some("2026-01-02T03:04:05Z")));
    assert_eq!(importer.import("talk.jsonl", text.as_bytes(), parsed).await.unwrap().outcome, ImportOutcome::Known);
    let grown = format!("{text}{{\"role\":\"user\",\"content\":\"Thanks.\"}}\n");
    let parsed = jsonl::read(grown.as_bytes()).unwrap();
    let more = importer.import("talk.jsonl", grown.as_bytes(), parsed).await.unwrap();
    assert_eq!((more.session, more.outcome), (imported.session, ImportOutcome::Extended { records: 1 }));
    for (bytes, why) in [
        ("", "line 1: the file has no messages"),
        ("{\"messages\":[]}\n", "line 1: it has no role"),
        ("{\"role\":\"user\"}\n", "line 1: it has no content"),
    ] {
        assert_eq!(jsonl::read(bytes.as_bytes()).unwrap_err().to_string(), why);
    }
}

proptest! {
    /// However a file is truncated or changed, it is parsed or rejected, and every message has its line.
    #[test]
    fn damaged_files_are_parsed_or_rejected(which in 0usize..6, at in any::<prop::sample::Index>(), flip in 1u8.., cut in any::<bool>()) {
        let names = ["plain", "forked", "separators", "crashed", "retried", "gaps"];
        let mut bytes = file(&format!("{}.jsonl", names[which]));
        let at = at.index(bytes.len());
        match cut {
            true => bytes.truncate(at),
            false => bytes[at] ^= flip,
        }
        for read in [openrath::read(&bytes), jsonl::read(&bytes)].into_iter().flatten() {
            let lines = bytes.split(|byte| *byte == b'\n').count() as u64;
            prop_assert!(read.messages.iter().all(|said| (1..=lines).contains(&said.line)));
            let lines: std::collections::BTreeSet<_> = read.messages.iter().map(|said| said.line).collect();
            prop_assert_eq!(lines.len(), read.messages.len(), "no line is used twice");
        }
    }
}
