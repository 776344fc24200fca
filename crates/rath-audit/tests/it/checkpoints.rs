//! Signed checkpoints: what they reveal that a store by itself does not, and what they reject.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rath::body::Checkpointed;
use rath::prelude::*;
use rath::store::Query;
use rath::verify::{Finding, FindingKind};
use rath_audit::checkpoint::{
    Checkpoint, CheckpointError, CheckpointOptions, Heads, MAX_LINE, MOST_SUCCESSIONS, PublicKey, Signature,
    SigningKey, audit, chain, compare, is_signed, make,
};
use rath_testkit::copy_dir;
use rusqlite::Connection;

/// A store with three sessions, two of them in two segments, and a key.
struct Lab {
    dir: tempfile::TempDir,
    key: SigningKey,
    ids: Vec<SessionId>,
}

fn ada() -> Actor {
    Actor::person("ada")
}

impl Lab {
    async fn new() -> Self {
        let lab = Self { dir: tempfile::tempdir().unwrap(), key: SigningKey::generate().unwrap(), ids: Vec::new() };
        let store = Embedded::create(lab.original()).unwrap();
        let mut ids = Vec::new();
        for name in ["first", "second", "third"] {
            let mut session = store.create(ada());
            session.user(format!("the {name} question")).unwrap();
            session.publish().await.unwrap();
            ids.push(session.id());
        }
        Self { ids, ..lab }
    }

