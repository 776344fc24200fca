//! Signed checkpoints: what they find that a store by itself cannot, and what they do not let pass.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rath::body::Checkpointed;
use rath::prelude::*;
use rath::store::Query;
use rath::verify::{Finding, What};
use rath_audit::checkpoint::{
    Checkpoint, Error, Heads, LONGEST_LINE, MOST_SUCCESSIONS, PublicKey, Signature, SigningKey, Wish, audit, chain,
    compare, is_signed, make,
};
use rath_testkit::copy_dir;
use rusqlite::Connection;

/// A store with three sessions, two of them in two parts, and a key.
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
        settle(&self.original());
        let copy = tempfile::tempdir_in(self.dir.path()).unwrap().keep();
        copy_dir(&self.original(), &copy);
        copy
    }

    async fn checkpoint(&self, path: &Path) -> Checkpoint {
        make(&Embedded::open(path).unwrap(), ada(), &self.key, Wish::default()).await.unwrap()
    }

    fn trusted(&self) -> Vec<PublicKey> {
        vec![self.key.public()]
    }

    /// What a store is found to be, held against these lines.
    async fn found(&self, path: &Path, lines: &[Checkpoint]) -> Vec<Finding> {
        audit(&Embedded::open(path).unwrap(), lines, 1, &self.trusted()).await.unwrap().findings
    }

    /// What a store with something cut out looks like by itself, and held against its checkpoints.
    async fn sabotaged(&self, statements: &str, lines: &[Checkpoint]) -> Vec<Finding> {
        let copy = self.copy();
        Connection::open(copy.join("rath.db")).unwrap().execute_batch(statements).unwrap();
        assert!(is_sound(&copy), "it does not show by itself");
        self.found(&copy, lines).await
    }

    fn no(&self, session: SessionId) -> i64 {
        let db = Connection::open(self.original().join("rath.db")).unwrap();
        db.query_row("SELECT no FROM sessions WHERE id = ?1", [session.0.as_bytes()], |row| row.get(0)).unwrap()
    }

    /// What cuts a session off behind a record, and sets its row to match `before`, a copy from then.
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

    async fn say(&self, path: &Path, session: SessionId, text: &str) {
        let store = Embedded::open(path).unwrap();
        let mut session = store.open(session, ada()).await.unwrap();
        session.assistant(text).unwrap();
        session.publish().await.unwrap();
    }
}

/// The log is in the database.
fn settle(path: &Path) {
    Embedded::open_here(path, "test").unwrap().checkpoint().unwrap();
}

fn is_sound(path: &Path) -> bool {
    Embedded::open_here(path, "test").unwrap().verify(None, &mut |_, _| {}).unwrap().is_sound()
}

/// Signs what no store would say.
fn sign(key: &SigningKey, statement: &str) -> Signature {
    let kept: serde_json::Value = serde_json::from_str(&key.to_text()).unwrap();
    let seed: PublicKey = serde_json::from_value(kept["seed"].clone()).unwrap();
    let pair = ring::signature::Ed25519KeyPair::from_seed_unchecked(&seed.0).unwrap();
    Signature(pair.sign(statement.as_bytes()).as_ref().try_into().unwrap())
}

fn whats(findings: &[Finding]) -> Vec<What> {
    findings.iter().map(|finding| finding.what).collect()
}

#[tokio::test]
async fn a_store_that_only_grows_fits_all_its_checkpoints() {
    let lab = Lab::new().await;
    let path = lab.original();
    let first = lab.checkpoint(&path).await;
    assert_eq!((first.no, first.sessions, first.records, first.previous), (1, 4, 8, None));
    lab.say(&path, lab.ids[0], "an answer").await;
    let second = lab.checkpoint(&path).await;
    assert_eq!((second.no, second.records, second.previous), (2, 10, Some(first.digest())));
    assert_eq!(Checkpoint::parse(&second.line()).unwrap(), second);
    assert!(second.line().len() < 700 && !second.line().contains('\n'));
    lab.say(&path, lab.ids[1], "another").await;
    assert_eq!(lab.found(&path, &[first.clone(), second.clone()]).await, []);
    assert!(is_sound(&path));
    let seen = audit(&Embedded::open(&path).unwrap(), &[], 2, &lab.trusted()).await.unwrap();
    assert_eq!((seen.stored, seen.since, seen.heads), (2, Some(second), 4));
    // Nobody says whose key it is: that is remarked, and no more.
    let seen = audit(&Embedded::open(&path).unwrap(), &[first], 1, &[]).await.unwrap();
    assert!(seen.findings.is_empty() && seen.remarks[0].contains("nobody says that key"));
}

