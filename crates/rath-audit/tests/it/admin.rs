//! Holds, erasure with copies, and retention.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use rath::body::{
    Answered, Asked, Attachment, CallOutcome, Effect, Erased, Grant, Granted, Held, Labelled, ModelFailed,
    ModelRequested, ModelResponded, Note, Output, Placed, QuestionKind, Scope, ToolFinished, ToolResult, ToolStarted,
    User, Verdict,
};
use rath::body::{Assistant, Block, Outcome};
use rath::files::Changes;
use rath::prelude::*;
use rath::record::BlobRef;
use rath::store::{Chunk, Lookup, Post, PostContent, SessionFilter};
use rath::{Blob, Digest, Embedded, Kind, Record, Reference, Time};
use rath_audit::admin::{
    Blocker, ErasureRequest, Erasures, Holds, KeepReason, PlannedErasure, RetentionPolicy, StoreAdmin, TargetReason,
};
use rath_testkit::traces;

const SECRET: &str = "Ada Q Lovelace";

struct Lab {
    dir: tempfile::TempDir,
    store: Arc<dyn Store>,
}

impl Lab {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::create(dir.path().join("store")).unwrap();
        Self { dir, store }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn admin(&self) -> StoreAdmin {
        StoreAdmin::new(Embedded::open_as(self.path(), "test").unwrap(), Actor::person("olga"))
    }

    async fn plan(&self, request: ErasureRequest) -> PlannedErasure {
        self.wait_until_unlocked().await;
        self.admin().plan(request, &mut |_| {}).await.unwrap()
    }

    async fn erase(&self, request: ErasureRequest) -> PlannedErasure {
        self.wait_until_unlocked().await;
        let admin = self.admin();
        let mut plan = admin.plan(request, &mut |_| {}).await.unwrap();
        admin.erase(&mut plan, "ticket 12", &mut |_| {}).await.unwrap();
        plan
    }

    fn verify(&self) -> u64 {
        let report = Embedded::open_as(self.path(), "test").unwrap().verify(None, &mut |_, _| {}).unwrap();
        assert!(report.is_valid(), "{:?}", report.findings);
        report.erased
    }

    fn traces(&self) -> Vec<PathBuf> {
        let lower = SECRET.to_lowercase();
        let found: BTreeSet<_> =
            [SECRET, lower.as_str()].iter().flat_map(|secret| traces::find(self.dir.path(), secret)).collect();
        found.into_iter().collect()
    }