    fn original(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn copy(&self) -> PathBuf {
        checkpoint_wal(&self.original());
        let copy = tempfile::tempdir_in(self.dir.path()).unwrap().keep();
        copy_dir(&self.original(), &copy);
        copy
    }

    async fn checkpoint(&self, path: &Path) -> Checkpoint {
        make(&Embedded::open(path).unwrap(), ada(), &self.key, CheckpointOptions::default()).await.unwrap()
    }

    fn trusted(&self) -> Vec<PublicKey> {
        vec![self.key.public()]
    }

    /// The findings of a store that is verified against external copies of checkpoints.
    async fn found(&self, path: &Path, lines: &[Checkpoint]) -> Vec<Finding> {
        audit(&Embedded::open(path).unwrap(), lines, 1, &self.trusted()).await.unwrap().findings
    }

    /// Changes a copy of the store with SQL, checks that the store alone still looks valid, and returns the findings of
    /// its checkpoints.
    async fn sabotaged(&self, statements: &str, lines: &[Checkpoint]) -> Vec<Finding> {
        let copy = self.copy();
        Connection::open(copy.join("rath.db")).unwrap().execute_batch(statements).unwrap();
        assert!(is_valid(&copy), "the store alone looks valid");
        self.found(&copy, lines).await
    }

    fn no(&self, session: SessionId) -> i64 {
        let db = Connection::open(self.original().join("rath.db")).unwrap();
        db.query_row("SELECT no FROM sessions WHERE id = ?1", [session.0.as_bytes()], |row| row.get(0)).unwrap()
    }

    /// SQL that cuts a session off after a record, and sets its row to that in `before`, an earlier copy.
    fn cut(&self, session: SessionId, seq: u64, before: &Path) -> String {
        let no = self.no(session);
        format!(
            "ATTACH '{}' AS earlier;
             DELETE FROM ids WHERE segment IN (SELECT cursor FROM segments WHERE session = {no} AND first_seq > {seq});
             DELETE FROM segments WHERE session = {no} AND first_seq > {seq};
             DELETE FROM snapshots WHERE session = {no} AND seq > {seq};
             UPDATE sessions SET (head, seq, time, generation, title, labels) =
                (SELECT head, seq, time, generation, title, labels FROM earlier.sessions WHERE no = {no}) WHERE no = {no};",
            before.join("rath.db").display()
        )
    }

    async fn add_note(&self, path: &Path, session: SessionId, text: &str) {
        let store = Embedded::open(path).unwrap();
        let mut session = store.open(session, ada()).await.unwrap();
        session.assistant(text).unwrap();
        session.publish().await.unwrap();
    }
}

/// Moves the write-ahead log into the database.
fn checkpoint_wal(path: &Path) {
    Embedded::open_as(path, "test").unwrap().checkpoint().unwrap();
}

fn is_valid(path: &Path) -> bool {
    Embedded::open_as(path, "test").unwrap().verify(None, &mut |_, _| {}).unwrap().is_valid()
}

/// Signs an arbitrary statement.
fn sign(key: &SigningKey, statement: &str) -> Signature {
    let kept: serde_json::Value = serde_json::from_str(&key.to_text()).unwrap();
    let seed: PublicKey = serde_json::from_value(kept["seed"].clone()).unwrap();
    let pair = ring::signature::Ed25519KeyPair::from_seed_unchecked(&seed.0).unwrap();
    Signature(pair.sign(statement.as_bytes()).as_ref().try_into().unwrap())
}

fn kinds(findings: &[Finding]) -> Vec<FindingKind> {
    findings.iter().map(|finding| finding.what).collect()
}

#[tokio::test]
async fn a_store_that_only_grows_matches_all_its_checkpoints() {
    let lab = Lab::new().await;
    let path = lab.original();
    let first = lab.checkpoint(&path).await;
    assert_eq!((first.no, first.sessions, first.records, first.previous), (1, 4, 8, None));
    lab.add_note(&path, lab.ids[0], "an answer").await;
    let second = lab.checkpoint(&path).await;
    assert_eq!((second.no, second.records, second.previous), (2, 10, Some(first.digest())));
    assert_eq!(Checkpoint::parse(&second.line()).unwrap(), second);
    assert!(second.line().len() < 700 && !second.line().contains('\n'));
    lab.add_note(&path, lab.ids[1], "another").await;
    assert_eq!(lab.found(&path, &[first.clone(), second.clone()]).await, []);
    assert!(is_valid(&path));
    let seen = audit(&Embedded::open(&path).unwrap(), &[], 2, &lab.trusted()).await.unwrap();
    assert_eq!((seen.stored, seen.since, seen.heads), (2, Some(second), 4));
    // Without a trusted key there is a remark and no finding.
    let seen = audit(&Embedded::open(&path).unwrap(), &[first], 1, &[]).await.unwrap();
    assert!(seen.findings.is_empty() && seen.remarks[0].contains("is not trusted"));
}

#[tokio::test]
async fn a_cut_off_tail_is_found() {
    let lab = Lab::new().await;
    let path = lab.original();
    let before = lab.copy();
    lab.add_note(&path, lab.ids[1], "it is settled").await;
    let line = lab.checkpoint(&path).await;
    // Only the session is cut off: the checkpoint is still there.
    let found = lab.sabotaged(&lab.cut(lab.ids[1], 1, &before), &[]).await;
    assert_eq!(kinds(&found), [FindingKind::CutOff]);
    assert_eq!((found[0].session, found[0].seq), (Some(lab.ids[1]), Some(2)));
    assert!(found[0].why.starts_with("record 2 is cut off: checkpoint 1 ("), "{}", found[0].why);
    // The operator session is cut off too: only an external copy of the checkpoint reveals it.
    let operator = line.store;
    let both = format!("{}{}", lab.cut(lab.ids[1], 1, &before), lab.cut_operator(operator));
    assert_eq!(lab.sabotaged(&both, &[]).await, []);
    let found = lab.sabotaged(&both, std::slice::from_ref(&line)).await;
    assert_eq!(kinds(&found), [FindingKind::CutOff, FindingKind::CutOff]);
    assert!(
        found[0].why.contains("checkpoint 1 (") && found[0].why.contains("is not in this store"),
        "{}",
        found[0].why
    );
    assert_eq!(found[1].session, Some(lab.ids[1]), "the list of heads is still there, and names it");
    // Without the list of heads: the count reveals it.
    let found = lab.sabotaged(&format!("{both} DELETE FROM blobs; DELETE FROM packs;"), &[line]).await;
    assert!(found[1].why.contains("counts 9 records, 8 are left: 1 was cut off"), "{}", found[1].why);
}

impl Lab {
    /// SQL that removes the checkpoint from the operator session, whose first segment has `created` and the title.
    fn cut_operator(&self, operator: SessionId) -> String {
        let no = self.no(operator);
        let store: Arc<dyn Store> = Embedded::open(self.original()).unwrap();
        let title = pollster::block_on(View::of(&store, operator, Some(1))).unwrap();
        let record = title.record();
        let (id, time) = (record.id(), record.time().unwrap().0);
        format!(
            "DELETE FROM ids WHERE segment IN (SELECT cursor FROM segments WHERE session = {no} AND first_seq > 1);
             DELETE FROM segments WHERE session = {no} AND first_seq > 1;
             DELETE FROM snapshots WHERE session = {no} AND seq > 1;
             UPDATE sessions SET head = x'{id}', seq = 1, time = {time}, generation = 1 WHERE no = {no};"
        )
    }
}

#[tokio::test]
async fn a_rewritten_session_is_found() {
    let lab = Lab::new().await;
    let path = lab.original();
    let other = lab.copy();
    lab.add_note(&path, lab.ids[2], "the truth").await;
    lab.checkpoint(&path).await;
    lab.add_note(&path, lab.ids[2], "and more").await;
    lab.add_note(&other, lab.ids[2], "a lie").await;
    lab.add_note(&other, lab.ids[2], "and more").await;
    checkpoint_wal(&other);
    // Replaces this history by the other one, with consistent hashes and columns.
    let no = lab.no(lab.ids[2]);
    let transplant = format!(
        "ATTACH '{}' AS other;
         DELETE FROM ids WHERE segment IN (SELECT cursor FROM segments WHERE session = {no});
         DELETE FROM segments WHERE session = {no};
         DELETE FROM snapshots WHERE session = {no};
         INSERT INTO segments (session, first_seq, count, generation, kinds, data)
            SELECT session, first_seq, count, generation, kinds, data FROM other.segments WHERE session = {no} ORDER BY cursor;
         INSERT INTO snapshots SELECT * FROM other.snapshots WHERE session = {no};
         UPDATE sessions SET (head, seq, time, generation) =
            (SELECT head, seq, time, generation FROM other.sessions WHERE no = {no}) WHERE no = {no};",
        other.join("rath.db").display()
    );
    let found = lab.sabotaged(&transplant, &[]).await;
    assert_eq!(kinds(&found), [FindingKind::Rewritten]);
    assert_eq!((found[0].session, found[0].seq), (Some(lab.ids[2]), Some(2)));
    assert!(found[0].why.contains("the session was rewritten"), "{}", found[0].why);
}

#[tokio::test]
async fn a_missing_session_is_named() {
    let lab = Lab::new().await;
    lab.checkpoint(&lab.original()).await;
    let no = lab.no(lab.ids[0]);
    let gone = format!(
        "DELETE FROM ids WHERE segment IN (SELECT cursor FROM segments WHERE session = {no});
         DELETE FROM segments WHERE session = {no}; DELETE FROM snapshots WHERE session = {no};
         DELETE FROM sessions WHERE no = {no};"
    );
    let found = lab.sabotaged(&gone, &[]).await;
    assert_eq!(kinds(&found), [FindingKind::Gone]);
    assert_eq!(found[0].session, Some(lab.ids[0]));
    // A recorded removal excuses the session if it was recorded after the checkpoint.
    for (records, missed) in [(2, 0), (1, 1)] {
        let copy = lab.copy();
        Connection::open(copy.join("rath.db")).unwrap().execute_batch(&gone).unwrap();
        let store = Embedded::open(&copy).unwrap();
        let mut operator = rath_audit::operator(&store, ada()).await.unwrap();
        let (session, head) = (lab.ids[0], operator.head().id);
        let removed = format!(r#"{{"session": "{session}", "head": "{head}", "records": {records}}}"#);
        operator
            .append_json("erased", &format!(r#"{{"erasure": "e1", "why": "age", "sessions": [{removed}]}}"#))
            .unwrap();
        operator.publish().await.unwrap();
        drop((operator, store));
        lab.checkpoint(&copy).await;
        assert_eq!(lab.found(&copy, &[]).await.len(), missed);
    }
    // A later record does not hide it: the counts of checkpoints decrease.
    let copy = lab.copy();
    Connection::open(copy.join("rath.db")).unwrap().execute_batch(&gone).unwrap();
    lab.checkpoint(&copy).await;
    assert!(kinds(&lab.found(&copy, &[]).await).contains(&FindingKind::CutOff));
}

/// A checkpoint that carries a valid succession of another key, to which it does not belong.
#[tokio::test]
async fn a_succession_to_another_key_does_not_count() {
    let lab = Lab::new().await;
    let store = Embedded::open(lab.original()).unwrap();
    lab.checkpoint(&lab.original()).await;
    let second = lab.key.rotate().unwrap();
    let third = second.rotate().unwrap();
    let genuine = make(&store, ada(), &third, CheckpointOptions::default()).await.unwrap();
    let stranger = SigningKey::generate().unwrap();
    let heads = Heads::of(&store.sessions(Query::default()).await.unwrap());
    let mut forged = Checkpoint {
        no: 3,
        previous: Some(genuine.digest()),
        key: stranger.public(),
        heads: heads.digest(),
        records: heads.records(),
        sessions: heads.sessions(),
        ..genuine
    };
    forged.signature = sign(&stranger, &forged.statement());
    assert!(is_signed(&forged));
    let mut operator = rath_audit::operator(&store, ada()).await.unwrap();
    operator.append(Checkpointed::new(&forged, &heads)).unwrap();
    operator.publish().await.unwrap();
    for key in [&lab.key, &second, &third] {
        let found = audit(&store, &[], 1, &[key.public()]).await.unwrap().findings;
        assert!(found.iter().any(|found| found.why.contains("not with the one that you trust")), "{found:?}");
    }
}

#[tokio::test]
async fn a_clock_that_was_set_back_causes_no_findings() {
    let lab = Lab::new().await;
    let store = Embedded::open(lab.original()).unwrap();
    let first = lab.checkpoint(&lab.original()).await;
    let (session, no) = (lab.ids[0], lab.no(lab.ids[0]));
    let mut operator = rath_audit::operator(&store, ada()).await.unwrap();
    let (head, records) = (operator.head().id, 2);
    let removed = format!(r#"{{"session": "{session}", "head": "{head}", "records": {records}}}"#);
    operator.append_json("erased", &format!(r#"{{"erasure": "e1", "why": "age", "sessions": [{removed}]}}"#)).unwrap();
    operator.publish().await.unwrap();
    Connection::open(lab.original().join("rath.db"))
        .unwrap()
        .execute_batch(&format!(
            "DELETE FROM ids WHERE segment IN (SELECT cursor FROM segments WHERE session = {no});
             DELETE FROM segments WHERE session = {no}; DELETE FROM snapshots WHERE session = {no};
             DELETE FROM sessions WHERE no = {no};"
        ))
        .unwrap();
    // A checkpoint made after the clock was set back has the time of the previous one.
    let heads = Heads::of(&store.sessions(Query::default()).await.unwrap());
    let mut second = Checkpoint {
        no: 2,
        previous: Some(first.digest()),
        heads: heads.digest(),
        records: heads.records(),
        sessions: heads.sessions(),
        ..first.clone()
    };
    second.signature = sign(&lab.key, &second.statement());
    assert!(second.sessions < first.sessions && second.time == first.time);
    operator.append(Checkpointed::new(&second, &heads)).unwrap();
    operator.publish().await.unwrap();
    drop((operator, store));
    assert_eq!(lab.found(&lab.original(), &[]).await, []);
    assert_eq!(lab.found(&lab.original(), &[first, second]).await, []);
}

#[tokio::test]
async fn the_first_difference_of_diverged_copies_is_reported() {
    let lab = Lab::new().await;
    let here = lab.original();
    lab.checkpoint(&here).await;
    let there = lab.copy();
    let stores = || (Embedded::open(&here).unwrap(), Embedded::open(&there).unwrap());
    let compared = async || {
        let (here, there) = stores();
        compare(&here, &there).await.unwrap()
    };
    let same = compared().await;
    assert_eq!((same.sessions, same.checkpoints, same.findings, same.remarks), (4, 1, vec![], vec![]));
    // A copy that is behind does not contradict the other.
    lab.add_note(&here, lab.ids[0], "one").await;
    let behind = compared().await;
    assert!(behind.findings.is_empty() && behind.remarks[0].starts_with("longer here: "), "{behind:?}");
    // The other copy diverges.
    lab.add_note(&there, lab.ids[0], "two").await;
    let diverged = compared().await;
    assert_eq!(kinds(&diverged.findings), [FindingKind::Rewritten]);
    assert_eq!((diverged.findings[0].session, diverged.findings[0].seq), (Some(lab.ids[0]), Some(2)));
    // Both are signed: an external copy of one checkpoint reveals the other.
    let (ours, theirs) = (lab.checkpoint(&here).await, lab.checkpoint(&there).await);
    assert_eq!((ours.no, theirs.no), (2, 2));
    let diverged = compared().await;
    assert!(kinds(&diverged.findings).starts_with(&[FindingKind::Equivocation]), "{diverged:?}");
    let found = lab.found(&here, std::slice::from_ref(&theirs)).await;
    assert_eq!(found[0].what, FindingKind::Equivocation);
    assert!(found[0].why.contains("two histories were signed"), "{}", found[0].why);
    let list = "its list of heads is not in this store";
    assert!(found[1].why.ends_with(list), "what was never here is not lost: {}", found[1].why);
    // An older copy lacks what the other has signed.
    let older = lab.copy();
    lab.checkpoint(&here).await;
    let lacking = compare(&Embedded::open(&older).unwrap(), &Embedded::open(&here).unwrap()).await.unwrap();
    assert_eq!(kinds(&lacking.findings), [FindingKind::CutOff]);
}

#[tokio::test]
async fn a_copy_that_was_cut_off_after_its_own_checkpoint_is_found() {
    let lab = Lab::new().await;
    let path = lab.original();
    let before = lab.copy();
    lab.add_note(&path, lab.ids[1], "it is settled").await;
    let line = lab.checkpoint(&path).await;
    let no = lab.no(lab.ids[2]);
    let gone = format!(
        "DELETE FROM ids WHERE segment IN (SELECT cursor FROM segments WHERE session = {no});
         DELETE FROM segments WHERE session = {no}; DELETE FROM snapshots WHERE session = {no};
         DELETE FROM sessions WHERE no = {no};"
    );
    let cut = lab.cut(lab.ids[1], 1, &before);
    for lists in ["", "DELETE FROM blobs; DELETE FROM packs;"] {
        let copy = lab.copy();
        Connection::open(copy.join("rath.db")).unwrap().execute_batch(&format!("{cut}{gone}{lists}")).unwrap();
        let (ours, theirs) = (Embedded::open(&copy).unwrap(), Embedded::open(&path).unwrap());
        for (seen, whose) in [
            (compare(&ours, &theirs).await.unwrap(), "this copy"),
            (compare(&theirs, &ours).await.unwrap(), "the other copy"),
        ] {
            let mut found: Vec<_> = seen.findings.iter().map(|it| (it.session.unwrap(), it.what, &it.why)).collect();
            found.sort_by_key(|(session, ..)| lab.ids.iter().position(|id| id == session));
            let told = format!("{whose}: record 2 is cut off: checkpoint 1 ({})", line.time);
            assert_eq!((found.len(), found[0].1, found[1].1), (2, FindingKind::CutOff, FindingKind::Gone), "{found:?}");
            assert!(found[0].2.starts_with(&told), "{found:?}");
            assert!(found[1].2.starts_with(&format!("{whose}: the session is gone: ")), "{found:?}");
        }
    }
    // A copy from before the checkpoint is only older.
    let seen = compare(&Embedded::open(&path).unwrap(), &Embedded::open(&before).unwrap()).await.unwrap();
    assert_eq!(seen.findings, []);
}

#[tokio::test]
async fn keys_can_be_rotated_up_to_the_limit() {
    let lab = Lab::new().await;
    let store = Embedded::open(lab.original()).unwrap();
    lab.checkpoint(&lab.original()).await;
    let often = |key: &SigningKey, times: usize| (1..times).fold(key.rotate().unwrap(), |key, _| key.rotate().unwrap());
    let last = often(&lab.key, MOST_SUCCESSIONS);
    assert!(last.rotate().is_err() && last.to_text().len() < 32 << 10);
    // With the longest note, each of whose bytes is escaped as six bytes.
    let note = Some("\u{1}".repeat(500));
    let line = make(&store, ada(), &last, CheckpointOptions { note, previous_key_lost: false }).await.unwrap();
    assert_eq!(line.successions.len(), MOST_SUCCESSIONS);
    // The chain continues, and a checkpoint drops the signatures that the store already has.
    let next = last.rotate_and_forget().unwrap();
    assert_eq!(next.successions().len(), 1);
    make(&store, ada(), &next, CheckpointOptions::default()).await.unwrap();
    assert_eq!(audit(&store, &[], 1, &lab.trusted()).await.unwrap().findings, []);
    // A key that was rotated more often, before the limit existed, starts a new chain.
    let far = often(&next, MOST_SUCCESSIONS - 1);
    let mut kept: serde_json::Value = serde_json::from_str(&far.to_text()).unwrap();
    let all = [last.successions(), far.successions()].concat();
    kept["successions"] = serde_json::to_value(&all).unwrap();
    let far = SigningKey::from_text(&kept.to_string()).unwrap();
    let other = Lab::new().await;
    let other = Lab { key: SigningKey::from_text(&lab.key.to_text()).unwrap(), ..other };
    other.checkpoint(&other.original()).await;
    let store = Embedded::open(other.original()).unwrap();
    let refused = make(&store, ada(), &far, CheckpointOptions::default()).await;
    assert!(matches!(refused, Err(CheckpointError::TooManyRotations { no: 1, rotations: 128 })), "{refused:?}");
    let new_chain = make(&store, ada(), &far, CheckpointOptions { note: None, previous_key_lost: true }).await.unwrap();
    assert!(new_chain.previous_key_lost && new_chain.successions.is_empty());
}

#[tokio::test]
async fn another_store_and_a_store_without_checkpoints_are_distinguished() {
    let (lab, other) = (Lab::new().await, Lab::new().await);
    let line = lab.checkpoint(&lab.original()).await;
    assert_eq!(kinds(&other.found(&other.original(), std::slice::from_ref(&line)).await), [FindingKind::CutOff]);
    other.checkpoint(&other.original()).await;
    let found = other.found(&other.original(), &[line]).await;
    assert_eq!(kinds(&found), [FindingKind::Foreign]);
    let stores = (Embedded::open(lab.original()).unwrap(), Embedded::open(other.original()).unwrap());
    assert_eq!(kinds(&compare(&stores.0, &stores.1).await.unwrap().findings), [FindingKind::Foreign]);
    // An empty store has only its operator session.
    let store = InMemory::new();
    let first =
        make(&store, ada(), &lab.key, CheckpointOptions { note: Some("empty".into()), previous_key_lost: false })
            .await
            .unwrap();
    assert_eq!((first.sessions, first.records), (1, 2));
    assert!(audit(&store, &[first], 1, &lab.trusted()).await.unwrap().findings.is_empty());
}

#[tokio::test]
async fn unsigned_and_missing_checkpoints_are_found() {
    let lab = Lab::new().await;
    let path = lab.original();
    let first = lab.checkpoint(&path).await;
    let forged = async |change: &dyn Fn(&mut Checkpoint)| {
        let copy = lab.copy();
        let store = Embedded::open(&copy).unwrap();
        let heads = Heads::of(&store.sessions(Query::default()).await.unwrap());
        let mut forged = Checkpoint { no: 2, previous: Some(first.digest()), heads: heads.digest(), ..first.clone() };
        change(&mut forged);
        let mut operator = rath_audit::operator(&store, ada()).await.unwrap();
        operator.append(Checkpointed::new(&forged, &heads)).unwrap();
        operator.publish().await.unwrap();
        drop((operator, store));
        assert!(is_valid(&copy));
        lab.found(&copy, &[]).await
    };
    let unsigned = forged(&|_| {}).await;
    assert_eq!(kinds(&unsigned), [FindingKind::Checkpoint]);
    assert!(unsigned[0].why.contains("altered or forged"));
    let gap = forged(&|it| it.no = 4).await;
    assert!(gap.iter().any(|finding| finding.why.contains("instead of 2")), "{gap:?}");
    let twice = forged(&|it| *it = first.clone()).await;
    assert_eq!(kinds(&twice), [FindingKind::Equivocation]);
    let fewer = forged(&|it| it.records = 1).await;
    assert!(kinds(&fewer).contains(&FindingKind::CutOff));
    // An invalid checkpoint is reported with its record.
    let copy = lab.copy();
    let store = Embedded::open(&copy).unwrap();
    let mut operator = rath_audit::operator(&store, ada()).await.unwrap();
    let mut body = Checkpointed::new(&first, &Heads::default());
    body.line = "{}".into();
    operator.append(body).unwrap();
    operator.publish().await.unwrap();
    let at = operator.head();
    drop(operator);
    let found = lab.found(&copy, &[]).await;
    assert_eq!((found[0].session, found[0].seq), (Some(at.session), Some(at.seq)));
    assert!(matches!(
        make(&store, ada(), &lab.key, CheckpointOptions::default()).await,
        Err(CheckpointError::Unreadable(_))
    ));
}

#[tokio::test]
async fn the_chain_verifies_across_rotations_and_lost_keys_are_reported() {
    let lab = Lab::new().await;
    let store = Embedded::open(lab.original()).unwrap();
    let made = async |key: &SigningKey, previous_key_lost| {
        make(&store, ada(), key, CheckpointOptions { note: None, previous_key_lost }).await
    };
    made(&lab.key, false).await.unwrap();
    let second = lab.key.rotate().unwrap();
    let third = SigningKey::from_text(&second.rotate().unwrap().to_text()).unwrap();
    let line = made(&third, false).await.unwrap();
    assert_eq!(line.successions.len(), 2);
    assert!(is_signed(&line) && Checkpoint::parse(&line.line()).is_ok());
    assert!(made(&third, false).await.unwrap().successions.is_empty());
    let trusting = async |key: PublicKey| audit(&store, &[], 1, &[key]).await.unwrap();
    // Trusting any of the keys that signed is enough to follow to the others.
    for key in [lab.key.public(), second.public(), third.public()] {
        assert_eq!(trusting(key).await.findings, []);
    }
    let stranger = SigningKey::generate().unwrap();
    let found = trusting(stranger.public()).await.findings;
    assert!(found[0].why.contains("not with the one that you trust"), "{found:?}");
    // Neither an old key nor another key continues the chain.
    for key in [&lab.key, &second, &stranger] {
        assert!(matches!(made(key, false).await, Err(CheckpointError::OtherKey { no: 3, .. })));
    }
}

#[tokio::test]
async fn a_new_chain_after_a_lost_key_is_reported() {
    let lab = Lab::new().await;
    let store = Embedded::open(lab.original()).unwrap();
    lab.checkpoint(&lab.original()).await;
    let fresh = SigningKey::generate().unwrap();
    assert!(matches!(
        make(&store, ada(), &fresh, CheckpointOptions::default()).await,
        Err(CheckpointError::OtherKey { no: 1, .. })
    ));
    let line = make(&store, ada(), &fresh, CheckpointOptions { note: None, previous_key_lost: true }).await.unwrap();
    assert!(line.previous_key_lost && line.no == 2 && line.previous.is_some());
    // With the new key trusted there is a remark; with the old one, or none, a finding.
    let trusting = async |keys: &[PublicKey]| audit(&store, &[], 1, keys).await.unwrap();
    let new = trusting(&[fresh.public()]).await;
    assert!(new.findings.is_empty() && new.remarks[0].contains("starts a new chain"), "{new:?}");
    assert!(!trusting(&lab.trusted()).await.findings.is_empty());
    assert!(!trusting(&[]).await.findings.is_empty());
    // A rotated key that has not signed yet is followed back.
    let rotated = fresh.rotate().unwrap();
    let seen = trusting(&[rotated.public(), fresh.public()]).await;
    assert!(seen.remarks.iter().any(|remark| remark.contains("replaced since")), "{seen:?}");
    // Its successor can continue the chain; the key itself cannot come back.
    make(&store, ada(), &rotated, CheckpointOptions::default()).await.unwrap();
    assert!(matches!(
        make(&store, ada(), &fresh, CheckpointOptions::default()).await,
        Err(CheckpointError::OtherKey { no: 3, .. })
    ));
}

#[tokio::test]
async fn a_checkpoint_with_any_change_is_rejected() {
    let store = InMemory::new();
    let key = SigningKey::generate().unwrap();
    make(&store, ada(), &key, CheckpointOptions::default()).await.unwrap();
    let key = key.rotate().unwrap();
    let note = "naïve “note” \u{2028} {\"checkpoint\":1}";
    let made = make(&store, ada(), &key, CheckpointOptions { note: Some(note.into()), previous_key_lost: false })
        .await
        .unwrap();
    let line = made.line();
    let accepted = |line: &str| Checkpoint::parse(line).is_ok_and(|it| is_signed(&it));
    assert!(accepted(&line) && accepted(&format!("  {line}\r\n")));
    for at in 0..line.len() {
        if line.is_char_boundary(at) {
            assert!(!accepted(&line[..at]), "cut at {at}");
        }
        let mut bytes = line.clone().into_bytes();
        for flip in [1, 32] {
            bytes[at] ^= flip;
            assert!(!std::str::from_utf8(&bytes).is_ok_and(accepted), "byte {at} changed");
            bytes[at] ^= flip;
        }
    }
    let hostile = [
        String::new(),
        "{}".into(),
        "null".into(),
        "[1]".into(),
        "{\"checkpoint\":2}".into(),
        "[".repeat(20_000),
        "x".repeat(MAX_LINE + 1),
        line.replace("\"no\":2", "\"no\":2.0"),
        line.replace("\"no\":2", "\"no\":-2"),
        line.replace("\"no\":2", "\"no\":99999999999999999999"),
        line.replace("\"no\":2", "\"no\":2,\"no\":2"),
        line.replace("\"no\":2", "\"no\":2,\"more\":1"),
        line.replace("\"no\":2", " \"no\":2"),
        line.replacen("\"previous\":", "\"previous\":null,\"x\":", 1),
        format!("{line}{line}"),
    ];
    for line in hostile {
        assert!(!accepted(&line), "{}", line.chars().take(80).collect::<String>());
    }
    // Keys of small order, with and without the sign bit: anybody can sign for these.
    for (first, last) in [(1, 0), (1, 0x80)] {
        let mut small = [0; 32];
        (small[0], small[31]) = (first, last);
        let mut signature = [0; 64];
        signature[0] = 1;
        let forged = Checkpoint { key: PublicKey(small), signature: Signature(signature), ..made.clone() };
        assert!(!is_signed(&forged));
    }
    assert!(Checkpoint::parse("{\"checkpoint\":2}").unwrap_err().to_string().contains("use a newer version"));
    let long = CheckpointOptions { note: Some("n".repeat(501)), previous_key_lost: false };
    assert!(matches!(make(&store, ada(), &key, long).await, Err(CheckpointError::Invalid(_))));
    assert_eq!(chain(&store).await.unwrap().stored.len(), 2);
    // Invalid keys.
    for text in ["", "{}", "{\"rath_signing_key\":1,\"seed\":\"00\"}", &key.to_text().replace(":1,\"seed", ":2,\"seed")]
    {
        assert!(SigningKey::from_text(text).is_err(), "{text}");
    }
    let grafted = SigningKey::generate().unwrap().to_text().replace('}', "");
    let successions = key.to_text().split(",\"successions\"").nth(1).unwrap().to_owned();
    assert!(SigningKey::from_text(&format!("{grafted},\"successions\"{successions}")).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoints_are_consistent_under_concurrent_writes() {
    let lab = Lab::new().await;
    let path = lab.original();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            // Each thread opens its own store, as a process would.
            let store = Embedded::open(&path).unwrap();
            tokio::spawn(async move {
                let mut session = store.create(ada());
                for turn in 0..40 {
                    session.user(format!("{writer}: {turn}")).unwrap();
                    session.note("beside").unwrap();
                    session.publish().await.unwrap();
                    if turn % 10 == 5 {
                        let mut branch = session.fork("try");
                        branch.assistant("on a branch").unwrap();
                        session = session.merge([branch], How::Append).await.unwrap();
                    }
                }
            })
        })
        .collect();
    let mut lines = Vec::new();
    while lines.len() < 12 || writers.iter().any(|writer| !writer.is_finished()) {
        lines.push(lab.checkpoint(&path).await);
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(lab.found(&path, &lines).await, []);
    // Without the lists, the order of the commits gives the same heads: such a moment existed.
    checkpoint_wal(&path);
    Connection::open(path.join("rath.db")).unwrap().execute_batch("DELETE FROM blobs").unwrap();
    let seen = audit(&Embedded::open(&path).unwrap(), &lines[..12], 1, &lab.trusted()).await.unwrap();
    assert_eq!(seen.findings, []);
    assert!(seen.remarks.iter().all(|remark| remark.contains("is lost; all its records are in the store")), "{seen:?}");
}

#[tokio::test]
async fn a_checkpoint_of_ten_thousand_sessions_is_one_short_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = Embedded::create(&path).unwrap();
    for _ in 0..20 {
        let publishing = (0..500).map(|n| {
            let mut session = store.create(ada());
            session.note(format!("{n}")).unwrap();
            async move { session.publish().await.unwrap() }
        });
        futures_util::future::join_all(publishing).await;
    }
    let key = SigningKey::generate().unwrap();
    let made = make(&store, ada(), &key, CheckpointOptions::default()).await.unwrap();
    assert_eq!((made.sessions, made.records), (10_001, 20_002));
    assert!(made.line().len() < 600, "{}", made.line().len());
    let seen = audit(&store, &[made], 1, &[key.public()]).await.unwrap();
    assert_eq!((seen.heads, seen.findings), (10_001, vec![]));
}