#[tokio::test]
async fn a_tail_that_was_cut_off_is_missed() {
    let lab = Lab::new().await;
    let path = lab.original();
    let before = lab.copy();
    lab.say(&path, lab.ids[1], "it is settled").await;
    let line = lab.checkpoint(&path).await;
    // The session alone: the checkpoint is still there.
    let found = lab.sabotaged(&lab.cut(lab.ids[1], 1, &before), &[]).await;
    assert_eq!(whats(&found), [What::CutOff]);
    assert_eq!((found[0].session, found[0].seq), (Some(lab.ids[1]), Some(2)));
    assert!(found[0].why.starts_with("record 2 is cut off: checkpoint 1 ("), "{}", found[0].why);
    // The operator's line too: only who holds the line knows.
    let operator = line.store;
    let both = format!("{}{}", lab.cut(lab.ids[1], 1, &before), lab.cut_operator(operator));
    assert_eq!(lab.sabotaged(&both, &[]).await, []);
    let found = lab.sabotaged(&both, std::slice::from_ref(&line)).await;
    assert_eq!(whats(&found), [What::CutOff, What::CutOff]);
    assert!(
        found[0].why.contains("checkpoint 1 (") && found[0].why.contains("is not in this store"),
        "{}",
        found[0].why
    );
    assert_eq!(found[1].session, Some(lab.ids[1]), "the list is still there, and names it");
    // With the list: the count says so.
    let found = lab.sabotaged(&format!("{both} DELETE FROM blobs; DELETE FROM packs;"), &[line]).await;
    assert!(found[1].why.contains("counts 9 records, 8 are left: 1 was cut off"), "{}", found[1].why);
}

