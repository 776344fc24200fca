//! A vector that holds one record of each kind that the others do not have.

use rath_core::body::{
    About, Answered, Arrived, ArrivedLine, Asked, Awaited, Candidate, CheckVerdict, Checkpointed, Committed,
    Determined, Effect, Erased, EvidenceRef, Failed, Grant, Granted, Held, Hit, Imported, Linked, MemoryRef,
    MemoryScope, MemoryStatus, MemoryUsed, ModelFailed, ModelRequested, NetDecided, Recalled, Received, Released,
    Repair, ReplayDivergence, ReplayMode, ReplayVerdict, Replayed, Retracted, RolledBack, Routed, Sampled, Scope,
    Stripped, Validated, Verdict, WaitsFor,
};
use rath_core::checkpoint::{self, Checkpoint};

use super::making::{export, heads_of};
use super::*;

/// Adds the vector to those that are there, which stay as they are.
pub(super) fn add_vector() {
    let mut heads: Heads = read_json("heads.json");
    pollster::block_on(async {
        let store = Memory::new();
        make(&store).await.unwrap();
        fs::write(directory().join("kinds.jsonl"), to_text(&export(&store).await)).unwrap();
        heads.insert("kinds.jsonl".into(), heads_of(&store).await);
    });
    fs::write(directory().join("heads.json"), to_json_text(&heads)).unwrap();
}

async fn make(store: &Arc<dyn Store>) -> rath_core::Result<()> {
    let source = Blob::new(&b"{\"role\":\"user\"}\n"[..], "application/jsonl");
    store.blob_put(vec![source.clone()]).await?;
    let repair = Repair { line: 1, what: "it has no content".into(), how: "taken for an empty one".into() };
    let imported = Imported {
        from: "jsonl".into(),
        source: source.reference.clone(),
        name: Some("talk.jsonl".into()),
        original: None,
        created_at: None,
        lineage: Vec::new(),
        parents: Vec::new(),
        trailer: None,
        repairs: vec![repair.clone()],
    };
    let mut session = Session::import(store, Actor::person("ada"), &imported);
    let line = &mut session;
    line.append(Linked {
        system: "jsonl".into(),
        uri: Some("talk.jsonl".into()),
        source: Some(source.reference.clone()),
        why: Some("it has grown".into()),
        heads: Vec::new(),
        repairs: vec![repair],
    })?;
    work(line)?;
    memory(line)?;
    waiting(line)?;
    line.append(Assistant::new(vec![Block::ToolUse {
        id: "call-1".into(),
        name: "read".into(),
        arguments: r#"{"path":"a.txt"}"#.into(),
    }]))?;
    line.tool_result("call-1", "one\ntwo\nthree")?;
    let last = line.context().await?.len() - 1;
    line.trim(last, "one … three").await?;
    care(line)?;
    session.publish().await
}