    /// Waits until the store has released all sessions: a background thread releases dropped ones.
    async fn wait_until_unlocked(&self) {
        for _ in 0..1000 {
            let rows = self.store.sessions(SessionFilter::All.into()).await.unwrap();
            if rows.iter().all(|row| row.holder.is_none()) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("a session is still locked");
    }

    async fn note(&self, text: &str) -> Reference {
        let mut session = self.store.create(Actor::person("ada"));
        session.note(text).unwrap();
        session.publish().await.unwrap();
        session.head()
    }

    async fn record(&self, at: Reference) -> Record {
        self.store.get(Lookup::At(at.point())).await.unwrap().remove(0)
    }
}

/// Content that is stored in chunks, with the secret across two of them.
async fn put_long(store: &Arc<dyn Store>, length: usize) -> BlobRef {
    let mut content = b"not a word of it. ".repeat(length / 18);
    let at = content.len() / (1 << 20) * (1 << 20) - 5;
    content.splice(at..at + SECRET.len(), SECRET.bytes());
    let whole = BlobRef { digest: Digest::of(&content), bytes: content.len() as u64, media_type: "text/plain".into() };
    let pieces: Vec<Blob> = content.chunks(1 << 20).map(|part| Blob::new(part, "text/plain")).collect();
    let named = pieces.iter().map(|piece| Chunk { digest: piece.reference.digest, bytes: piece.reference.bytes });
    let named = named.collect();
    store.blob_put(pieces).await.unwrap();
    store.blob_join(whole.clone(), named).await.unwrap();
    whole
}

#[tokio::test]
async fn long_content_is_searched() {
    let lab = Lab::new();
    let content = put_long(&lab.store, 17 << 20).await;
    let mut session = lab.store.create(Actor::person("ada"));
    let attached = vec![Attachment { content: content.clone(), name: Some("dump.txt".into()) }];
    session.append(User { text: "See.".into(), post: None, attached }).unwrap();
    session.publish().await.unwrap();
    let said = session.head();
    drop(session);
    let plan = lab.erase(about()).await;
    assert_eq!(plan.targets.iter().map(|target| target.record).collect::<Vec<_>>(), [said]);
    assert!(lab.store.blob_chunks(content.digest).await.unwrap().is_none());
    assert_eq!(lab.verify(), 1);
}

#[tokio::test]
async fn a_subject_is_found_in_every_unicode_form() {
    let lab = Lab::new();
    let mut found = Vec::new();
    for text in ["by Zoe\u{308}.", "by ZO\u{cb}", "by Zo\u{ad}\u{eb}", "by Z\u{200b}oe\u{308}"] {
        found.push(lab.note(text).await);
    }
    lab.note("by Zoe").await;
    for subject in ["Zo\u{eb}", "zoe\u{308}"] {
        let plan = lab.plan(ErasureRequest { about: Some(subject.into()), ..ErasureRequest::default() }).await;
        let targets: BTreeSet<_> = plan.targets.iter().map(|target| target.record.session).collect();
        assert_eq!(targets, found.iter().map(|record| record.session).collect());
    }
}

fn about() -> ErasureRequest {
    ErasureRequest { about: Some(SECRET.into()), derived: true, ..ErasureRequest::default() }
}

fn long(text: &str) -> String {
    format!("{text} {}", "and so on, and so on. ".repeat(800))
}

/// A session with the secret in every part that a session can have.
async fn full_of_it(store: &Arc<dyn Store>) -> Vec<SessionId> {
    let run = format!("import of {SECRET}");
    let input = async |session: &mut Session| session.user(format!("I am {SECRET}.")).map(drop);
    let mut session = store.begin_run(&run, Actor::program("importer"), input).await.unwrap();
    session.set_title(format!("Talk with {SECRET}")).unwrap();
    session.append(Labelled { set: [("person".into(), SECRET.into())].into(), ..Labelled::default() }).unwrap();
    session.system(format!("Be kind to {SECRET}.")).unwrap();
    session.user(long(SECRET)).unwrap();
    session.user_with("See.", [("ada.txt", Blob::new(SECRET.as_bytes().to_vec(), "text/plain"))]).unwrap();
    let placed = Placed {
        backend: "host".into(),
        isolated: false,
        origin: Some(format!("/home/{SECRET}").as_str().into()),
        in_place: false,
        workspace: None,
        base: None,
        setup: Some(format!("echo {SECRET}")),
        why: None,
    };
    session.append(placed).unwrap();
    session.enter(format!("serving {SECRET}")).unwrap();
    let mut fork = session.fork(format!("look up {SECRET}"));
    fork.assistant("Found.").unwrap();
    session.append(ModelRequested::new("m", "whole@1", "e@1", Digest::of(b""))).unwrap();
    let raw = |text: String| Blob::new(text.into_bytes(), "text/event-stream");
    let failed = raw(format!("data: {SECRET}"));
    // A stream contains text in fragments: only its turn shows that it is about the subject.
    let pieces = raw("data: {\"text\":\"Ada Q Lo\"}\n\ndata: {\"text\":\"velace\"}\n\n".into());
    store.blob_put(vec![failed.clone(), pieces.clone()]).await.unwrap();
    let partial = Some(format!("Dear {SECRET}").into());
    let retried = ModelFailed { partial, raw: Some(failed.reference), retried: true, ..ModelFailed::new("cut off") };
    session.append(retried).unwrap();
    session.append(ModelResponded { raw: Some(pieces.reference), ..ModelResponded::default() }).unwrap();
    let arguments = format!(r#"{{"name":"{SECRET}"}}"#);
    session
        .append(Assistant::new(vec![
            Block::Text { text: format!("Hello {SECRET}.").into() },
            Block::ToolUse { id: "c1".into(), name: "find".into(), arguments: arguments.clone().into() },
        ]))
        .unwrap();
    let allows = Grant {
        tool: "find".into(),
        effect: Effect::Irreversible,
        scope: Scope::Command { words: vec!["find".into(), SECRET.into()] },
    };
    let question = Asked::new(QuestionKind::Approval, Some("c1".into()), format!("May I find {SECRET}?"));
    let shown_digest = question.shown_digest;
    let asked = session.append(Asked { always: Some(Box::new(allows.clone())), ..question }).unwrap();
    let verdict = Verdict::Text(format!("yes, {SECRET}").into());
    session.append(Answered { asked, shown_digest, verdict, why: Some(SECRET.into()) }).unwrap();
    session.append(Granted { asked, allows }).unwrap();
    session
        .append(ToolStarted {
            attempt: 1,
            call: "c1".into(),
            tool: "find".into(),
            arguments: Some(arguments.into()),
            effect: Effect::Irreversible,
            isolated: None,
            workspace: None,
            outside: Changes::default(),
        })
        .unwrap();
    let found = raw(long(SECRET));
    store.blob_put(vec![found.clone()]).await.unwrap();
    let output = |text, blob| Output { text, blob, ..Output::new("stdout") };
    let finished = ToolFinished {
        output: vec![output(Some(format!("{SECRET} lives here")), None), output(None, Some(found.reference))],
        ..ToolFinished::new("c1", CallOutcome::Done)
    };
    let finished = session.append(finished).unwrap();
    session
        .append(ToolResult { finished: Some(finished), shown: Some(long(SECRET).into()), ..ToolResult::new("c1") })
        .unwrap();
    session.note(format!("{SECRET} was pleased")).unwrap();
    session.leave(Outcome::Done).unwrap();
    let mut detached = session.detach("a copy").await.unwrap();
    detached.note("on its own").unwrap();
    detached.publish().await.unwrap();
    fork.publish().await.unwrap();
    let ids = vec![session.id(), fork.id(), detached.id()];
    let mut session = session.merge([fork], How::Append).await.unwrap();
    session.compress(0, 2, format!("{SECRET} came by")).await.unwrap();
    for n in 0..300 {
        session.note(format!("later {n}")).unwrap();
    }
    session.publish().await.unwrap();
    let post = PostContent::Message { text: format!("tell {SECRET}") };
    store.post(Post::new(ids[0], Actor::person("bob"), post)).await.unwrap();
    ids
}

#[tokio::test]
async fn a_secret_is_erased_from_every_part_of_a_session() {
    let lab = Lab::new();
    let ids = full_of_it(&lab.store).await;
    let plain = lab.note("nothing to see").await;
    let before = lab.record(plain).await;
    let plan = lab.plan(about()).await;
    let kinds: BTreeSet<&str> = plan.targets.iter().map(|target| target.kind.as_str()).collect();
    for kind in [
        "created",
        "labelled",
        "system",
        "user",
        "placed",
        "step_entered",
        "forked",
        "model_failed",
        "model_responded",
        "assistant",
        "asked",
        "answered",
        "granted",
        "tool_started",
        "tool_finished",
        "tool_result",
        "note",
        "detached",
        "merged",
        "compressed",
    ] {
        assert!(kinds.contains(kind), "{kind} of {kinds:?}");
    }
    let responded = plan.targets.iter().find(|target| target.kind == "model_responded").unwrap();
    assert!(matches!(responded.reason, TargetReason::CopyOf(_)));
    assert_eq!((plan.posts.len(), plan.refused.len(), plan.effects.kept.len()), (1, 0, 0), "{plan:?}");
    assert!(!lab.traces().is_empty());

    let plan = lab.erase(about()).await;
    assert_eq!(lab.traces(), Vec::<PathBuf>::new());
    for half in ["Ada Q Lo", "velace"] {
        assert_eq!(traces::find(lab.dir.path(), half), Vec::<PathBuf>::new(), "{half}");
    }
    assert_eq!(lab.verify(), plan.targets.len() as u64);
    assert_eq!(lab.record(plain).await.body_bytes(), before.body_bytes());
    assert!(lab.plan(about()).await.is_empty());

    // Actor, time and reason are recorded, and the erased content is not.
    let erasures = Erasures::of(&lab.store).await.unwrap();
    let erasure = erasures.over(responded.record.point()).unwrap();
    assert_eq!((erasure.by.name.as_str(), erasure.erased.why.as_str()), ("olga", "ticket 12"));
    assert!(erasures.over(plain.point()).is_none());

    // The remaining session can be read, continued, forked, detached and merged.
    for id in ids {
        let view = View::of(&lab.store, id, None).await.unwrap();
        view.context().await.unwrap();
        assert_eq!(view.state().title, None);
        assert!(view.pending().is_empty(), "{:?}", view.pending());
        if view.state().closed {
            continue;
        }
        let mut session = lab.store.open(id, Actor::person("bob")).await.unwrap();
        session.user("Go on.").unwrap();
        let mut fork = session.fork("try");
        fork.assistant("Yes.").unwrap();
        let mut session = session.merge([fork], How::Append).await.unwrap();
        let mut copy = session.detach("again").await.unwrap();
        copy.publish().await.unwrap();
        session.publish().await.unwrap();
    }
    lab.verify();
}

#[tokio::test]
async fn without_derived_copies_are_listed_and_stay() {
    let lab = Lab::new();
    full_of_it(&lab.store).await;
    let plan = lab.plan(ErasureRequest { derived: false, ..about() }).await;
    let copies: Vec<_> = plan.copies.iter().map(|copy| copy.kind.as_str()).collect();
    assert_eq!(copies, ["model_responded"]);
}

#[tokio::test]
async fn a_hold_covers_everything_that_its_sessions_depend_on() {
    let lab = Lab::new();
    let mut root = lab.store.create(Actor::person("ada"));
    root.user(format!("before {SECRET}")).unwrap();
    let before = root.head();
    let mut branch = root.fork("a branch");
    branch.user(format!("on the branch {SECRET}")).unwrap();
    branch.publish().await.unwrap();
    root.user(format!("after {SECRET}")).unwrap();
    let after = root.head();
    root.publish().await.unwrap();
    let (root_id, branch_id) = (root.id(), branch.id());
    drop((root, branch));

    let admin = lab.admin();
    let held = Held { sessions: vec![branch_id], why: "a lawsuit".into(), ..Held::default() };
    let hold = admin.hold(held).await.unwrap();
    let plan = lab.erase(about()).await;
    assert_eq!(plan.targets.iter().map(|target| target.record).collect::<Vec<_>>(), [after]);
    assert_eq!(
        plan.refused.iter().map(|refused| refused.session).collect::<BTreeSet<_>>(),
        [root_id, branch_id].into()
    );
    let Blocker::OnHold(over) = &plan.refused[0].why else { panic!("{:?}", plan.refused) };
    let said = over.to_string();
    assert!(said.contains("a lawsuit") && said.contains("olga") && said.contains(&hold.point().to_string()), "{said}");
    assert!(lab.record(before).await.body::<User>().is_ok());

    // Retention respects the hold. After its release, the session can be removed.
    let policy = RetentionPolicy { keep: Some("0h".parse().unwrap()), ..RetentionPolicy::default() };
    let due = admin.due(&policy, &mut |_| {}).await.unwrap();
    assert!(due.due.is_empty(), "{:?}", due.due);
    assert!(due.kept.iter().all(|kept| matches!(kept.why, KeepReason::OnHold(_))), "{:?}", due.kept);
    let holds = Holds::of(&lab.store).await.unwrap();
    admin.release(&holds.all, "settled").await.unwrap();
    assert!(Holds::of(&lab.store).await.unwrap().all.is_empty());
    assert_eq!(lab.erase(about()).await.refused.len(), 0);
    assert_eq!(lab.traces(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn holds_on_labels_and_holds_that_expire() {
    let lab = Lab::new();
    let mut session = lab.store.create(Actor::person("ada"));
    session.label("case", "17").unwrap();
    session.publish().await.unwrap();
    let id = session.id();
    drop(session);
    let admin = lab.admin();
    let labels = |label: &str, until| Held { labels: vec![label.into()], why: "kept".into(), until, ..Held::default() };
    admin.hold(labels("case=18", None)).await.unwrap();
    admin.hold(labels("case", Some(Time(1)))).await.unwrap();
    let whole = || ErasureRequest { sessions: vec![id], ..ErasureRequest::default() };
    assert_eq!(lab.plan(whole()).await.refused.len(), 0);
    admin.hold(labels("case=17", None)).await.unwrap();
    assert_eq!((lab.plan(whole()).await.targets.len(), lab.plan(whole()).await.refused.len()), (0, 1));
    // Removing the label does not end the hold. A hold that is added later does not cover the session.
    let mut session = Session::open(&lab.store, id, Actor::person("eve")).await.unwrap();
    session.append(Labelled { unset: vec!["case".into()], ..Labelled::default() }).unwrap();
    session.publish().await.unwrap();
    drop(session);
    assert_eq!((lab.plan(whole()).await.targets.len(), lab.plan(whole()).await.refused.len()), (0, 1));
    let holds = Holds::of(&lab.store).await.unwrap();
    admin.release(&holds.all, "over").await.unwrap();
    admin.hold(labels("case", None)).await.unwrap();
    assert_eq!(lab.plan(whole()).await.refused.len(), 0);
}

#[tokio::test]
async fn sessions_in_use_unfinished_work_and_operator_records_are_not_erased() {
    let lab = Lab::new();
    let mut session = lab.store.create(Actor::person("ada"));
    session.enter(SECRET).unwrap();
    session.user(SECRET).unwrap();
    session.publish().await.unwrap();
    let held = Held { sessions: vec![], labels: vec!["none".into()], why: SECRET.into(), until: None };
    lab.admin().hold(held).await.unwrap();
    let why = |plan: &PlannedErasure| plan.refused.iter().map(|refused| refused.why.to_string()).collect::<Vec<_>>();
    let plan = lab.admin().plan(about(), &mut |_| {}).await.unwrap();
    assert!(plan.is_empty());
    assert!(why(&plan).iter().any(|why| why.contains("stop it first")), "{:?}", why(&plan));
    assert!(why(&plan).iter().any(|why| why.contains("operator session records")), "{:?}", why(&plan));
    drop(session);
    let plan = lab.plan(about()).await;
    assert_eq!(plan.targets.len(), 1);
    assert!(why(&plan).iter().any(|why| why.contains("is not finished")), "{:?}", why(&plan));
}

#[tokio::test]
async fn the_inherited_workspace_of_a_fork_in_use_is_not_erased() {
    let lab = Lab::new();
    let mut session = lab.store.create(Actor::person("ada"));
    let placed = Placed {
        backend: "local".into(),
        isolated: true,
        origin: Some("/home/ada".into()),
        in_place: false,
        workspace: None,
        base: None,
        setup: None,
        why: None,
    };
    session.append(placed).unwrap();
    let place = session.head();
    session.user("Begin.").unwrap();
    let words = session.head();
    session.publish().await.unwrap();
    let mut fork = session.fork("try");
    fork.publish().await.unwrap();
    drop(session);
    let request = async || ErasureRequest {
        records: vec![lab.record(place).await, lab.record(words).await],
        ..ErasureRequest::default()
    };
    for _ in 0..1000 {
        let rows = lab.store.sessions(SessionFilter::Id(place.session).into()).await.unwrap();
        if rows[0].holder.is_none() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let plan = lab.admin().plan(request().await, &mut |_| {}).await.unwrap();
    assert_eq!(plan.targets.iter().map(|target| target.record).collect::<Vec<_>>(), [words]);
    assert!(matches!(plan.refused[0].why, Blocker::InUse(_)), "{:?}", plan.refused);
    drop(fork);
    assert_eq!(lab.erase(request().await).await.targets.len(), 2);
    assert_eq!(lab.verify(), 2);
}

/// The name of a step in which a fork was made is in the memory of a process that works on the fork, or on a fork of
/// it.
#[tokio::test]
async fn unfinished_work_that_a_fork_in_use_inherited_is_not_erased() {
    let lab = Lab::new();
    let mut session = lab.store.create(Actor::person("ada"));
    session.enter("plan").unwrap();
    let step = session.head();
    session.user("Begin.").unwrap();
    let words = session.head();
    let mut fork = session.fork("try");
    fork.note("on").unwrap();
    let mut second = fork.fork("try again");
    second.note("and on").unwrap();
    second.publish().await.unwrap();
    session.leave(rath::body::Outcome::Done).unwrap();
    session.publish().await.unwrap();
    drop((session, fork));
    let request = async || ErasureRequest {
        records: vec![lab.record(step).await, lab.record(words).await],
        ..ErasureRequest::default()
    };
    for _ in 0..1000 {
        let rows = lab.store.sessions(SessionFilter::Id(step.session).into()).await.unwrap();
        if rows[0].holder.is_none() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let plan = lab.admin().plan(request().await, &mut |_| {}).await.unwrap();
    assert_eq!(plan.targets.iter().map(|target| target.record).collect::<Vec<_>>(), [words]);
    assert!(matches!(plan.refused[0].why, Blocker::InUse(_)), "{:?}", plan.refused);
    drop(second);
    assert_eq!(lab.erase(request().await).await.targets.len(), 2);
    assert_eq!(lab.verify(), 2);
}

#[tokio::test]
async fn a_recorded_erasure_is_finished_and_an_unrecorded_one_is_abandoned() {
    let lab = Lab::new();
    let told = lab.note(SECRET).await;
    let embedded = Embedded::open_as(lab.path(), "test").unwrap();
    let erase_plan =
        rath::embedded::ErasePlan { records: vec![told], recorded: true, ..rath::embedded::ErasePlan::new() };
    embedded.journal_erase(&embedded.lock_for_erase().unwrap(), &erase_plan).unwrap();
    assert_eq!(lab.admin().unfinished().await.unwrap(), []);
    assert_eq!(lab.admin().finish(&mut |_| {}).await.unwrap(), 0);
    assert!(lab.record(told).await.body::<Note>().is_ok());

    embedded.journal_erase(&embedded.lock_for_erase().unwrap(), &erase_plan).unwrap();
    let mut operator = rath_audit::operator(&lab.store, Actor::person("olga")).await.unwrap();
    let erased = Erased {
        erasure: erase_plan.name.clone(),
        why: "ticket 12".into(),
        rule: None,
        records: rath::body::ErasedRange::stretches([told.point()]),
        sessions: vec![],
        posts: 0,
        blobs: 0,
    };
    operator.append(erased).unwrap();
    operator.publish().await.unwrap();
    // Another process may be executing it.
    let erase_lock = embedded.lock_for_erase().unwrap();
    assert_eq!(lab.admin().unfinished().await.unwrap(), []);
    drop(erase_lock);
    // Saving files takes another lock, and finishes nothing.
    let saving = rath::store::Blobs::gc_guard(&embedded).unwrap();
    assert_eq!(lab.admin().unfinished().await.unwrap(), std::slice::from_ref(&erase_plan));
    drop(saving);
    assert_eq!(lab.admin().unfinished().await.unwrap(), [erase_plan]);
    assert_eq!(lab.admin().finish(&mut |_| {}).await.unwrap(), 1);
    assert_eq!(lab.admin().unfinished().await.unwrap(), []);
    assert_eq!((lab.traces(), lab.verify()), (Vec::new(), 1));
    assert_eq!(lab.admin().finish(&mut |_| {}).await.unwrap(), 0);
}

/// Inactive sessions: a tree of forks, one alone, one that merged another.
async fn inactive_sessions(lab: &Lab) -> [SessionId; 5] {
    let mut root = lab.store.create(Actor::person("ada"));
    root.user(long("root")).unwrap();
    let mut branch = root.fork("a branch");
    branch.user(long("branch")).unwrap();
    branch.publish().await.unwrap();
    root.publish().await.unwrap();
    let mut taken = root.fork("to be taken in");
    taken.user("words").unwrap();
    let mut other = lab.store.create(Actor::person("ada"));
    other.label("scratch", "").unwrap();
    other.publish().await.unwrap();
    let mut whole = branch.fork("merges");
    whole.note("here").unwrap();
    let ids = [root.id(), branch.id(), taken.id(), whole.id(), other.id()];
    let mut whole = whole.merge([taken], How::Append).await.unwrap();
    whole.publish().await.unwrap();
    drop((root, branch, other, whole));
    lab.wait_until_unlocked().await;
    ids
}

#[tokio::test]
async fn sessions_are_removed_with_all_that_depend_on_them_or_not_at_all() {
    let lab = Lab::new();
    let [root, branch, taken, whole, other] = inactive_sessions(&lab).await;
    let admin = lab.admin();
    let at_once = RetentionPolicy { keep: Some("0h".parse().unwrap()), ..RetentionPolicy::default() };
    // A session in use keeps everything that it depends on.
    let working = lab.store.open(whole, Actor::person("ada")).await.unwrap();
    let collection = admin.due(&at_once, &mut |_| {}).await.unwrap();
    assert_eq!(collection.due.iter().map(|due| due.session.id).collect::<Vec<_>>(), [other]);
    let kept: BTreeSet<_> = collection.kept.iter().map(|kept| kept.session).collect();
    assert_eq!(kept, [root, branch, taken, whole].into());
    assert!(collection.kept.iter().any(|kept| matches!(kept.why, KeepReason::NeededBy(_))));
    drop(working);
    lab.wait_until_unlocked().await;

    let scratch = RetentionPolicy { only: Some("scratch".into()), ..at_once.clone() };
    let mut collection = admin.due(&scratch, &mut |_| {}).await.unwrap();
    assert_eq!(collection.due.len(), 1);
    let done = admin.collect(&mut collection, "tidy", &mut |_| {}).await.unwrap().unwrap();
    assert_eq!(done.destroyed.sessions, 1);
    assert!(lab.store.sessions(SessionFilter::Id(other).into()).await.unwrap().is_empty());
    let erasures = Erasures::of(&lab.store).await.unwrap();
    let name = other.short();
    let (gone, by) = erasures.removed(&name).next().unwrap();
    assert_eq!((gone, by.erased.rule.as_deref()), (other, Some("keep 0h")));
    assert_eq!(lab.verify(), 0);

    let mut collection = admin.due(&at_once, &mut |_| {}).await.unwrap();
    assert_eq!(collection.due.len(), 4, "{:?}", collection.kept);
    let done = admin.collect(&mut collection, "tidy", &mut |_| {}).await.unwrap().unwrap();
    assert!(done.destroyed.blobs >= 2, "{done:?}");
    // Only the operator session is left.
    let rows = lab.store.sessions(SessionFilter::All.into()).await.unwrap();
    assert_eq!((rows.len(), rows[0].id), (1, done.record.session));
    lab.verify();
}

#[tokio::test]
async fn label_rules_override_the_default_and_the_longest_wins() {
    let lab = Lab::new();
    let [.., other] = inactive_sessions(&lab).await;
    let rule =
        |label: &str, keep: &str| rath_audit::admin::RetentionRule { label: label.into(), keep: keep.parse().unwrap() };
    let due = async |policy: RetentionPolicy| {
        let collection = lab.admin().due(&policy, &mut |_| {}).await.unwrap();
        collection.due.into_iter().map(|due| due.session.id).collect::<Vec<_>>()
    };
    assert_eq!(
        due(RetentionPolicy { rules: vec![rule("scratch", "0h")], ..RetentionPolicy::default() }).await,
        [other]
    );
    let both = vec![rule("scratch", "0h"), rule("scratch", "forever")];
    assert_eq!(due(RetentionPolicy { rules: both, ..RetentionPolicy::default() }).await, []);
    let keep = Some("0h".parse().unwrap());
    let kept = due(RetentionPolicy { keep, rules: vec![rule("scratch", "1d")], ..RetentionPolicy::default() }).await;
    assert!(kept.len() == 4 && !kept.contains(&other));
}

#[tokio::test]
async fn the_size_limit_removes_the_sessions_that_were_inactive_longest() {
    let mut lab = Lab::new();
    let mut ids = Vec::new();
    for n in 0..6u64 {
        let mut session = lab.store.create(Actor::person("ada"));
        let mut state = n + 1;
        let mut noise = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        let bytes: Vec<u8> = (0..200_000).map(|_| noise()).collect();
        session.user_with("Look.", [("a.bin", Blob::new(bytes, "application/octet-stream"))]).unwrap();
        session.publish().await.unwrap();
        ids.push(session.id());
    }
    // A pack that another process may append to is not rewritten.
    lab.store = Embedded::open(lab.path()).unwrap();
    let admin = lab.admin();
    lab.wait_until_unlocked().await;
    let now = Embedded::open_as(lab.path(), "test").unwrap().size().unwrap();
    let policy = |size| RetentionPolicy { size: Some(rath_audit::admin::Size(size)), ..RetentionPolicy::default() };
    assert!(admin.due(&policy(now), &mut |_| {}).await.unwrap().due.is_empty());
    let collection = admin.due(&policy(now - 300_000), &mut |_| {}).await.unwrap();
    assert_eq!(
        collection.due.iter().map(|due| due.session.id).collect::<Vec<_>>(),
        ids[..2],
        "{:?}",
        collection.effects
    );
    let all = admin.due(&policy(0), &mut |_| {}).await.unwrap();
    assert!(all.due.len() == 6 && all.short_by > 0);
    // A session that a rule keeps stays, even if the store is too large.
    let mut contract = lab.store.open(ids[0], Actor::person("ada")).await.unwrap();
    contract.label("contract", "").unwrap();
    contract.publish().await.unwrap();
    drop(contract);
    lab.wait_until_unlocked().await;
    let rules = vec![rath_audit::admin::RetentionRule { label: "contract".into(), keep: "forever".parse().unwrap() }];
    let due = admin.due(&RetentionPolicy { rules, ..policy(0) }, &mut |_| {}).await.unwrap().due;
    assert!(due.len() == 5 && due.iter().all(|due| due.session.id != ids[0]));
    // Once the store fits, no more is removed.
    let size = policy(now - 300_000);
    let mut collection = admin.due(&size, &mut |_| {}).await.unwrap();
    admin.collect(&mut collection, "room", &mut |_| {}).await.unwrap().unwrap();
    assert!(admin.due(&size, &mut |_| {}).await.unwrap().due.is_empty());
    lab.verify();
}

#[tokio::test]
async fn a_session_that_is_continued_during_a_removal_stays() {
    let lab = Lab::new();
    let [.., other] = inactive_sessions(&lab).await;
    let admin = lab.admin();
    let at_once = RetentionPolicy {
        keep: Some("0h".parse().unwrap()),
        only: Some("scratch".into()),
        ..RetentionPolicy::default()
    };
    let mut collection = admin.due(&at_once, &mut |_| {}).await.unwrap();
    let goes_on = async |words: &str| {
        let mut session = lab.store.open(other, Actor::person("ada")).await.unwrap();
        session.user(words).unwrap();
        session.publish().await.unwrap();
        drop(session);
        lab.wait_until_unlocked().await;
    };
    goes_on("More.").await;
    let error = admin.collect(&mut collection, "tidy", &mut |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("has moved to record"), "{error}");
    assert!(Erasures::of(&lab.store).await.unwrap().all().is_empty(), "no removal is recorded");

    // An erasure that was recorded, and whose process died before it was finished.
    let collection = admin.due(&at_once, &mut |_| {}).await.unwrap();
    let row = &collection.due[0].session;
    let erase_plan = rath::embedded::ErasePlan {
        recorded: true,
        sessions: vec![row.head_reference()],
        ..rath::embedded::ErasePlan::new()
    };
    let embedded = Embedded::open_as(lab.path(), "test").unwrap();
    let erase_lock = embedded.lock_for_erase().unwrap();
    embedded.journal_erase(&erase_lock, &erase_plan).unwrap();
    let removed = rath::body::RemovedSession { session: row.id, head: row.head, records: row.seq + 1 };
    let mut operator = rath_audit::operator(&lab.store, Actor::person("olga")).await.unwrap();
    let erased = Erased {
        erasure: erase_plan.name.clone(),
        why: "tidy".into(),
        rule: Some("keep 0h".into()),
        records: Vec::new(),
        sessions: vec![removed],
        posts: 0,
        blobs: 0,
    };
    operator.append(erased).unwrap();
    operator.publish().await.unwrap();
    drop((operator, erase_lock));
    goes_on("And more.").await;
    assert_eq!(admin.finish(&mut |_| {}).await.unwrap(), 0);
    assert_eq!(lab.store.sessions(SessionFilter::Id(other).into()).await.unwrap().len(), 1);
    let erased = lab.erase(ErasureRequest { sessions: vec![other], ..ErasureRequest::default() }).await;
    assert!(!erased.targets.is_empty());
    lab.verify();
}

#[tokio::test]
async fn copies_of_all_kinds_are_found() {
    let lab = Lab::new();
    full_of_it(&lab.store).await;
    let mut all = Vec::new();
    for row in lab.store.sessions(SessionFilter::All.into()).await.unwrap() {
        all.extend(View::of(&lab.store, row.id, None).await.unwrap().own_records().await.unwrap());
    }
    let of = |kind: Kind| all.iter().find(|record| *record.kind() == kind).unwrap().clone();
    let copies = async |kind: Kind| {
        let plan = lab.plan(ErasureRequest { records: vec![of(kind)], ..ErasureRequest::default() }).await;
        plan.copies.iter().map(|copy| copy.kind.clone()).collect::<BTreeSet<_>>()
    };
    let named = |kinds: &[&str]| kinds.iter().map(|kind| (*kind).to_owned()).collect::<BTreeSet<_>>();
    let turn = copies(Kind::ToolStarted).await;
    assert!(turn.is_superset(&named(&["assistant", "model_responded", "asked", "granted", "detached"])), "{turn:?}");
    let output = copies(Kind::ToolResult).await;
    assert!(output.is_superset(&named(&["tool_finished", "detached", "user"])), "{output:?}");
    assert!(copies(Kind::System).await.is_superset(&named(&["compressed", "detached"])));
    assert_eq!(copies(Kind::Forked).await, named(&["merged"]));
}

#[tokio::test]
async fn an_imported_record_is_erased_with_its_source_file() {
    let lab = Lab::new();
    let line = |role: &str, text: &str| format!("{{\"role\":\"{role}\",\"content\":\"{text}\"}}\n");
    let first = line("user", "I am Ada Q\\u0020Lovelace") + &line("assistant", "Hello.");
    let grown = first.clone() + &line("user", "What is new?");
    let mut session = None;
    for file in [&first, &grown] {
        let mut importer = rath_audit::import::Importer::new(&lab.store, Actor::person("ada"), false).await.unwrap();
        let parsed = rath_audit::import::jsonl::read(file.as_bytes()).unwrap();
        session = Some(importer.import("talk.jsonl", file.as_bytes(), parsed).await.unwrap().session);
    }
    let own = View::of(&lab.store, session.unwrap(), None).await.unwrap().own_records().await.unwrap();
    let said = own.iter().find(|record| *record.kind() == Kind::User).unwrap().clone();
    let plan = lab.erase(ErasureRequest { records: vec![said], derived: true, ..ErasureRequest::default() }).await;
    let kinds: Vec<_> = plan.targets.iter().map(|target| target.kind.as_str()).collect();
    assert_eq!(kinds, ["imported", "user", "linked"]);
    assert_eq!(plan.effects.blobs, 2);
    assert_eq!(traces::find(lab.dir.path(), "Lovelace"), Vec::<PathBuf>::new());
    assert_eq!(lab.verify(), 3);
}

#[tokio::test]
async fn a_missing_body_without_an_erasure_is_a_finding() {
    let lab = Lab::new();
    let (told, taken) = (lab.note("erased on the record").await, lab.note("taken out in silence").await);
    let record = lab.record(told).await;
    lab.erase(ErasureRequest { records: vec![record], ..ErasureRequest::default() }).await;
    lab.store.erase(vec![taken]).await.unwrap();
    let admin = lab.admin();
    let mut report = Embedded::open_as(lab.path(), "test").unwrap().verify(None, &mut |_, _| {}).unwrap();
    assert!(report.is_valid() && report.erased == 2, "the chain holds");
    assert_eq!(admin.explain(&mut report).await, 0);
    let found: Vec<_> = report.findings.iter().map(|found| (found.what, found.session, found.seq)).collect();
    assert_eq!(found, [(rath::verify::FindingKind::BodyMissing, Some(taken.session), Some(taken.seq))]);
}

/// The stores of `corpus/` lost one body that no erasure explains, which is all that is wrong with them.
#[tokio::test]
async fn the_corpus_stores_lack_one_body_each() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus");
    for dir in std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()) {
        let copy = tempfile::tempdir().unwrap();
        rath_testkit::copy_dir(&dir.join("store"), copy.path());
        let open = || Embedded::open_as(copy.path(), "test").unwrap();
        let mut report = open().verify(None, &mut |_, _| {}).unwrap();
        assert!(report.is_valid() && report.erased == 1, "{}: {:?}", dir.display(), report.findings);
        StoreAdmin::new(open(), Actor::person("olga")).explain(&mut report).await;
        let found: Vec<_> = report.findings.iter().map(|found| (found.what, found.seq)).collect();
        assert_eq!(found, [(rath::verify::FindingKind::BodyMissing, Some(20))], "{}", dir.display());
    }
}

#[tokio::test]
async fn backups_of_an_older_format_are_erased_too() {
    let lab = Lab::new();
    let note = lab.note(&long(SECRET)).await;
    let record = lab.record(note).await;
    let backup = lab.path().join("rath.db.format-2.backup");
    std::fs::write(&backup, long(SECRET)).unwrap();
    lab.wait_until_unlocked().await;
    let admin = lab.admin();
    let mut plan =
        admin.plan(ErasureRequest { records: vec![record], ..ErasureRequest::default() }, &mut |_| {}).await.unwrap();
    let done = admin.erase(&mut plan, "ticket 12", &mut |_| {}).await.unwrap().unwrap();
    assert_eq!(done.destroyed.backups, [backup]);
    assert_eq!(lab.traces(), Vec::<PathBuf>::new());
}