impl Lab {
    /// Takes the checkpoint off the operator's line, whose first part is `created` and its title.
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
async fn a_session_that_was_written_anew_is_not_the_one_that_was_signed() {
    let lab = Lab::new().await;
    let path = lab.original();
    let other = lab.copy();
    lab.say(&path, lab.ids[2], "the truth").await;
    lab.checkpoint(&path).await;
    lab.say(&path, lab.ids[2], "and more").await;
    lab.say(&other, lab.ids[2], "a lie").await;
    lab.say(&other, lab.ids[2], "and more").await;
    settle(&other);
    // The other history in place of this one, every hash and column consistent.
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
    assert_eq!(whats(&found), [What::Rewritten]);
    assert_eq!((found[0].session, found[0].seq), (Some(lab.ids[2]), Some(2)));
    assert!(found[0].why.contains("the session was rewritten"), "{}", found[0].why);
}

#[tokio::test]
async fn a_session_that_is_gone_is_named() {
    let lab = Lab::new().await;
    lab.checkpoint(&lab.original()).await;
    let no = lab.no(lab.ids[0]);
    let gone = format!(
        "DELETE FROM ids WHERE segment IN (SELECT cursor FROM segments WHERE session = {no});
         DELETE FROM segments WHERE session = {no}; DELETE FROM snapshots WHERE session = {no};
         DELETE FROM sessions WHERE no = {no};"
    );
    let found = lab.sabotaged(&gone, &[]).await;
    assert_eq!(whats(&found), [What::Gone]);
    assert_eq!(found[0].session, Some(lab.ids[0]));
    // A record that says it was removed excuses it, as long as it was then.
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
    // What is written later does not hide it: the counts of checkpoints fall.
    let copy = lab.copy();
    Connection::open(copy.join("rath.db")).unwrap().execute_batch(&gone).unwrap();
    lab.checkpoint(&copy).await;
    assert!(whats(&lab.found(&copy, &[]).await).contains(&What::CutOff));
}

/// A checkpoint that carries the signature of another key's succession, and is no part of it.
#[tokio::test]
async fn a_succession_that_leads_elsewhere_vouches_for_nobody() {
    let lab = Lab::new().await;
    let store = Embedded::open(lab.original()).unwrap();
    lab.checkpoint(&lab.original()).await;
    let second = lab.key.rotate().unwrap();
    let third = second.rotate().unwrap();
    let genuine = make(&store, ada(), &third, Wish::default()).await.unwrap();
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
async fn a_clock_that_went_back_loses_nothing() {
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
    // As one is made when the clock was set back in between: its time is that of the one before.
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
async fn two_copies_that_part_are_told_where() {
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
    // One is behind: that contradicts nothing.
    lab.say(&here, lab.ids[0], "one").await;
    let behind = compared().await;
    assert!(behind.findings.is_empty() && behind.remarks[0].starts_with("longer here: "), "{behind:?}");
    // The other goes its own way.
    lab.say(&there, lab.ids[0], "two").await;
    let parted = compared().await;
    assert_eq!(whats(&parted.findings), [What::Rewritten]);
    assert_eq!((parted.findings[0].session, parted.findings[0].seq), (Some(lab.ids[0]), Some(2)));
    // Both are signed: whoever has one line finds the other.
    let (ours, theirs) = (lab.checkpoint(&here).await, lab.checkpoint(&there).await);
    assert_eq!((ours.no, theirs.no), (2, 2));
    let parted = compared().await;
    assert!(whats(&parted.findings).starts_with(&[What::Equivocation]), "{parted:?}");
    let found = lab.found(&here, std::slice::from_ref(&theirs)).await;
    assert_eq!(found[0].what, What::Equivocation);
    assert!(found[0].why.contains("Two histories were signed"), "{}", found[0].why);
    let list = "its list of heads is not in this store";
    assert!(found[1].why.ends_with(list), "what was never here is not lost: {}", found[1].why);
    // A copy that is older lacks what the other has signed.
    let older = lab.copy();
    lab.checkpoint(&here).await;
    let lacking = compare(&Embedded::open(&older).unwrap(), &Embedded::open(&here).unwrap()).await.unwrap();
    assert_eq!(whats(&lacking.findings), [What::CutOff]);
}

#[tokio::test]
async fn a_copy_that_was_cut_behind_a_checkpoint_of_its_own_contradicts() {
    let lab = Lab::new().await;
    let path = lab.original();
    let before = lab.copy();
    lab.say(&path, lab.ids[1], "it is settled").await;
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
            assert_eq!((found.len(), found[0].1, found[1].1), (2, What::CutOff, What::Gone), "{found:?}");
            assert!(found[0].2.starts_with(&told), "{found:?}");
            assert!(found[1].2.starts_with(&format!("{whose}: the session is gone: ")), "{found:?}");
        }
    }
    // A copy from before the checkpoint is only older.
    let seen = compare(&Embedded::open(&path).unwrap(), &Embedded::open(&before).unwrap()).await.unwrap();
    assert_eq!(seen.findings, []);
}

#[tokio::test]
async fn keys_are_replaced_as_often_as_a_checkpoint_can_tell() {
    let lab = Lab::new().await;
    let store = Embedded::open(lab.original()).unwrap();
    lab.checkpoint(&lab.original()).await;
    let often = |key: &SigningKey, times: usize| (1..times).fold(key.rotate().unwrap(), |key, _| key.rotate().unwrap());
    let last = often(&lab.key, MOST_SUCCESSIONS);
    assert!(last.rotate().is_err() && last.to_text().len() < 32 << 10);
    // With the longest note, each byte of it written as six.
    let note = Some("\u{1}".repeat(500));
    let line = make(&store, ada(), &last, Wish { note, anew: false }).await.unwrap();
    assert_eq!(line.successions.len(), MOST_SUCCESSIONS);
    // It goes on from there, and forgets what the store knows now.
    let next = last.rotate_and_forget().unwrap();
    assert_eq!(next.successions().len(), 1);
    make(&store, ada(), &next, Wish::default()).await.unwrap();
    assert_eq!(audit(&store, &[], 1, &lab.trusted()).await.unwrap().findings, []);
    // A key that was replaced more often, before there was a bound, begins anew where it must.
    let far = often(&next, MOST_SUCCESSIONS - 1);
    let mut kept: serde_json::Value = serde_json::from_str(&far.to_text()).unwrap();
    let all = [last.successions(), far.successions()].concat();
    kept["successions"] = serde_json::to_value(&all).unwrap();
    let far = SigningKey::from_text(&kept.to_string()).unwrap();
    let other = Lab::new().await;
    let other = Lab { key: SigningKey::from_text(&lab.key.to_text()).unwrap(), ..other };
    other.checkpoint(&other.original()).await;
    let store = Embedded::open(other.original()).unwrap();
    let refused = make(&store, ada(), &far, Wish::default()).await;
    assert!(matches!(refused, Err(Error::TooManyRotations { no: 1, rotations: 128 })), "{refused:?}");
    let anew = make(&store, ada(), &far, Wish { note: None, anew: true }).await.unwrap();
    assert!(anew.anew && anew.successions.is_empty());
}

#[tokio::test]
async fn another_store_and_a_store_without_any_are_told_apart() {
    let (lab, other) = (Lab::new().await, Lab::new().await);
    let line = lab.checkpoint(&lab.original()).await;
    assert_eq!(whats(&other.found(&other.original(), std::slice::from_ref(&line)).await), [What::CutOff]);
    other.checkpoint(&other.original()).await;
    let found = other.found(&other.original(), &[line]).await;
    assert_eq!(whats(&found), [What::Foreign]);
    let stores = (Embedded::open(lab.original()).unwrap(), Embedded::open(other.original()).unwrap());
    assert_eq!(whats(&compare(&stores.0, &stores.1).await.unwrap().findings), [What::Foreign]);
    // An empty store has its operator and nothing else.
    let store = Memory::new();
    let first = make(&store, ada(), &lab.key, Wish { note: Some("empty".into()), anew: false }).await.unwrap();
    assert_eq!((first.sessions, first.records), (1, 2));
    assert!(audit(&store, &[first], 1, &lab.trusted()).await.unwrap().findings.is_empty());
}

#[tokio::test]
async fn what_nobody_signed_is_found_in_the_chain() {
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
        assert!(is_sound(&copy));
        lab.found(&copy, &[]).await
    };
    let unsigned = forged(&|_| {}).await;
    assert_eq!(whats(&unsigned), [What::Checkpoint]);
    assert!(unsigned[0].why.contains("altered or forged"));
    let gap = forged(&|it| it.no = 4).await;
    assert!(gap.iter().any(|finding| finding.why.contains("stands where 2 should")), "{gap:?}");
    let twice = forged(&|it| *it = first.clone()).await;
    assert_eq!(whats(&twice), [What::Equivocation]);
    let fewer = forged(&|it| it.records = 1).await;
    assert!(whats(&fewer).contains(&What::CutOff));
    // A line that is none is named with its record.
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
    assert!(matches!(make(&store, ada(), &lab.key, Wish::default()).await, Err(Error::Unreadable(_))));
}

