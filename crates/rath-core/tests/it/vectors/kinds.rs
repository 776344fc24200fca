//! Makes a vector with one record of each kind that the other vectors do not contain.

use rath_core::body::{
    Answered, Arrived, ArrivedSession, Asked, Awaited, Candidate, CheckVerdict, Checkpointed, Committed, Determined,
    Effect, Erased, ErasedRange, EvidenceRef, Failed, Grant, Granted, Held, Imported, Linked, MemoryHit, MemoryRef,
    MemoryScope, MemoryStatus, MemoryUsed, ModelFailed, ModelRequested, NetDecided, QuestionKind, Recalled, Received,
    Released, Repair, ReplayDivergence, ReplayMode, ReplayVerdict, Replayed, Retracted, RolledBack, Routed, Sampled,
    Scope, Validated, Verdict, WaitKind,
};
use rath_core::checkpoint::{self, Checkpoint};

use super::making::{export, heads_of};
use super::*;

/// Adds the vector without changing the existing ones.
pub(super) fn add_vector() {
    let mut heads: Heads = read_json("heads.json");
    pollster::block_on(async {
        let store = InMemory::new();
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
    let session = &mut session;
    session.append(Linked {
        system: "jsonl".into(),
        uri: Some("talk.jsonl".into()),
        source: Some(source.reference.clone()),
        why: Some("it has grown".into()),
        heads: Vec::new(),
        repairs: vec![repair],
    })?;
    work(session)?;
    memory(session)?;
    waiting(session)?;
    session.append(Assistant::new(vec![Block::ToolUse {
        id: "call-1".into(),
        name: "read".into(),
        arguments: r#"{"path":"a.txt"}"#.into(),
    }]))?;
    session.tool_result("call-1", "one\ntwo\nthree")?;
    let last = session.context().await?.len() - 1;
    session.trim(last, "one … three").await?;
    operator_records(session)?;
    session.publish().await
}

/// Questions, models, choices and checks.
fn work(session: &mut Session) -> rath_core::Result<()> {
    session.append(ModelRequested::new("scripted-1", "whole@1", "scripted@1", Digest::of(b"the request")))?;
    session.append(ModelFailed { status: Some(529), retried: true, ..ModelFailed::new("overloaded") })?;
    let allows =
        Grant { tool: "write".into(), effect: Effect::Workspace, scope: Scope::Below { directory: "src".into() } };
    let asked =
        Asked { always: Some(Box::new(allows.clone())), ..Asked::new(QuestionKind::Approval, None, "write src/a.rs") };
    let shown_digest = asked.shown_digest;
    let asked = session.append(asked)?;
    session.append(Answered { asked, shown_digest, verdict: Verdict::Yes, why: Some("it is a copy".into()) })?;
    session.append(Granted { asked, allows })?;
    session.append(NetDecided { target: "example.org:443".into(), allowed: false, call: None, policy: None })?;
    session.append(Sampled { what: "clock".into(), value: "1794743556565191".into() })?;
    let candidate = |name: &str, score: f64| Candidate { name: name.into(), score: Some(score), why: None };
    session.append(Routed {
        candidates: vec![candidate("coder", 0.75), candidate("writer", 0.25)],
        chosen: vec!["coder".into()],
        why: Some("a test fails".into()),
        by: Some("keywords@1".into()),
        evidence: vec![EvidenceRef::record(session.head())],
    })?;
    session.append(Validated {
        validator: None,
        workspace: None,
        dropped: rath_core::files::Changes::default(),
        record: Some(session.head()),
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
    session.append(Replayed {
        session: session.id(),
        from: 0,
        to: 4,
        mode: ReplayMode::Check,
        verdict: ReplayVerdict::Diverged,
        diverged: Some(ReplayDivergence {
            at: Point { session: session.id(), seq: 2 },
            recorded: "scripted-1 is asked".into(),
            replayed: "scripted-2 is asked".into(),
        }),
    })?;
    session.append(Failed {
        why: "the model is overloaded".into(),
        code: Some("model-failed".into()),
        transient: false,
    })?;
    Ok(())
}

fn memory(session: &mut Session) -> rath_core::Result<()> {
    let before = session.head();
    let item = MemoryRef { id: "m-1".into(), version: 1 };
    session.append(Committed {
        item: item.clone(),
        scope: MemoryScope::Project,
        owner: Some("shop".into()),
        sort: "fact".into(),
        status: MemoryStatus::Hypothesis,
        content: "The tests need a database.".into(),
        evidence: vec![EvidenceRef::record(before)],
    })?;
    session.append(Recalled {
        query: "how are tests run?".into(),
        hits: vec![MemoryHit { item: item.clone(), score: Some(0.5), in_context: true }],
    })?;
    session.append(MemoryUsed { answer: None, items: vec![item.clone()], determined: Determined::InContext })?;
    session.append(Retracted { item, why: "they do not any more".into(), evidence: Vec::new() })?;
    let undone = vec![session.head()];
    session.append(RolledBack { to: before, undone, why: "it was a test".into() })?;
    Ok(())
}

fn waiting(session: &mut Session) -> rath_core::Result<()> {
    session.append(Awaited {
        id: "build".into(),
        what: WaitKind::Event,
        name: Some("build.finished".into()),
        until: Some(Time(1_794_743_556_565_191)),
        why: None,
    })?;
    assert_eq!(session.pending().waits.len(), 1);
    session.append(Received { id: "build".into(), value: Some(r#"{"passed":true}"#.into()), post: None })?;
    assert!(session.pending().waits.is_empty());
    Ok(())
}

/// The kinds of records of an operator session.
fn operator_records(session: &mut Session) -> rath_core::Result<()> {
    let held = session.append(Held { sessions: vec![session.id()], why: "an audit".into(), ..Held::default() })?;
    session.append(Released { holds: vec![held], why: "it is over".into() })?;
    session.append(Erased {
        erasure: "e-1".into(),
        why: "asked for".into(),
        rule: None,
        records: vec![ErasedRange { session: session.id(), from: 1, to: 1 }],
        sessions: Vec::new(),
        posts: 0,
        blobs: 0,
    })?;
    let lines = vec![ArrivedSession { session: session.id(), to: 4 }];
    session.append(Arrived { from: "a bundle".into(), sessions: lines, listed: None })?;
    let heads = checkpoint::Heads::default();
    let checkpoint: Checkpoint = serde_json::from_value(json!({
        "checkpoint": 1, "heads": heads.digest(), "key": "11".repeat(32), "no": 1, "records": 0, "sessions": 0,
        "signature": "22".repeat(64), "store": session.id(), "time": 1_794_743_556_565_191u64,
    }))
    .unwrap();
    session.append(Checkpointed::new(&checkpoint, &heads))?;
    Ok(())
}
