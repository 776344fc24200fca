//! Golden vectors: exported records, checked by the library and by `docs/verify.py`, which must agree.
//!
//! The files in `tests/vectors` are valid, those in `tests/vectors/tampered` are not. `heads.json` and
//! `tampered/expected.json` contain the expected results. Ids, salts and times are random, so the files were written
//! once: `RATH_REGENERATE_VECTORS=1 cargo test -p rath-core --test it vectors::regenerate` writes all of them again,
//! `=derived` only those that are derived from others, and `=kinds` only the one with the kinds that the others do not
//! contain.

mod kinds;
mod making;
mod tampering;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rath_core::body::{Assistant, Block, ModelResponded, Outcome, ToolResult};
use rath_core::store::{Query, Scan};
use rath_core::verify::{ChainVerifier, Finding, FindingKind, ParentLink, VerifyReport};
use rath_core::{
    Actor, Blob, Digest, Header, HeaderCache, How, InMemory, Kind, Point, Record, RecordId, RecordParts, Reference,
    Session, SessionId, Store, Time, Usage, blob_references,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use making::{erase, write_valid_vectors};
use tampering::{Case, tampered};

const VALID: [&str; 7] =
    ["plain.jsonl", "graph.jsonl", "unknown.jsonl", "erased.jsonl", "blob.jsonl", "files.jsonl", "kinds.jsonl"];

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

    /// The record, without checks.
    fn record(&self, point: Point, generation: u64, kind: Kind) -> Record {
        let body = self.body.as_deref().unwrap_or_default();
        let bytes = [self.header.as_bytes(), body.as_bytes()].concat().into();
        let split = self.header.len() as u32;
        let salted = self.salt.as_ref().map(|salt| {
            let mut bytes = [0; 16];
            const_hex::decode_to_slice(salt, &mut bytes).unwrap();
            (bytes, split..split + body.len() as u32)
        });
        Record::unchecked(RecordParts { point, generation, kind: Some(kind), bytes, header: 0..split, body: salted })
            .unwrap()
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

/// The expected last record of each session in each file.
type Heads = BTreeMap<String, Vec<Reference>>;

/// The expected finding for each tampered file.
type Expectations = BTreeMap<String, Expected>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Expected {
    /// The first finding; `None` if the change cannot be detected.
    first: Option<Place>,
    /// The heads to check against.
    heads: Vec<Reference>,
}

/// A finding without its text.
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

/// Runs the library's `ChainVerifier` on exported records.
fn audit(lines: &[Line], heads: &[Reference]) -> VerifyReport {
    let mut report = VerifyReport::default();
    let arranged = arrange(lines, &mut report);
    report.sessions = arranged.len() as u64;
    let absent = heads.iter().filter(|head| arranged.iter().all(|(session, _)| *session != head.session));
    let absent: Vec<_> = absent.map(|head| (head.session, Vec::new())).collect();
    let mut links = Vec::new();
    for (session, records) in arranged.iter().chain(&absent) {
        let mut chain = ChainVerifier::new(*session);
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
    for ParentLink { child, child_time, parent, .. } in links {
        let (what, why) = match times.get(&parent) {
            None => (FindingKind::BrokenParent, "its parent is not in the input"),
            Some(time) if *time > child_time.0 => (FindingKind::Malformed, "its time is before that of its parent"),
            Some(_) => continue,
        };
        let (session, seq) = (Some(child.session), Some(child.seq));
        report.findings.push(Finding { what, session, seq, why: why.into() });
    }
    report
}

/// The fields of a header that give a record's position, parsed less strictly than a verifier parses them.
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

/// Sorts the records of each session as `verify.py` does: a record comes after its first parent if that came before it
/// in the file, or else at the position that its header gives.
fn arrange(lines: &[Line], report: &mut VerifyReport) -> Vec<(SessionId, Vec<Record>)> {
    struct Positioned<'a> {
        line: &'a Line,
        seq: u64,
        generation: u64,
        kind: Kind,
    }
    let mut arranged: Vec<(SessionId, Vec<Positioned<'_>>)> = Vec::new();
    let mut positions: HashMap<RecordId, (Point, u64)> = HashMap::new();
    for line in lines {
        let Some(Loose { point, kind, parents, .. }) = loose(line) else {
            let why = "the header does not give the position of the record".into();
            report.findings.push(Finding { what: FindingKind::Unreadable, session: None, seq: None, why });
            continue;
        };
        report.records += 1;
        report.erased += u64::from(line.body.is_none());
        let first = parents.first().and_then(|first| positions.get(first));
        let Point { session, seq } = match first {
            Some((parent, _)) if kind != Kind::Forked => Point { seq: parent.seq + 1, ..*parent },
            _ => point,
        };
        let at = arranged.iter().position(|(known, _)| *known == session).unwrap_or_else(|| {
            arranged.push((session, Vec::new()));
            arranged.len() - 1
        });
        let own = &mut arranged[at].1;
        // Generations are not exported, so matching ones are generated here.
        let generation = match first {
            Some(_) => parents.iter().filter_map(|id| positions.get(id)).map(|(_, above)| above + 1).max().unwrap_or(0),
            None => own.last().map_or(0, |last| last.generation + 1),
        };
        positions.insert(line.id(), (Point { session, seq }, generation));
        own.push(Positioned { line, seq, generation, kind });
    }
    let in_place = |(session, line): (SessionId, Vec<Positioned<'_>>)| {
        let mut places: Vec<u64> = line.iter().map(|standing| standing.seq).collect();
        places.sort_unstable();
        let at_place =
            |(it, seq): (Positioned<'_>, u64)| it.line.record(Point { session, seq }, it.generation, it.kind);
        (session, line.into_iter().zip(places).map(at_place).collect())
    };
    arranged.into_iter().map(in_place).collect()
}

fn places(findings: &Value) -> Vec<Place> {
    findings.as_array().unwrap().iter().map(|finding| serde_json::from_value(finding.clone()).unwrap()).collect()
}

/// Runs `docs/verify.py`. `None`, with a message on stderr, if Python is not installed.
#[allow(clippy::disallowed_methods, reason = "the auditor's verifier is a program of its own")]
fn verify_py(arguments: &[String]) -> Option<(i32, String)> {
    match std::process::Command::new("python3").arg(docs("verify.py")).args(arguments).output() {
        Ok(output) => Some((output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            rath_testkit::Requirement::Python.skip("python3 is not installed");
            None
        }
        Err(error) => panic!("python3: {error}"),
    }
}

/// Compares the findings of `verify.py` on a file with those of the library.
fn assert_python_agrees(name: &str, heads: &[Reference], report: &VerifyReport) {
    let mut arguments = vec!["--json".to_owned(), format!("--blobs={}", path_of("blobs"))];
    arguments.extend(heads.iter().map(|head| format!("--head={}@{}={}", head.session, head.seq, head.id)));
    arguments.push(path_of(name));
    let Some((code, output)) = verify_py(&arguments) else { return };
    let said: Value = serde_json::from_str(&output).unwrap();
    let known = serde_json::to_value(report).unwrap();
    assert_eq!(code, if report.is_valid() { 0 } else { 3 }, "{name}: exit code, with {output}");
    for count in ["records", "sessions", "erased"] {
        assert_eq!(said[count], known[count], "{name}: {count}");
    }
    assert_eq!(places(&said["findings"]), places(&known["findings"]), "{name}: findings");
}

// ---- Tests ---------------------------------------------------------------------------------------------------------

#[test]
fn valid_vectors_pass_both_verifiers() {
    let heads: Heads = read_json("heads.json");
    for name in VALID {
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
    for name in VALID {
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
    for name in VALID {
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
fn vectors_contain_every_kind_with_a_readable_body() {
    let lines: Vec<Line> = VALID.iter().flat_map(|name| read(name)).collect();
    for kind in Kind::KNOWN {
        let of_kind: Vec<_> = lines.iter().filter(|line| line.fields()["kind"] == kind.as_str()).collect();
        let Some(line) = of_kind.iter().find(|line| line.body.is_some()) else { panic!("no vector holds {kind}") };
        let Reference { session, seq, .. } = line.reference();
        let summary = rath_core::summary::of(&line.record(Point { session, seq }, 0, kind.clone()));
        let as_stored = line.body.as_deref().unwrap_or_default();
        assert!(summary.starts_with(kind.as_str()) && !summary.contains(as_stored), "{summary}");
    }
}

#[test]
fn both_verifiers_detect_tampered_vectors() {
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
    // The first blob is missing, the second has one flipped bit, the third is unchanged.
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
fn verify_py_reports_what_it_checked() {
    let run = |arguments: &[&str]| verify_py(&arguments.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
    let (plain, altered) = (path_of("plain.jsonl"), path_of("tampered/altered_last_header.jsonl"));
    let expectations: Expectations = read_json("tampered/expected.json");
    let Reference { session, seq, id } = expectations["altered_last_header.jsonl"].heads[0];

    let Some((code, said)) = run(&[&plain]) else { return };
    assert_eq!((code, said.as_str()), (0, "valid; records: 22, sessions: 1, erased: 0\n"));
    let (code, said) = run(&[&altered, &format!("--head={session}={id}")]).unwrap();
    assert_eq!(code, 3);
    assert!(said.starts_with(&format!("{session}@{seq}: altered_record: ")), "{said}");
    for usage in [&[][..], &["no such file"], &[&plain, "--head=nonsense"], &[&plain, "--blobs=no such directory"]] {
        assert_eq!(run(usage).unwrap(), (2, String::new()), "{usage:?}");
    }
}

#[test]
fn the_reference_shows_a_real_record_and_lists_every_kind() {
    let reference = fs::read_to_string(docs("reference/records.md")).unwrap();
    let Line { header, salt, body } = read("graph.jsonl").swap_remove(2);
    for text in [header, salt.unwrap(), body.unwrap()] {
        assert!(reference.contains(&text), "docs/reference/records.md does not show {text}");
    }
    for kind in Kind::KNOWN {
        assert!(reference.contains(&format!("| `{kind}` |")), "docs/reference/records.md does not list {kind}");
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
            parents: parents.into(),
            seq,
            session,
            step,
            time: Time(time),
            v: 1,
        },
    )
}

/// The header as a JSON value, built without the library's code.
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

/// An erased record with this header.
fn erased_record(header: &Header, bytes: &[u8]) -> Record {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let line = Line { header: text, salt: None, body: None };
    line.record(Point { session: header.session, seq: header.seq }, 0, header.kind.clone())
}

/// Whether a `ChainVerifier` accepts the header. It only remembers accepted records as its last one.
fn chain_accepts(header: &Header, bytes: &[u8]) -> bool {
    let record = erased_record(header, bytes);
    let mut chain = ChainVerifier::new(header.session);
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
        // The fields that can be read without parsing the rest are the same.
        let record = erased_record(&header, &bytes);
        prop_assert_eq!(record.time().unwrap(), header.time);
        prop_assert_eq!(record.first_parent(), header.parents.first().copied());
    }

    #[test]
    fn a_parsed_header_has_the_same_links_as_its_bytes(
        header in any_header(),
        body in proptest::option::of("\\PC{0,40}"),
        fits in any::<bool>(),
        more in prop_oneof![Just(""), Just(",\"z\":1")],
    ) {
        let salt = [7; 16];
        let text = body.unwrap_or_default();
        let body_digest = if fits { Digest::of_parts(&[&salt, text.as_bytes()]) } else { header.body_digest };
        let bytes = String::from_utf8(Header { body_digest, ..header }.to_bytes()).unwrap();
        let bytes = format!("{}{more}}}", &bytes[..bytes.len() - 1]);
        let header = Header::parse(bytes.as_bytes()).unwrap();
        let split = bytes.len() as u32;
        let point = Point { session: header.session, seq: header.seq };
        for body in [None, Some((salt, split..split + text.len() as u32))] {
            let parts = || {
                let bytes = [bytes.as_bytes(), text.as_bytes()].concat().into();
                RecordParts { point, generation: 3, kind: None, bytes, header: 0..split, body: body.clone() }
            };
            let said = |record: Record| {
                let fits = record.check_body().is_ok();
                (record.reference(), record.kind().clone(), record.first_parent(), fits, record.generation())
            };
            let (read, unread) = (Record::unchecked_with_header(&header, parts()), Record::unchecked(parts()));
            prop_assert_eq!(said(read.unwrap()), said(unread.unwrap()));
        }
    }

    #[test]
    fn headers_accepted_by_the_fast_parser_are_canonical(
        header in any_header(),
        (at, to) in (any::<proptest::sample::Index>(), "[0-9a-fA-F\"{},:\\-]"),
        (long, next) in ("[0-9]{1,20}", 0..1u64 << 53),
    ) {
        let bytes = header.to_bytes();
        let text = String::from_utf8(bytes.clone()).unwrap();
        let place = at.index(text.len());
        let place = (place..text.len()).find(|place| text.is_char_boundary(*place)).unwrap_or(0);
        let one_other = text.char_indices().map(|(at, c)| if at == place { to.clone() } else { c.into() }).collect();
        let (before, session) = (format!("\"seq\":{},", header.seq), header.session.0.to_string());
        let mut neighbour = *header.session.0.as_bytes();
        neighbour[15] ^= 1;
        let neighbour = SessionId(uuid::Uuid::from_bytes(neighbour));
        let stranger = Header { actor: Actor::person("somebody else"), ..header.clone() };
        let mut recurring = HeaderCache::default();
        let of_many = [&header, &stranger, &stranger, &header];
        let actors = of_many.map(|header| Some(Header::parse_plain(&header.to_bytes(), &mut recurring)?.actor));
        if actors[0].is_some() {
            let said = [&header.actor, &stranger.actor, &Actor::new("", ""), &header.actor];
            prop_assert_eq!(actors, said.map(|actor| Some(actor.clone())));
        }
        let respelled: [String; 8] = [
            one_other,
            text.replace(&before, &format!("\"seq\":{long},")),
            text.replace(&before, &format!("\"seq\":0{},", header.seq)),
            text.replace(&session, &session.to_uppercase()),
            Header { seq: next, ..header.clone() }.to_bytes().try_into().unwrap(),
            Header { session: neighbour, ..header.clone() }.to_bytes().try_into().unwrap(),
            stranger.to_bytes().try_into().unwrap(),
            String::from_utf8(stranger.to_bytes()).unwrap().replace(",\"v\":1}", ",\"v\":2}"),
        ];
        for text in respelled {
            // Alone, and after the original header.
            let mut recurring = HeaderCache::default();
            let plain = Header::parse_plain(text.as_bytes(), &mut HeaderCache::default());
            let _ = Header::parse_plain(&bytes, &mut recurring);
            let behind = Header::parse_plain(text.as_bytes(), &mut recurring);
            let same_actor = |header: Header| Header { actor: Actor::new("", ""), ..header };
            prop_assert_eq!(plain.clone().map(same_actor), behind.map(same_actor), "{}", text);
            if let Some(plain) = plain {
                prop_assert_eq!(serde_json::from_str::<Header>(&text).unwrap(), plain.clone(), "{}", text);
                prop_assert!(plain.is_canonical(text.as_bytes()), "{}", text);
                let more = format!("{text},\"salt\"");
                let begun = Header::parse_plain_prefix(more.as_bytes(), &mut HeaderCache::default());
                prop_assert_eq!(begun, Some((plain, text.len())));
                prop_assert_eq!(Header::parse_plain(more.as_bytes(), &mut HeaderCache::default()), None);
            }
        }
    }

    #[test]
    fn noncanonical_headers_are_rejected(header in any_header()) {
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

/// Without the variable: checks that the code below still derives the same files from the valid vectors.
#[test]
#[allow(clippy::disallowed_methods, reason = "only this test writes files, and only when it is asked to")]
fn regenerate() {
    let asked = std::env::var("RATH_REGENERATE_VECTORS").ok();
    match asked.as_deref() {
        Some("files") => return making::add_files_vector(),
        Some("kinds") => return kinds::add_vector(),
        _ => {}
    }
    let write_derived = asked.is_some();
    if write_derived && asked.as_deref() != Some("derived") {
        write_valid_vectors();
    }
    let (plain, graph) = (read("plain.jsonl"), read("graph.jsonl"));
    let mut derived = BTreeMap::from([("erased.jsonl".to_owned(), to_text(&erase(&plain, &[2, 5])))]);
    let mut expectations = Expectations::new();
    for Case { name, lines, first, heads } in tampered(&plain, &graph) {
        derived.insert(format!("tampered/{name}.jsonl"), to_text(&lines));
        expectations.insert(format!("{name}.jsonl"), Expected { first, heads });
    }
    derived.insert("tampered/expected.json".into(), to_json_text(&expectations));
    if write_derived {
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