/// Questions, models, choices and checks.
fn work(line: &mut Session) -> rath_core::Result<()> {
    line.append(ModelRequested::new("scripted-1", "whole@1", "scripted@1", Digest::of(b"the request")))?;
    line.append(ModelFailed { status: Some(529), retried: true, ..ModelFailed::new("overloaded") })?;
    let allows =
        Grant { tool: "write".into(), effect: Effect::Workspace, scope: Scope::Below { directory: "src".into() } };
    let asked = Asked { always: Some(Box::new(allows.clone())), ..Asked::new(About::Approval, None, "write src/a.rs") };
    let shown_digest = asked.shown_digest;
    let asked = line.append(asked)?;
    line.append(Answered { asked, shown_digest, verdict: Verdict::Yes, why: Some("it is a copy".into()) })?;
    line.append(Granted { asked, allows })?;
    line.append(NetDecided { target: "example.org:443".into(), allowed: false, call: None, policy: None })?;
    line.append(Sampled { what: "clock".into(), value: "1794743556565191".into() })?;
    let candidate = |name: &str, score: f64| Candidate { name: name.into(), score: Some(score), why: None };
    line.append(Routed {
        candidates: vec![candidate("coder", 0.75), candidate("writer", 0.25)],
        chosen: vec!["coder".into()],
        why: Some("a test fails".into()),
        by: Some("keywords@1".into()),
        evidence: vec![EvidenceRef::record(line.head())],
    })?;
    line.append(Validated {
        record: Some(line.head()),
        what: Some("the patch".into()),
        verdict: CheckVerdict::Failed,
        score: Some(0.5),
        reasons: vec!["two tests fail".into()],
        evidence: vec![EvidenceRef {
            system: Some("ci".into()),
            uri: Some("https://ci.example/7".into()),
            ..EvidenceRef::default()
        }],
    })?;
    line.append(Replayed {
        session: line.id(),
        from: 0,
        to: 4,
        mode: ReplayMode::Check,
        verdict: ReplayVerdict::Diverged,
        diverged: Some(ReplayDivergence {
            at: Point { session: line.id(), seq: 2 },
            recorded: "scripted-1 is asked".into(),
            replayed: "scripted-2 is asked".into(),
        }),
    })?;
    line.append(Failed { why: "the model is overloaded".into(), code: Some("model-failed".into()), transient: false })?;
    Ok(())
}

fn memory(line: &mut Session) -> rath_core::Result<()> {
    let before = line.head();
    let item = MemoryRef { id: "m-1".into(), version: 1 };
    line.append(Committed {
        item: item.clone(),
        scope: MemoryScope::Project,
        owner: Some("shop".into()),
        sort: "fact".into(),
        status: MemoryStatus::Hypothesis,
        content: "The tests need a database.".into(),
        evidence: vec![EvidenceRef::record(before)],
    })?;
    line.append(Recalled {
        query: "how are tests run?".into(),
        hits: vec![Hit { item: item.clone(), score: Some(0.5), in_context: true }],
    })?;
    line.append(MemoryUsed { answer: None, items: vec![item.clone()], determined: Determined::InContext })?;
    line.append(Retracted { item, why: "they do not any more".into(), evidence: Vec::new() })?;
    let undone = vec![line.head()];
    line.append(RolledBack { to: before, undone, why: "it was a test".into() })?;
    Ok(())
}

fn waiting(line: &mut Session) -> rath_core::Result<()> {
    line.append(Awaited {
        id: "build".into(),
        what: WaitsFor::Event,
        name: Some("build.finished".into()),
        until: Some(Time(1_794_743_556_565_191)),
        why: None,
    })?;
    assert_eq!(line.pending().waits.len(), 1);
    line.append(Received { id: "build".into(), value: Some(r#"{"passed":true}"#.into()), post: None })?;
    assert!(line.pending().waits.is_empty());
    Ok(())
}

/// What stands on a store's operator session.
fn care(line: &mut Session) -> rath_core::Result<()> {
    let held = line.append(Held { sessions: vec![line.id()], why: "an audit".into(), ..Held::default() })?;
    line.append(Released { holds: vec![held], why: "it is over".into() })?;
    line.append(Erased {
        erasure: "e-1".into(),
        why: "asked for".into(),
        rule: None,
        records: vec![Stripped { session: line.id(), from: 1, to: 1 }],
        sessions: Vec::new(),
        posts: 0,
        blobs: 0,
    })?;
    let lines = vec![ArrivedLine { session: line.id(), to: 4 }];
    line.append(Arrived { from: "a bundle".into(), lines, listed: None })?;
    let heads = checkpoint::Heads::default();
    let checkpoint: Checkpoint = serde_json::from_value(json!({
        "checkpoint": 1, "heads": heads.digest(), "key": "11".repeat(32), "no": 1, "records": 0, "sessions": 0,
        "signature": "22".repeat(64), "store": line.id(), "time": 1_794_743_556_565_191u64,
    }))
    .unwrap();
    line.append(Checkpointed::new(&checkpoint, &heads))?;
    Ok(())
}
