//! The target for headers, segments and bodies. The first byte selects one of the three.

use bytes::Bytes;
use rath_core::body::*;
use rath_core::{
    Actor, Digest, Header, Kind, Point, Record, RecordParts, SessionId, State, Time, blob_references, summary,
};
use rath_store::segment;

const SESSION: SessionId = SessionId(uuid::Uuid::nil());

/// Runs the target with one input.
pub fn record(data: &[u8]) {
    let Some((which, data)) = data.split_first() else { return };
    match which % 3 {
        0 => header(data),
        1 => segment(data),
        _ => body(data),
    }
}

/// Checks that a parsed header, written and parsed again, is equal.
fn header(data: &[u8]) {
    let Ok(header) = Header::parse(data) else { return };
    let written = header.to_bytes();
    assert_eq!(Header::parse(&written).as_ref(), Ok(&header));
    let _ = header.is_canonical(data);
}

/// Checks that records survive being packed into segments again.
fn segment(data: &[u8]) {
    let bytes = Bytes::from(segment::decompress(data).into_owned());
    let Ok(records) = segment::read(SESSION, 0, 0, &bytes, |_| true) else { return };
    records.iter().for_each(read_everything);
    let packed = segment::pack(&records);
    let again = packed.iter().flat_map(|segment| {
        let data = Bytes::from(segment::decompress(&segment.data).into_owned());
        segment::read(SESSION, segment.first_seq, segment.generation, &data, |_| true)
            .expect("a packed segment can be read")
    });
    let again: Vec<Record> = again.collect();
    assert_eq!(again.len(), records.len());
    for (one, two) in records.iter().zip(&again) {
        assert_eq!((one.id(), one.salted_body(), one.kind()), (two.id(), two.salted_body(), two.kind()));
        assert_eq!((one.seq(), one.generation()), (two.seq(), two.generation()));
    }
}

/// Runs every function that reads a record with valid bytes.
fn read_everything(record: &Record) {
    let _ = record.header();
    let _ = record.first_parent();
    let _ = record.origin();
    let _ = summary::of(record);
    if let Some(body) = record.body_bytes() {
        let _ = blob_references(body);
    }
    let mut state = State::default();
    if state.apply(record).is_ok() {
        let _ = state.to_snapshot();
    }
    assert_eq!(record.erased().id(), record.id());
    assert!(record.erased().check_body().is_ok());
}

/// Puts the input as a body of the kind that its first byte selects under a matching header.
fn body(data: &[u8]) {
    let Some((kind, body)) = data.split_first() else { return };
    let kind = &Kind::KNOWN[usize::from(*kind) % Kind::KNOWN.len()];
    let salt = [7; 16];
    let header = Header {
        actor: Actor::program("fuzz"),
        body_digest: Digest::of_parts(&[&salt, body]),
        clock_behind: None,
        kind: kind.clone(),
        parents: rath_core::Parents::new(),
        seq: 3,
        session: SESSION,
        step: None,
        time: Time(1),
        v: 1,
    };
    let header = header.to_bytes();
    let (end, all) = (header.len() as u32, [header.as_slice(), body].concat());
    let parts = RecordParts {
        point: Point { session: SESSION, seq: 3 },
        generation: 3,
        kind: None,
        header: 0..end,
        body: Some((salt, end..all.len() as u32)),
        bytes: all.into(),
    };
    let record = Record::from_parts(parts).expect("the header has the digest of the body");
    read_everything(&record);
    macro_rules! round_trips {
        ($($body:ty)*) => { $(round_trip::<$body>(&record);)* };
    }
    round_trips! {
        Created Forked Detached Merged Closed Rejected Labelled System User Assistant ToolResult ModelRequested
        ModelResponded ModelFailed Compressed StepEntered StepLeft Cancelled Note Asked Answered Granted Sampled Failed
        ToolStarted ToolFinished Placed SandboxOpened SandboxClosed SandboxLost Restored Resolved
    }
}

/// Checks that a parsed body, written and parsed again, is equal.
fn round_trip<B: Body>(record: &Record) {
    let Ok(body) = record.body::<B>() else { return };
    let written = serde_json::to_vec(&body).expect("a body can be written");
    let read: B = serde_json::from_slice(&written).expect("a written body can be read");
    assert_eq!(serde_json::to_vec(&read).expect("a body can be written"), written);
}