#[tokio::test]
async fn the_chain_verifies_across_rotations_and_a_lost_key_is_said() {
    let lab = Lab::new().await;
    let store = Embedded::open(lab.original()).unwrap();
    let made = async |key: &SigningKey, anew| make(&store, ada(), key, Wish { note: None, anew }).await;
    made(&lab.key, false).await.unwrap();
    let second = lab.key.rotate().unwrap();
    let third = SigningKey::from_text(&second.rotate().unwrap().to_text()).unwrap();
    let line = made(&third, false).await.unwrap();
    assert_eq!(line.successions.len(), 2);
    assert!(is_signed(&line) && Checkpoint::parse(&line.line()).is_ok());
    assert!(made(&third, false).await.unwrap().successions.is_empty());
    let trusting = async |key: PublicKey| audit(&store, &[], 1, &[key]).await.unwrap();
    // Who knows any of the keys that signed follows to the others.
    for key in [lab.key.public(), second.public(), third.public()] {
        assert_eq!(trusting(key).await.findings, []);
    }
    let stranger = SigningKey::generate().unwrap();
    let found = trusting(stranger.public()).await.findings;
    assert!(found[0].why.contains("not with the one that you trust"), "{found:?}");
    // Neither an old key nor a stranger's goes on.
    for key in [&lab.key, &second, &stranger] {
        assert!(matches!(made(key, false).await, Err(Error::OtherKey { no: 3, .. })));
    }
}

