//! Golden vectors: records as they are exported, checked by the library and by `docs/verify.py`, which must agree.
//!
//! The files in `tests/vectors` are sound, those in `tests/vectors/tampered` are not; `heads.json` and
//! `tampered/expected.json` say what must come out. Ids, salts and times are random, so they were written once:
//! `RATH_REGENERATE_VECTORS=1 cargo test -p rath-core --test it vectors::regenerate` writes them anew.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;

use proptest::prelude::*;
use rath_core::body::{Assistant, Block, ModelResponded, Outcome, ToolResult};
use rath_core::store::{Query, Scan};
use rath_core::verify::{Chain, Finding, Link, Report, What};
use rath_core::{
    Actor, Blob, Digest, Header, How, Kind, Memory, Parts, Point, Record, RecordId, Reference, Session, SessionId,
    Store, Time, Usage, blob_references,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const SOUND: [&str; 5] = ["plain.jsonl", "graph.jsonl", "unknown.jsonl", "erased.jsonl", "blob.jsonl"];

// ---- The files -----------------------------------------------------------------------------------------------------

/// An exported record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    header: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    salt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<String>,
}

impl Line {
    fn of(record: &Record) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (salt, body) = record.salted_body().map(|(salt, body)| (const_hex::encode(salt), text(body))).unzip();
        Self { header: text(record.header_bytes()), salt, body }
    }

    fn id(&self) -> RecordId {
        RecordId(Digest::of(self.header.as_bytes()))
    }

    fn fields(&self) -> Value {
        serde_json::from_str(&self.header).unwrap()
    }

    fn reference(&self) -> Reference {
        let Header { session, seq, .. } = Header::parse(self.header.as_bytes()).unwrap();
        Reference { session, seq, id: self.id() }
    }

    /// The record, taken as it is.
    fn record(&self, point: Point, generation: u64, kind: Kind) -> Record {
        let body = self.body.as_deref().unwrap_or_default();
        let bytes: Arc<[u8]> = [self.header.as_bytes(), body.as_bytes()].concat().into();
        let split = self.header.len() as u32;
        let salted = self.salt.as_ref().map(|salt| {
            let mut bytes = [0; 16];
            const_hex::decode_to_slice(salt, &mut bytes).unwrap();
            (bytes, split..split + body.len() as u32)
        });
        Record::unchecked(Parts { point, generation, kind: Some(kind), bytes, header: 0..split, body: salted }).unwrap()
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

fn docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

fn path_of(name: &str) -> String {
    directory().join(name).display().to_string()
}

fn read(name: &str) -> Vec<Line> {
    let text = fs::read_to_string(directory().join(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn to_text(lines: &[Line]) -> String {
    lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect()
}

fn read_json<T: serde::de::DeserializeOwned>(name: &str) -> T {
    serde_json::from_slice(&fs::read(directory().join(name)).unwrap()).unwrap()
}

fn to_json_text<T: Serialize>(value: &T) -> String {
    serde_json::to_string_pretty(value).unwrap() + "\n"
}

/// The last record of each session in each file, as the session itself named it.
type Heads = BTreeMap<String, Vec<Reference>>;

/// What a verifier must say about each tampered file.
type Expectations = BTreeMap<String, Expected>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Expected {
    /// The first finding; `None` where nothing can be found.
    first: Option<Place>,
    /// The heads to pin.
    heads: Vec<Reference>,
}

/// A finding without its words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    what: String,
    session: Option<SessionId>,
    seq: Option<u64>,
}

impl Place {
    fn new(what: &str, at: Reference) -> Self {
        Self { what: what.into(), session: Some(at.session), seq: Some(at.seq) }
    }
}

// ---- The two verifiers ---------------------------------------------------------------------------------------------

/// What the library's `Chain` says of exported records.
fn audit(lines: &[Line], heads: &[Reference]) -> Report {
    let mut report = Report::default();
    let arranged = arrange(lines, &mut report);
    report.sessions = arranged.len() as u64;
    let absent = heads.iter().filter(|head| arranged.iter().all(|(session, _)| *session != head.session));
    let absent: Vec<_> = absent.map(|head| (head.session, Vec::new())).collect();
    let mut links = Vec::new();
    for (session, records) in arranged.iter().chain(&absent) {
        let mut chain = Chain::new(*session);
        for record in records {
            chain.check(record, &mut report.findings, &mut links);
        }
        let pinned = heads.iter().find(|head| head.session == *session).map(|head| (head.id, head.seq));
        let last = chain.last().map_or(RecordId(Digest([0; 32])), |last| last.id);
        let (head, seq) = pinned.unwrap_or((last, records.last().map_or(0, Record::seq)));
        chain.finish(head, seq, &mut report.findings);
    }
    let times: HashMap<RecordId, u64> =
        lines.iter().map(|line| (line.id(), loose(line).map_or(0, |header| header.time))).collect();
    for Link { child, child_time, parent, .. } in links {
        let (what, why) = match times.get(&parent) {
            None => (What::BrokenParent, "its parent is not in the input"),
            Some(time) if *time > child_time.0 => (What::Malformed, "its time is before its parent's"),
            Some(_) => continue,
        };
        let (session, seq) = (Some(child.session), Some(child.seq));
        report.findings.push(Finding { what, session, seq, why: why.into() });
    }
    report
}

/// What a header says, read with less care than a verifier takes: just enough to know where the record stands.
struct Loose {
    point: Point,
    kind: Kind,
    parents: Vec<RecordId>,
    time: u64,
}

fn loose(line: &Line) -> Option<Loose> {
    let fields: Value = serde_json::from_str(&line.header).ok()?;
    let session = fields["session"].as_str()?.parse().ok()?;
    let parents = fields["parents"].as_array()?.iter().map(|id| id.as_str()?.parse().ok());
    Some(Loose {
        point: Point { session, seq: fields["seq"].as_u64()? },
        kind: Kind::named(fields["kind"].as_str().unwrap_or_default()),
        parents: parents.collect::<Option<_>>()?,
        time: fields["time"].as_u64().unwrap_or_default(),
    })
}

/// The records of each session, each at the place where it stands: behind its first parent if that came before it,
/// else where its header says; taken in order, these are the places of the line. `verify.py` does the same.
fn arrange(lines: &[Line], report: &mut Report) -> Vec<(SessionId, Vec<Record>)> {
    struct Standing<'a> {
        line: &'a Line,
        seq: u64,
        generation: u64,
        kind: Kind,
    }
    let mut arranged: Vec<(SessionId, Vec<Standing<'_>>)> = Vec::new();
    let mut stands: HashMap<RecordId, (Point, u64)> = HashMap::new();
    for line in lines {
        let Some(Loose { point, kind, parents, .. }) = loose(line) else {
            let why = "the header does not say where the record stands".into();
            report.findings.push(Finding { what: What::Unreadable, session: None, seq: None, why });
            continue;
        };
        report.records += 1;
        report.erased += u64::from(line.body.is_none());
        let first = parents.first().and_then(|first| stands.get(first));
        let Point { session, seq } = match first {
            Some((parent, _)) if kind != Kind::Forked => Point { seq: parent.seq + 1, ..*parent },
            _ => point,
        };
        let at = arranged.iter().position(|(known, _)| *known == session).unwrap_or_else(|| {
            arranged.push((session, Vec::new()));
            arranged.len() - 1
        });
        let own = &mut arranged[at].1;
        // Generations are an index of the store, not part of an export: they are made up here so that they fit.
        let generation = match first {
            Some(_) => parents.iter().filter_map(|id| stands.get(id)).map(|(_, above)| above + 1).max().unwrap_or(0),
            None => own.last().map_or(0, |last| last.generation + 1),
        };
        stands.insert(line.id(), (Point { session, seq }, generation));
        own.push(Standing { line, seq, generation, kind });
    }
    let in_place = |(session, line): (SessionId, Vec<Standing<'_>>)| {
        let mut places: Vec<u64> = line.iter().map(|standing| standing.seq).collect();
        places.sort_unstable();
        let at_place = |(it, seq): (Standing<'_>, u64)| it.line.record(Point { session, seq }, it.generation, it.kind);
        (session, line.into_iter().zip(places).map(at_place).collect())
    };
    arranged.into_iter().map(in_place).collect()
}

fn places(findings: &Value) -> Vec<Place> {
    findings.as_array().unwrap().iter().map(|finding| serde_json::from_value(finding.clone()).unwrap()).collect()
}

/// Runs `docs/verify.py`; `None`, and a word about it, where there is no Python.
#[allow(clippy::disallowed_methods, reason = "the auditor's verifier is a program of its own")]
fn verify_py(arguments: &[String]) -> Option<(i32, String)> {
    match std::process::Command::new("python3").arg(docs("verify.py")).args(arguments).output() {
        Ok(output) => Some((output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // Not `eprintln!`, which the test harness keeps to itself.
            static SAID: Once = Once::new();
            SAID.call_once(|| std::io::stderr().write_all(b"skipped: python3 is not installed\n").unwrap());
            None
        }
        Err(error) => panic!("python3: {error}"),
    }
}

/// Holds what `verify.py` says of a file against what the library says.
fn assert_python_agrees(name: &str, heads: &[Reference], report: &Report) {
    let mut arguments = vec!["--json".to_owned(), format!("--blobs={}", path_of("blobs"))];
    arguments.extend(heads.iter().map(|head| format!("--head={}@{}={}", head.session, head.seq, head.id)));
    arguments.push(path_of(name));
    let Some((code, output)) = verify_py(&arguments) else { return };
    let said: Value = serde_json::from_str(&output).unwrap();
    let known = serde_json::to_value(report).unwrap();
    assert_eq!(code, if report.is_sound() { 0 } else { 3 }, "{name}: exit code, with {output}");
    for count in ["records", "sessions", "erased"] {
        assert_eq!(said[count], known[count], "{name}: {count}");
    }
    assert_eq!(places(&said["findings"]), places(&known["findings"]), "{name}: findings");
}

// ---- Tests ---------------------------------------------------------------------------------------------------------

#[test]
fn sound_vectors_are_sound_in_both_verifiers() {
    let heads: Heads = read_json("heads.json");
    for name in SOUND {
        let lines = read(name);
        assert_eq!(to_text(&lines), fs::read_to_string(directory().join(name)).unwrap(), "{name}");
        for heads in [&[][..], &heads[name]] {
            let report = audit(&lines, heads);
            assert_eq!(report.findings, [], "{name}");
            assert_eq!(report.records, lines.len() as u64, "{name}");
            assert_python_agrees(name, heads, &report);
        }
        let sessions: BTreeSet<SessionId> = heads[name].iter().map(|head| head.session).collect();
        assert_eq!(sessions.len() as u64, audit(&lines, &[]).sessions, "{name}: a head for each session");
    }
}

#[test]
fn records_keep_their_text() {
    for name in SOUND {
        for line in read(name) {
            let Reference { session, seq, id } = line.reference();
            let record = line.record(Point { session, seq }, 0, Header::parse(line.header.as_bytes()).unwrap().kind);
            assert_eq!((Line::of(&record), record.id()), (line, id), "{name}");
        }
    }
}

#[test]
fn headers_are_canonical() {
    let mut with_unknown_fields = 0;
    for name in SOUND {
        for line in read(name) {
            assert_eq!(serde_jcs::to_string(&line.fields()).unwrap(), line.header, "{name}");
            let header = Header::parse(line.header.as_bytes()).unwrap();
            assert!(header.is_canonical(line.header.as_bytes()), "{name}: {}", line.header);
            if header.to_bytes() != line.header.as_bytes() {
                assert_eq!(name, "unknown.jsonl", "{}", line.header);
                with_unknown_fields += 1;
            }
        }
    }
    assert_eq!(with_unknown_fields, 2);
}

#[test]
fn vectors_hold_every_typed_kind() {
    let typed = "assistant cancelled closed compressed created detached forked labelled merged model_responded note \
        rejected step_entered step_left system tool_result user";
    let lines: Vec<Line> = SOUND.iter().flat_map(|name| read(name)).collect();
    for kind in typed.split_whitespace() {
        assert!(lines.iter().any(|line| line.fields()["kind"] == kind), "no vector holds {kind}");
    }
}

#[test]
fn tampered_vectors_are_found_out_by_both_verifiers() {
    let expectations: Expectations = read_json("tampered/expected.json");
    for (name, expected) in expectations {
        let name = format!("tampered/{name}");
        let report = audit(&read(&name), &expected.heads);
        let found = places(&serde_json::to_value(&report.findings).unwrap());
        assert_eq!(found.first(), expected.first.as_ref(), "{name}: {:?}", report.findings);
        assert_python_agrees(&name, &expected.heads, &report);
    }
}

#[test]
fn verify_py_names_missing_and_altered_blobs() {
    let blobs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("vectors-blobs");
    let _ = fs::remove_dir_all(&blobs);
    fs::create_dir_all(&blobs).unwrap();
    let mut named = Vec::new();
    for line in read("blob.jsonl") {
        let at = line.reference();
        for blob in blob_references(line.body.unwrap().as_bytes()) {
            named.push((at, directory().join("blobs").join(blob.digest.to_string())));
        }
    }
    // The first stays away, the second has one bit flipped, the third is as it was.
    let mut content = fs::read(&named[1].1).unwrap();
    content[0] ^= 1;
    fs::write(blobs.join(named[1].1.file_name().unwrap()), content).unwrap();
    fs::copy(&named[2].1, blobs.join(named[2].1.file_name().unwrap())).unwrap();
    assert_eq!(named.len(), 3);

    let arguments = ["--json".into(), format!("--blobs={}", blobs.display()), path_of("blob.jsonl")];
    let Some((code, output)) = verify_py(&arguments) else { return };
    let said: Value = serde_json::from_str(&output).unwrap();
    let expected = [Place::new("blob_missing", named[0].0), Place::new("blob_altered", named[1].0)];
    assert_eq!((code, places(&said["findings"])), (3, expected.to_vec()));
}

#[test]
fn verify_py_says_what_it_did() {
    let run = |arguments: &[&str]| verify_py(&arguments.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
    let (plain, altered) = (path_of("plain.jsonl"), path_of("tampered/altered_last_header.jsonl"));
    let expectations: Expectations = read_json("tampered/expected.json");
    let Reference { session, seq, id } = expectations["altered_last_header.jsonl"].heads[0];

    let Some((code, said)) = run(&[&plain]) else { return };
    assert_eq!((code, said.as_str()), (0, "sound; records: 22, sessions: 1, erased: 0\n"));
    let (code, said) = run(&[&altered, &format!("--head={session}={id}")]).unwrap();
    assert_eq!(code, 3);
    assert!(said.starts_with(&format!("{session}@{seq}: altered_record: ")), "{said}");
    for usage in [&[][..], &["no such file"], &[&plain, "--head=nonsense"], &[&plain, "--blobs=no such directory"]] {
        assert_eq!(run(usage).unwrap(), (2, String::new()), "{usage:?}");
    }
}

#[test]
fn the_reference_shows_a_real_record_and_lists_every_kind() {
    let reference = fs::read_to_string(docs("records.md")).unwrap();
    let Line { header, salt, body } = read("graph.jsonl").swap_remove(2);
    for text in [header, salt.unwrap(), body.unwrap()] {
        assert!(reference.contains(&text), "docs/records.md does not show {text}");
    }
    for kind in Kind::KNOWN {
        assert!(reference.contains(&format!("| `{kind}` |")), "docs/records.md does not list {kind}");
    }
}

fn any_header() -> impl Strategy<Value = Header> {
    let text =
        || prop_oneof!["[a-z]{0,12}", "\\PC{0,12}", any::<String>(), "[\u{0}-\u{20}\"\\\\/\u{7f}-\u{9f}\u{2028}]*"];
    let digest = || any::<[u8; 32]>().prop_map(Digest);
    let number = || prop_oneof![0..10u64, 0..1u64 << 53];
    let actor = (text(), text(), proptest::option::of(text()), proptest::option::of(text()))
        .prop_map(|(kind, name, principal, how_authenticated)| Actor { how_authenticated, kind, name, principal });
    let kind = prop_oneof![proptest::sample::select(Kind::KNOWN), text().prop_map(|name| Kind::named(&name))];
    let id = || digest().prop_map(RecordId);
    let session = any::<[u8; 16]>().prop_map(|bytes| SessionId(uuid::Uuid::from_bytes(bytes)));
    let links = (proptest::collection::vec(id(), 0..5), proptest::option::of(id()));
    (actor, digest(), proptest::option::of(number()), kind, links, number(), session, number()).prop_map(
        |(actor, body_digest, clock_behind, kind, (parents, step), seq, session, time)| Header {
            actor,
            body_digest,
            clock_behind,
            kind,
            parents,
            seq,
            session,
            step,
            time: Time(time),
            v: 1,
        },
    )
}

/// The header as a JSON value, by another way than the library's.
fn as_value(header: &Header) -> Value {
    let mut value = json!({
        "v": header.v, "time": header.time, "session": header.session, "seq": header.seq, "parents": header.parents,
        "kind": header.kind.as_str(), "body_digest": header.body_digest,
        "actor": {"kind": header.actor.kind, "name": header.actor.name},
    });
    let optional = |value: &mut Value, name: &str, field: Value| {
        if !field.is_null() {
            value[name] = field;
        }
    };
    optional(&mut value["actor"], "principal", json!(header.actor.principal));
    optional(&mut value["actor"], "how_authenticated", json!(header.actor.how_authenticated));
    optional(&mut value, "clock_behind", json!(header.clock_behind));
    optional(&mut value, "step", json!(header.step));
    value
}

/// Whether a `Chain` takes the header for one in order. It remembers only such records as its last.
fn chain_accepts(header: &Header, bytes: &[u8]) -> bool {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let line = Line { header: text, salt: None, body: None };
    let record = line.record(Point { session: header.session, seq: header.seq }, 0, header.kind.clone());
    let mut chain = Chain::new(header.session);
    chain.check(&record, &mut Vec::new(), &mut Vec::new());
    chain.last().is_some_and(|last| last.id == record.id())
}

proptest! {
    #[test]
    fn any_header_is_written_canonically(header in any_header()) {
        let bytes = header.to_bytes();
        prop_assert_eq!(&bytes, &serde_jcs::to_vec(&as_value(&header)).unwrap());
        prop_assert_eq!(Header::parse(&bytes).unwrap(), header.clone());
        prop_assert!(chain_accepts(&header, &bytes));
    }

    #[test]
    fn any_other_spelling_of_a_header_is_refused(header in any_header()) {
        let text = String::from_utf8(header.to_bytes()).unwrap();
        let without_v = text.strip_suffix(",\"v\":1}").unwrap().to_owned();
        let respelled = [
            format!(" {text}"),
            text.replacen("{\"actor\"", "{ \"actor\"", 1),
            without_v.replacen('{', "{\"v\":1,", 1) + "}",
            without_v.clone() + ",\"v\":1.0}",
            without_v + ",\"v\":1,\"z\":2.0}",
        ];
        for text in respelled {
            prop_assert!(!chain_accepts(&header, text.as_bytes()), "{}", text);
        }
    }
}

/// Without the variable: what was derived from the sound vectors is still what the code below derives from them.
#[test]
#[allow(clippy::disallowed_methods, reason = "only this test writes files, and only when it is asked to")]
fn regenerate() {
    let write_all = std::env::var("RATH_REGENERATE_VECTORS").is_ok();
    if write_all {
        write_sound_vectors();
    }
    let (plain, graph) = (read("plain.jsonl"), read("graph.jsonl"));
    let mut derived = BTreeMap::from([("erased.jsonl".to_owned(), to_text(&erase(&plain, &[2, 5])))]);
    let mut expectations = Expectations::new();
    for Case { name, lines, first, heads } in tampered(&plain, &graph) {
        derived.insert(format!("tampered/{name}.jsonl"), to_text(&lines));
        expectations.insert(format!("{name}.jsonl"), Expected { first, heads });
    }
    derived.insert("tampered/expected.json".into(), to_json_text(&expectations));
    if write_all {
        fs::create_dir_all(directory().join("tampered")).unwrap();
        derived.iter().for_each(|(name, text)| fs::write(directory().join(name), text).unwrap());
    }
    for (name, text) in &derived {
        let stored = fs::read_to_string(directory().join(name)).unwrap();
        assert!(stored == *text, "{name} is not what the sound vectors make it");
    }
    let stored = fs::read_dir(directory().join("tampered")).unwrap().count();
    assert_eq!(stored, expectations.len() + 1, "files in tampered/ that nothing expects");
}

// ---- Making the sound vectors --------------------------------------------------------------------------------------

fn write_sound_vectors() {
    let _ = fs::remove_dir_all(directory());
    fs::create_dir_all(directory().join("blobs")).unwrap();
    let mut heads = Heads::new();
    let mut write = |name: &str, lines: &[Line], of: Vec<Reference>| {
        fs::write(directory().join(name), to_text(lines)).unwrap();
        heads.insert(name.into(), of);
    };
    pollster::block_on(async {
        let store = Memory::new();
        make_plain(&store).await.unwrap();
        let plain = export(&store).await;
        write("plain.jsonl", &plain, heads_of(&store).await);
        write("erased.jsonl", &erase(&plain, &[2, 5]), heads_of(&store).await);

        let store = Memory::new();
        make_graph(&store).await.unwrap();
        write("graph.jsonl", &export(&store).await, heads_of(&store).await);

        let store = Memory::new();
        make_blob(&store).await.unwrap();
        write("blob.jsonl", &export(&store).await, heads_of(&store).await);

        let store = Memory::new();
        make_unknown(&store).await.unwrap();
        let mut lines = export(&store).await;
        add_unknown_fields(&mut lines);
        write("unknown.jsonl", &lines, vec![lines.last().unwrap().reference()]);
    });
    fs::write(directory().join("heads.json"), to_json_text(&heads)).unwrap();
}

/// Everything in a store as lines; its blobs as files.
async fn export(store: &Arc<dyn Store>) -> Vec<Line> {
    let page = store.scan(Scan::store(0)).await.unwrap();
    assert!(!page.more);
    for blob in page.records.iter().flat_map(|record| blob_references(record.body_bytes().unwrap())) {
        let content = store.blob_get(blob.digest).await.unwrap().unwrap();
        fs::write(directory().join("blobs").join(blob.digest.to_string()), content).unwrap();
    }
    page.records.iter().map(Line::of).collect()
}

async fn heads_of(store: &Arc<dyn Store>) -> Vec<Reference> {
    store.sessions(Query::default()).await.unwrap().iter().map(|row| row.head_reference()).collect()
}

/// Lets some time pass, so that a time can be altered a little and still lie between its neighbours.
fn pause() {
    std::thread::sleep(Duration::from_millis(2));
}

/// One session with every kind that a session writes by itself.
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
    session.append(ModelResponded { model: Some("scripted-1".into()), usage })?;
    let call = |id: &str, arguments: &str| Block::ToolUse {
        id: id.into(),
        name: "search".into(),
        arguments: arguments.into(),
    };
    session.append(Assistant {
        blocks: vec![
            Block::Reasoning { text: "I should look that up.".into() },
            Block::Text { text: "Let me look. ☕".into() },
            call("call-1", r#"{"query": "排序 \u2028 quick", "limit":1.0}"#),
            call("call-2", "{}"),
        ],
    })?;
    session.tool_result("call-1", "Quicksort; \"introsort\"")?;
    session.append(ToolResult {
        call: "call-2".into(),
        finished: None,
        shown: Some("no query".into()),
        failed: true,
    })?;
    session.leave(Outcome::Done)?;
    session.assistant("Quicksort.")?;
    session.label("sprache", "日本語")?;
    session.unlabel("sprache")?;
    session.leave(Outcome::Done)?;
    session.compress(1, 4, "Ada asked what is quick to sort; it is quicksort.").await?;
    session.enter("again")?;
    session.append(Assistant { blocks: vec![call("call-3", "{}")] })?;
    session.cancel("Ada has read enough")?;
    pause();
    session.close("done").await
}

/// Two forks appended, one of two others kept, one session detached.
async fn make_graph(store: &Arc<dyn Store>) -> rath_core::Result<()> {
    let mut session = Session::create(store, Actor::person("ada"));
    session.enter("compare")?;
    pause();
    session.user("Name a sorting algorithm.")?;
    pause();
    let mut quick = session.fork("fast on average");
    quick.act_as(Actor::agent("quick"));
    quick.append(ModelResponded { model: None, usage: Usage { requests: 1, output_tokens: 3, ..Usage::default() } })?;
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

/// Contents above the limit, one exactly at it, and a picture.
async fn make_blob(store: &Arc<dyn Store>) -> rath_core::Result<()> {
    let mut session = Session::create(store, Actor::person("ada"));
    let long = |word: &str, bytes: usize| word.repeat(bytes / word.len() + 1);
    session.user(long("長い話 ", rath_core::INLINE_LIMIT))?;
    session.note("x".repeat(rath_core::INLINE_LIMIT))?;
    let picture = Blob::new(&b"not really a picture"[..], "image/png");
    store.blob_put(picture.clone()).await?;
    session.append(Assistant {
        blocks: vec![
            Block::Text { text: long("a long answer ", rath_core::INLINE_LIMIT).into() },
            Block::Image { image: picture.reference },
        ],
    })?;
    session.publish().await
}

async fn make_unknown(store: &Arc<dyn Store>) -> rath_core::Result<()> {
    let mut session = Session::create(store, Actor::person("ada"));
    session.user("How is the weather?")?;
    session.append_json("weather.report", r#"{ "sky":"☁",  "celsius":-1.50, "n":1e2, "wind":null }"#)?;
    session.append_json("user", r#"{"text":"Thanks.","mood":"a field of a later version"}"#)?;
    session.publish().await
}

/// Records as a later version may write them: with more fields in header and actor.
fn add_unknown_fields(lines: &mut Vec<Line>) {
    let mut fields = successor(lines.last().unwrap(), "user");
    // Keys are sorted by UTF-16: U+1F600 begins with 0xD83D and stands before U+FB00.
    fields["\u{1f600}"] = json!({"\u{fb00}": [], "\u{1f600}": {}, "": [true, false, null]});
    fields["\u{fb00}"] = json!("\u{8}\u{c}\n\r\t\u{1}\u{7f}\u{2028}\"\\/");
    fields["annex"] = json!({"body_digest": "of something else", "parents": ["of something else"]});
    fields["limits"] = json!([-(1i64 << 53), -7, 0, 1i64 << 53]);
    lines.push(sealed(fields, r#"{"text":"Later."}"#));

    let mut fields = successor(lines.last().unwrap(), "weather.report");
    fields["actor"]["device"] = json!("barometer");
    lines.push(sealed(fields, "{}"));

    // Not unknown, but not to be had from a clock that works.
    let mut fields = successor(lines.last().unwrap(), "note");
    fields["time"] = lines.last().unwrap().fields()["time"].clone();
    fields["clock_behind"] = json!(1500);
    lines.push(sealed(fields, r#"{"text":"The clock was set back."}"#));
}

fn erase(lines: &[Line], places: &[usize]) -> Vec<Line> {
    let mut lines = lines.to_vec();
    for place in places {
        lines[*place] = Line { header: lines[*place].header.clone(), salt: None, body: None };
    }
    lines
}

/// A header, still without its digest, that follows `line`.
fn successor(line: &Line, kind: &str) -> Value {
    let before = line.fields();
    json!({
        "actor": {"kind": "agent", "name": "by hand"}, "kind": kind, "parents": [line.id()],
        "seq": before["seq"].as_u64().unwrap() + 1, "session": before["session"],
        "time": before["time"].as_u64().unwrap() + 1, "v": 1,
    })
}

/// The record with this header and body, hashed as it should be.
fn sealed(mut fields: Value, body: &str) -> Line {
    let salt = *b"sixteen bytes...";
    fields["body_digest"] = json!(Digest::of_parts(&[&salt, body.as_bytes()]));
    let header = serde_jcs::to_string(&fields).unwrap();
    Line { header, salt: Some(const_hex::encode(salt)), body: Some(body.into()) }
}

// ---- Making the tampered vectors -----------------------------------------------------------------------------------

struct Case {
    name: &'static str,
    lines: Vec<Line>,
    first: Option<Place>,
    heads: Vec<Reference>,
}

/// The same record with fields of its header changed; canonical, but with another id.
fn altered(line: &Line, change: impl FnOnce(&mut Value)) -> Line {
    let mut fields = line.fields();
    change(&mut fields);
    Line { header: serde_jcs::to_string(&fields).unwrap(), ..line.clone() }
}

fn later(fields: &mut Value) {
    fields["time"] = json!(fields["time"].as_u64().unwrap() + 1);
}

/// The same record with its header's text changed.
fn respelled(line: &Line, from: &str, to: &str) -> Line {
    assert_eq!(line.header.matches(from).count(), 1, "{from} in {}", line.header);
    Line { header: line.header.replace(from, to), ..line.clone() }
}

/// The same lines, but for one.
fn with(lines: &[Line], at: usize, line: Line) -> Vec<Line> {
    let mut lines = lines.to_vec();
    lines[at] = line;
    lines
}

/// What can be done to records. Most cases do it to record 3 of the first six of `plain`.
fn tampered(plain: &[Line], graph: &[Line]) -> Vec<Case> {
    const K: usize = 3;
    let base = &plain[..6];
    let session = base[0].reference().session;
    let stranger = graph[0].reference().session;
    let head = base[5].reference();
    let mut cases = Vec::new();
    let mut case = |name, lines: Vec<Line>, first: Option<(&str, u64)>, heads: &[Reference]| {
        let place = |(what, seq): (&str, u64)| Place { what: what.into(), session: Some(session), seq: Some(seq) };
        cases.push(Case { name, lines, first: first.map(place), heads: heads.to_vec() });
    };
    let with = |at: usize, line: Line| with(base, at, line);
    let spelled = |from: &str, to: &str| with(K, respelled(&base[K], from, to));
    let without = |at: usize| [&base[..at], &base[at + 1..]].concat();
    let and_then = |lines: &[Line], more: Line| [lines, &[more]].concat();

    // Bodies.
    let body = base[K].body.as_ref().unwrap().replace("quick", "quack");
    case("flipped_body", with(K, Line { body: Some(body), ..base[K].clone() }), Some(("altered_body", 3)), &[]);
    let mut salt = base[K].salt.clone().unwrap();
    let flipped = if salt.pop() == Some('0') { '1' } else { '0' };
    salt.push(flipped);
    case("flipped_salt", with(K, Line { salt: Some(salt), ..base[K].clone() }), Some(("altered_body", 3)), &[]);
    let swapped = Line { header: base[K].header.clone(), ..base[2].clone() };
    case("body_of_another", with(K, swapped), Some(("altered_body", 3)), &[]);

    // Headers that look like headers, but have another id.
    case("altered_header", with(K, altered(&base[K], later)), Some(("altered_record", 3)), &[]);
    case("altered_first_header", with(0, altered(&base[0], later)), Some(("altered_record", 0)), &[]);
    let last = with(5, altered(&base[5], later));
    case("altered_last_header", last.clone(), Some(("altered_record", 5)), &[head]);
    case("altered_last_header_unpinned", last, None, &[]);
    let parent = altered(&base[K], |fields| fields["parents"] = json!([Digest::of(b"nothing")]));
    case("broken_parent", with(K, parent), Some(("altered_record", 3)), &[]);
    let foreign = altered(&base[K], |fields| fields["session"] = json!(stranger));
    case("foreign", with(K, foreign), Some(("foreign", 3)), &[]);
    let moved = altered(&base[K], |fields| fields["seq"] = json!(9));
    case("altered_seq", with(K, moved), Some(("reordered", 3)), &[]);

    // Records that come, go and move.
    case("dropped", without(K), Some(("dropped", 3)), &[]);
    case("dropped_first", without(0), Some(("dropped", 0)), &[]);
    case("dropped_last", without(5), Some(("dropped", 5)), &[head]);
    case("dropped_last_unpinned", without(5), None, &[]);
    case("longer_than_pinned", base.to_vec(), Some(("index", 5)), &[base[4].reference()]);
    let mut pair = base.to_vec();
    pair.swap(K, K + 1);
    case("reordered", pair, Some(("reordered", 3)), &[]);
    let mut twice = base.to_vec();
    twice.insert(K + 1, sealed(successor(&base[K - 1], "user"), r#"{"text":"another"}"#));
    case("duplicate_seq", twice, Some(("duplicate", 3)), &[]);
    case("doubled_line", [&base[..=K], &base[K..]].concat(), Some(("duplicate", 3)), &[]);

    // Headers in another form.
    let malformed = Some(("malformed", 3));
    case("white_space", spelled("{\"actor\"", "{ \"actor\""), malformed, &[]);
    let v_first = respelled(&respelled(&base[K], ",\"v\":1}", "}"), "{\"actor\"", "{\"v\":1,\"actor\"");
    case("unsorted_keys", with(K, v_first), malformed, &[]);
    let time = format!("\"time\":{}", base[K].fields()["time"]);
    case("number_with_fraction", spelled(&time, &format!("{time}.0")), malformed, &[]);
    case("unknown_number_with_fraction", spelled("\"v\":1}", "\"v\":1,\"z\":1.0}"), malformed, &[]);
    case("needless_escape", spelled("os-user", "os\\u002duser"), malformed, &[]);
    case("doubled_key", spelled("\"v\":1}", "\"v\":1,\"v\":1}"), malformed, &[]);
    let digest = base[K].fields()["body_digest"].as_str().unwrap().to_owned();
    case("upper_case_digest", spelled(&digest, &digest.to_uppercase()), malformed, &[]);
    case("future_envelope", spelled("\"v\":1}", "\"v\":2}"), Some(("unreadable", 3)), &[]);

    // Records that are hashed as they should be, and break a rule.
    let note = r#"{"text":"one more"}"#;
    let after_closed = sealed(successor(plain.last().unwrap(), "note"), note);
    case("after_closed", and_then(plain, after_closed), Some(("malformed", plain.len() as u64)), &[]);
    let next = |change: &dyn Fn(&mut Value)| {
        let mut fields = successor(&base[5], "note");
        change(&mut fields);
        and_then(base, sealed(fields, note))
    };
    let earlier = json!(base[5].fields()["time"].as_u64().unwrap() - 1);
    case("time_runs_back", next(&|fields| fields["time"] = earlier.clone()), Some(("malformed", 6)), &[]);
    case("begins_again", next(&|fields| fields["kind"] = json!("created")), Some(("malformed", 6)), &[]);
    case("merge_of_one", next(&|fields| fields["kind"] = json!("merged")), Some(("malformed", 6)), &[]);
    let two = json!([base[5].id(), base[4].id()]);
    case("note_of_two", next(&|fields| fields["parents"] = two.clone()), Some(("malformed", 6)), &[]);

    let not_json = spelled("{\"actor\"", "\"actor\"");
    let nowhere = Some(Place { what: "unreadable".into(), session: None, seq: None });
    cases.push(Case { name: "not_json", lines: not_json, first: nowhere, heads: vec![] });
    cases.extend(tampered_graph(graph));
    cases
}

/// What can be done between sessions.
fn tampered_graph(graph: &[Line]) -> Vec<Case> {
    let at = |kind: &str| graph.iter().position(|line| line.fields()["kind"] == kind).unwrap();
    let (merged, forked, said) = (at("merged"), at("forked"), at("assistant"));
    let of_branch = |line: &Line| line.reference().session == graph[forked].reference().session;
    let (branch, others): (Vec<Line>, Vec<Line>) = graph.iter().cloned().partition(of_branch);
    let other = altered(&graph[merged], |fields| fields["parents"][1] = json!(Digest::of(b"nothing")));
    let moved = altered(&graph[said], |fields| fields["session"] = json!(graph[0].reference().session));
    let heads = vec![branch.last().unwrap().reference()];
    let case = |name, lines, what: &str, at: usize, heads: Vec<Reference>| {
        let first = Some(Place::new(what, graph[at].reference()));
        Case { name, lines, first, heads }
    };
    vec![
        case("fork_without_origin", branch, "broken_parent", forked, vec![]),
        case("missing_session", others, "dropped", forked, heads),
        case("altered_merge", with(graph, merged, other), "altered_record", merged, vec![]),
        case("altered_branch", with(graph, said, altered(&graph[said], later)), "altered_record", said, vec![]),
        case("foreign_in_graph", with(graph, said, moved), "foreign", said, vec![]),
    ]
}