#[tokio::test]
async fn who_lost_the_key_begins_anew_and_that_is_said() {
    let lab = Lab::new().await;
    let store = Embedded::open(lab.original()).unwrap();
    lab.checkpoint(&lab.original()).await;
    let fresh = SigningKey::generate().unwrap();
    assert!(matches!(make(&store, ada(), &fresh, Wish::default()).await, Err(Error::OtherKey { no: 1, .. })));
    let line = make(&store, ada(), &fresh, Wish { note: None, anew: true }).await.unwrap();
    assert!(line.anew && line.no == 2 && line.previous.is_some());
    // Who trusts the new key is reminded; who trusts the old one, or none, is warned.
    let trusting = async |keys: &[PublicKey]| audit(&store, &[], 1, keys).await.unwrap();
    let new = trusting(&[fresh.public()]).await;
    assert!(new.findings.is_empty() && new.remarks[0].contains("begins anew"), "{new:?}");
    assert!(!trusting(&lab.trusted()).await.findings.is_empty());
    assert!(!trusting(&[]).await.findings.is_empty());
    // A key that was replaced and has not signed yet is followed back.
    let rotated = fresh.rotate().unwrap();
    let seen = trusting(&[rotated.public(), fresh.public()]).await;
    assert!(seen.remarks.iter().any(|remark| remark.contains("replaced since")), "{seen:?}");
    // Its successor may go on; it may not come back.
    make(&store, ada(), &rotated, Wish::default()).await.unwrap();
    assert!(matches!(make(&store, ada(), &fresh, Wish::default()).await, Err(Error::OtherKey { no: 3, .. })));
}

#[tokio::test]
async fn a_line_with_anything_changed_is_none() {
    let store = Memory::new();
    let key = SigningKey::generate().unwrap();
    make(&store, ada(), &key, Wish::default()).await.unwrap();
    let key = key.rotate().unwrap();
    let note = "naïve “note” \u{2028} {\"checkpoint\":1}";
    let made = make(&store, ada(), &key, Wish { note: Some(note.into()), anew: false }).await.unwrap();
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
        "x".repeat(LONGEST_LINE + 1),
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
    // Keys for which anybody can sign: of small order, with or without the bit of the sign.
    for (first, last) in [(1, 0), (1, 0x80)] {
        let mut small = [0; 32];
        (small[0], small[31]) = (first, last);
        let mut signature = [0; 64];
        signature[0] = 1;
        let forged = Checkpoint { key: PublicKey(small), signature: Signature(signature), ..made.clone() };
        assert!(!is_signed(&forged));
    }
    assert!(Checkpoint::parse("{\"checkpoint\":2}").unwrap_err().to_string().contains("use a newer one"));
    let long = Wish { note: Some("n".repeat(501)), anew: false };
    assert!(matches!(make(&store, ada(), &key, long).await, Err(Error::Beyond(_))));
    assert_eq!(chain(&store).await.unwrap().stored.len(), 2);
    // Keys that are none.
    for text in ["", "{}", "{\"rath_signing_key\":1,\"seed\":\"00\"}", &key.to_text().replace(":1,\"seed", ":2,\"seed")]
    {
        assert!(SigningKey::from_text(text).is_err(), "{text}");
    }
    let grafted = SigningKey::generate().unwrap().to_text().replace('}', "");
    let successions = key.to_text().split(",\"successions\"").nth(1).unwrap().to_owned();
    assert!(SigningKey::from_text(&format!("{grafted},\"successions\"{successions}")).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_four_write_each_checkpoint_is_of_one_moment() {
    let lab = Lab::new().await;
    let path = lab.original();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            // Each with a store of its own, as processes have.
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
    // Without the lists, the commits in their order give the same heads: there was such a moment.
    settle(&path);
    Connection::open(path.join("rath.db")).unwrap().execute_batch("DELETE FROM blobs").unwrap();
    let seen = audit(&Embedded::open(&path).unwrap(), &lines[..12], 1, &lab.trusted()).await.unwrap();
    assert_eq!(seen.findings, []);
    assert!(seen.remarks.iter().all(|remark| remark.contains("is lost; all that it digests is there")), "{seen:?}");
}

#[tokio::test]
async fn ten_thousand_sessions_are_one_short_line() {
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
    let made = make(&store, ada(), &key, Wish::default()).await.unwrap();
    assert_eq!((made.sessions, made.records), (10_001, 20_002));
    assert!(made.line().len() < 600, "{}", made.line().len());
    let seen = audit(&store, &[made], 1, &[key.public()]).await.unwrap();
    assert_eq!((seen.heads, seen.findings), (10_001, vec![]));
}
