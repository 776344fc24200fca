//! Holds, erasure with its copies, retention.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use rath::body::{
    About as Question, Answered, Asked, Attached, CallOutcome, Effect, Erased, Grant, Granted, Held, Labelled,
    ModelFailed, ModelRequested, ModelResponded, Note, Output, Placed, Scope, ToolFinished, ToolResult, ToolStarted,
    User, Verdict,
};
use rath::files::Changes;
use rath::prelude::*;
use rath::store::{Lookup, Piece, Post, Posted, Which};
use rath::{Blob, BlobRef, Digest, Embedded, Kind, Record, Reference, Time};
use rath_audit::care::{Because, Care, Erasures, Holds, Plan, Policy, Stays, WhyNot, Wish};
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

    fn care(&self) -> Care {
        Care::new(Embedded::open_here(self.path(), "test").unwrap(), Actor::person("olga"))
    }

    async fn plan(&self, wish: Wish) -> Plan {
        self.nobody_works().await;
        self.care().plan(wish, &mut |_| {}).await.unwrap()
    }

    async fn erase(&self, wish: Wish) -> Plan {
        self.nobody_works().await;
        let care = self.care();
        let mut plan = care.plan(wish, &mut |_| {}).await.unwrap();
        care.erase(&mut plan, "ticket 12", &mut |_| {}).await.unwrap();
        plan
    }

    fn verify(&self) -> u64 {
        let report = Embedded::open_here(self.path(), "test").unwrap().verify(None, &mut |_, _| {}).unwrap();
        assert!(report.is_sound(), "{:?}", report.findings);
        report.erased
    }

    fn traces(&self) -> Vec<PathBuf> {
        let lower = SECRET.to_lowercase();
        let found: BTreeSet<_> =
            [SECRET, lower.as_str()].iter().flat_map(|secret| traces::find(self.dir.path(), secret)).collect();
        found.into_iter().collect()
    }

    /// Sessions that were dropped are given back by a thread of their store.
    async fn nobody_works(&self) {
        for _ in 0..1000 {
            let rows = self.store.sessions(Which::All.into()).await.unwrap();
            if rows.iter().all(|row| row.holder.is_none()) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("somebody still works");
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

/// A content that is held in pieces, with the secret across two of them.
async fn put_long(store: &Arc<dyn Store>, length: usize) -> BlobRef {
    let mut content = b"not a word of it. ".repeat(length / 18);
    let at = content.len() / (1 << 20) * (1 << 20) - 5;
    content.splice(at..at + SECRET.len(), SECRET.bytes());
    let whole = BlobRef { digest: Digest::of(&content), bytes: content.len() as u64, media_type: "text/plain".into() };
    let pieces: Vec<Blob> = content.chunks(1 << 20).map(|part| Blob::new(part, "text/plain")).collect();
    let named = pieces.iter().map(|piece| Piece { digest: piece.reference.digest, bytes: piece.reference.bytes });
    let named = named.collect();
    store.blob_put(pieces).await.unwrap();
    store.blob_join(whole.clone(), named).await.unwrap();
    whole
}

#[tokio::test]
async fn no_content_is_too_long_to_be_read() {
    let lab = Lab::new();
    let content = put_long(&lab.store, 17 << 20).await;
    let mut session = lab.store.create(Actor::person("ada"));
    let attached = vec![Attached { content: content.clone(), name: Some("dump.txt".into()) }];
    session.append(User { text: "See.".into(), post: None, attached }).unwrap();
    session.publish().await.unwrap();
    let said = session.head();
    drop(session);
    let plan = lab.erase(about()).await;
    assert_eq!(plan.targets.iter().map(|target| target.record).collect::<Vec<_>>(), [said]);
    assert!(lab.store.blob_pieces(content.digest).await.unwrap().is_none());
    assert_eq!(lab.verify(), 1);
}

#[tokio::test]
async fn a_subject_is_found_in_every_form_of_unicode() {
    let lab = Lab::new();
    let mut found = Vec::new();
    for text in ["by Zoe\u{308}.", "by ZO\u{cb}", "by Zo\u{ad}\u{eb}", "by Z\u{200b}oe\u{308}"] {
        found.push(lab.note(text).await);
    }
    lab.note("by Zoe").await;
    for subject in ["Zo\u{eb}", "zoe\u{308}"] {
        let plan = lab.plan(Wish { about: Some(subject.into()), ..Wish::default() }).await;
        let targets: BTreeSet<_> = plan.targets.iter().map(|target| target.record.session).collect();
        assert_eq!(targets, found.iter().map(|record| record.session).collect());
    }
}

fn about() -> Wish {
    Wish { about: Some(SECRET.into()), derived: true, ..Wish::default() }
}

fn long(text: &str) -> String {
    format!("{text} {}", "and so on, and so on. ".repeat(800))
}

/// A session with the secret in every place that a session has.
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
    // A stream says words in pieces: only its turn knows that it is about somebody.
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
    let question = Asked::new(Question::Approval, Some("c1".into()), format!("May I find {SECRET}?"));
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
    let post = Posted::Message { text: format!("tell {SECRET}") };
    store.post(Post::new(ids[0], Actor::person("bob"), post)).await.unwrap();
    ids
}

#[tokio::test]
async fn a_secret_in_every_place_is_gone() {
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
    assert!(matches!(responded.because, Because::CopyOf(_)));
    assert_eq!((plan.posts.len(), plan.refused.len(), plan.weight.kept.len()), (1, 0, 0), "{plan:?}");
    assert!(!lab.traces().is_empty());

    let plan = lab.erase(about()).await;
    assert_eq!(lab.traces(), Vec::<PathBuf>::new());
    for half in ["Ada Q Lo", "velace"] {
        assert_eq!(traces::find(lab.dir.path(), half), Vec::<PathBuf>::new(), "{half}");
    }
    assert_eq!(lab.verify(), plan.targets.len() as u64);
    assert_eq!(lab.record(plain).await.body_bytes(), before.body_bytes());
    assert!(lab.plan(about()).await.is_empty());

    // Who, when and why is on the record, and what it said is not.
    let erasures = Erasures::of(&lab.store).await.unwrap();
    let erasure = erasures.over(responded.record.point()).unwrap();
    assert_eq!((erasure.by.name.as_str(), erasure.erased.why.as_str()), ("olga", "ticket 12"));
    assert!(erasures.over(plain.point()).is_none());

    // What is left can be looked at, gone on with, forked, detached and merged.
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
async fn without_derived_the_copies_are_told_and_stay() {
    let lab = Lab::new();
    full_of_it(&lab.store).await;
    let plan = lab.plan(Wish { derived: false, ..about() }).await;
    let copies: Vec<_> = plan.copies.iter().map(|copy| copy.kind.as_str()).collect();
    assert_eq!(copies, ["model_responded"]);
}

#[tokio::test]
async fn a_hold_is_obeyed_with_everything_that_is_stood_on() {
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

    let care = lab.care();
    let held = Held { sessions: vec![branch_id], why: "a lawsuit".into(), ..Held::default() };
    let hold = care.hold(held).await.unwrap();
    let plan = lab.erase(about()).await;
    assert_eq!(plan.targets.iter().map(|target| target.record).collect::<Vec<_>>(), [after]);
    assert_eq!(
        plan.refused.iter().map(|refused| refused.session).collect::<BTreeSet<_>>(),
        [root_id, branch_id].into()
    );
    let WhyNot::OnHold(over) = &plan.refused[0].why else { panic!("{:?}", plan.refused) };
    let said = over.to_string();
    assert!(said.contains("a lawsuit") && said.contains("olga") && said.contains(&hold.point().to_string()), "{said}");
    assert!(lab.record(before).await.body::<User>().is_ok());

    // Nor does retention touch it, and what was released may go.
    let policy = Policy { keep: Some("0h".parse().unwrap()), ..Policy::default() };
    let due = care.due(&policy, &mut |_| {}).await.unwrap();
    assert!(due.due.is_empty(), "{:?}", due.due);
    assert!(due.kept.iter().all(|kept| matches!(kept.why, Stays::OnHold(_))), "{:?}", due.kept);
    let holds = Holds::of(&lab.store).await.unwrap();
    care.release(&holds.all, "settled").await.unwrap();
    assert!(Holds::of(&lab.store).await.unwrap().all.is_empty());
    assert_eq!(lab.erase(about()).await.refused.len(), 0);
    assert_eq!(lab.traces(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_hold_on_a_label_or_with_an_end() {
    let lab = Lab::new();
    let mut session = lab.store.create(Actor::person("ada"));
    session.label("case", "17").unwrap();
    session.publish().await.unwrap();
    let id = session.id();
    drop(session);
    let care = lab.care();
    let labels = |label: &str, until| Held { labels: vec![label.into()], why: "kept".into(), until, ..Held::default() };
    care.hold(labels("case=18", None)).await.unwrap();
    care.hold(labels("case", Some(Time(1)))).await.unwrap();
    let whole = || Wish { sessions: vec![id], ..Wish::default() };
    assert_eq!(lab.plan(whole()).await.refused.len(), 0);
    care.hold(labels("case=17", None)).await.unwrap();
    assert_eq!((lab.plan(whole()).await.targets.len(), lab.plan(whole()).await.refused.len()), (0, 1));
    // Who takes the label away does not end the hold; one that comes later does not know of it.
    let mut session = Session::open(&lab.store, id, Actor::person("eve")).await.unwrap();
    session.append(Labelled { unset: vec!["case".into()], ..Labelled::default() }).unwrap();
    session.publish().await.unwrap();
    drop(session);
    assert_eq!((lab.plan(whole()).await.targets.len(), lab.plan(whole()).await.refused.len()), (0, 1));
    let holds = Holds::of(&lab.store).await.unwrap();
    care.release(&holds.all, "over").await.unwrap();
    care.hold(labels("case", None)).await.unwrap();
    assert_eq!(lab.plan(whole()).await.refused.len(), 0);
}

#[tokio::test]
async fn what_is_at_work_open_or_the_operators_stays() {
    let lab = Lab::new();
    let mut session = lab.store.create(Actor::person("ada"));
    session.enter(SECRET).unwrap();
    session.user(SECRET).unwrap();
    session.publish().await.unwrap();
    let held = Held { sessions: vec![], labels: vec!["none".into()], why: SECRET.into(), until: None };
    lab.care().hold(held).await.unwrap();
    let why = |plan: &Plan| plan.refused.iter().map(|refused| refused.why.to_string()).collect::<Vec<_>>();
    let plan = lab.care().plan(about(), &mut |_| {}).await.unwrap();
    assert!(plan.is_empty());
    assert!(why(&plan).iter().any(|why| why.contains("stop it first")), "{:?}", why(&plan));
    assert!(why(&plan).iter().any(|why| why.contains("the store's account")), "{:?}", why(&plan));
    drop(session);
    let plan = lab.plan(about()).await;
    assert_eq!(plan.targets.len(), 1);
    assert!(why(&plan).iter().any(|why| why.contains("is not finished")), "{:?}", why(&plan));
}

#[tokio::test]
async fn a_place_that_a_fork_at_work_began_with_stays() {
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
    let wish = async || Wish { records: vec![lab.record(place).await, lab.record(words).await], ..Wish::default() };
    for _ in 0..1000 {
        let rows = lab.store.sessions(Which::Id(place.session).into()).await.unwrap();
        if rows[0].holder.is_none() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let plan = lab.care().plan(wish().await, &mut |_| {}).await.unwrap();
    assert_eq!(plan.targets.iter().map(|target| target.record).collect::<Vec<_>>(), [words]);
    assert!(matches!(plan.refused[0].why, WhyNot::AtWork(_)), "{:?}", plan.refused);
    drop(fork);
    assert_eq!(lab.erase(wish().await).await.targets.len(), 2);
    assert_eq!(lab.verify(), 2);
}

/// The name of a step that a fork began in is in the memory of whoever works on the fork, or on a fork of it.
#[tokio::test]
async fn what_was_open_when_a_fork_began_stays_while_somebody_works_there() {
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
    let wish = async || Wish { records: vec![lab.record(step).await, lab.record(words).await], ..Wish::default() };
    for _ in 0..1000 {
        let rows = lab.store.sessions(Which::Id(step.session).into()).await.unwrap();
        if rows[0].holder.is_none() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let plan = lab.care().plan(wish().await, &mut |_| {}).await.unwrap();
    assert_eq!(plan.targets.iter().map(|target| target.record).collect::<Vec<_>>(), [words]);
    assert!(matches!(plan.refused[0].why, WhyNot::AtWork(_)), "{:?}", plan.refused);
    drop(second);
    assert_eq!(lab.erase(wish().await).await.targets.len(), 2);
    assert_eq!(lab.verify(), 2);
}

#[tokio::test]
async fn an_erasure_on_the_record_is_finished_and_one_that_is_not_was_never_begun() {
    let lab = Lab::new();
    let told = lab.note(SECRET).await;
    let embedded = Embedded::open_here(lab.path(), "test").unwrap();
    let doomed = rath::Doomed { records: vec![told], recorded: true, ..rath::Doomed::new() };
    embedded.intend(&embedded.quiet().unwrap(), &doomed).unwrap();
    assert_eq!(lab.care().unfinished().await.unwrap(), []);
    assert_eq!(lab.care().finish(&mut |_| {}).await.unwrap(), 0);
    assert!(lab.record(told).await.body::<Note>().is_ok());

    embedded.intend(&embedded.quiet().unwrap(), &doomed).unwrap();
    let mut operator = rath_audit::operator(&lab.store, Actor::person("olga")).await.unwrap();
    let erased = Erased {
        erasure: doomed.name.clone(),
        why: "ticket 12".into(),
        rule: None,
        records: rath::body::Stripped::stretches([told.point()]),
        sessions: vec![],
        posts: 0,
        blobs: 0,
    };
    operator.append(erased).unwrap();
    operator.publish().await.unwrap();
    // Somebody may be carrying it out.
    let quiet = embedded.quiet().unwrap();
    assert_eq!(lab.care().unfinished().await.unwrap(), []);
    drop(quiet);
    // Who saves files is in nobody's way, and finishes nothing.
    let saving = rath::store::Blobs::gc_guard(&embedded).unwrap();
    assert_eq!(lab.care().unfinished().await.unwrap(), std::slice::from_ref(&doomed));
    drop(saving);
    assert_eq!(lab.care().unfinished().await.unwrap(), [doomed]);
    assert_eq!(lab.care().finish(&mut |_| {}).await.unwrap(), 1);
    assert_eq!(lab.care().unfinished().await.unwrap(), []);
    assert_eq!((lab.traces(), lab.verify()), (Vec::new(), 1));
    assert_eq!(lab.care().finish(&mut |_| {}).await.unwrap(), 0);
}

/// Sessions that rest: a tree of forks, one alone, one that took another in.
async fn resting(lab: &Lab) -> [SessionId; 5] {
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
    lab.nobody_works().await;
    ids
}

#[tokio::test]
async fn sessions_go_whole_with_all_that_stand_on_them_or_not_at_all() {
    let lab = Lab::new();
    let [root, branch, taken, whole, other] = resting(&lab).await;
    let care = lab.care();
    let at_once = Policy { keep: Some("0h".parse().unwrap()), ..Policy::default() };
    // One that is at work keeps everything that it stands on.
    let working = lab.store.open(whole, Actor::person("ada")).await.unwrap();
    let collection = care.due(&at_once, &mut |_| {}).await.unwrap();
    assert_eq!(collection.due.iter().map(|due| due.session.id).collect::<Vec<_>>(), [other]);
    let kept: BTreeSet<_> = collection.kept.iter().map(|kept| kept.session).collect();
    assert_eq!(kept, [root, branch, taken, whole].into());
    assert!(collection.kept.iter().any(|kept| matches!(kept.why, Stays::StoodOn(_))));
    drop(working);
    lab.nobody_works().await;

    let scratch = Policy { only: Some("scratch".into()), ..at_once.clone() };
    let mut collection = care.due(&scratch, &mut |_| {}).await.unwrap();
    assert_eq!(collection.due.len(), 1);
    let done = care.collect(&mut collection, "tidy", &mut |_| {}).await.unwrap().unwrap();
    assert_eq!(done.destroyed.sessions, 1);
    assert!(lab.store.sessions(Which::Id(other).into()).await.unwrap().is_empty());
    let erasures = Erasures::of(&lab.store).await.unwrap();
    let name = other.short();
    let (gone, by) = erasures.removed(&name).next().unwrap();
    assert_eq!((gone, by.erased.rule.as_deref()), (other, Some("keep 0h")));
    assert_eq!(lab.verify(), 0);

    let mut collection = care.due(&at_once, &mut |_| {}).await.unwrap();
    assert_eq!(collection.due.len(), 4, "{:?}", collection.kept);
    let done = care.collect(&mut collection, "tidy", &mut |_| {}).await.unwrap().unwrap();
    assert!(done.destroyed.blobs >= 2, "{done:?}");
    // The operator session is all that is left.
    let rows = lab.store.sessions(Which::All.into()).await.unwrap();
    assert_eq!((rows.len(), rows[0].id), (1, done.record.session));
    lab.verify();
}

#[tokio::test]
async fn rules_for_labels_count_before_the_rest_and_the_longest_wins() {
    let lab = Lab::new();
    let [.., other] = resting(&lab).await;
    let rule = |label: &str, keep: &str| rath_audit::care::Rule { label: label.into(), keep: keep.parse().unwrap() };
    let due = async |policy: Policy| {
        let collection = lab.care().due(&policy, &mut |_| {}).await.unwrap();
        collection.due.into_iter().map(|due| due.session.id).collect::<Vec<_>>()
    };
    assert_eq!(due(Policy { rules: vec![rule("scratch", "0h")], ..Policy::default() }).await, [other]);
    let both = vec![rule("scratch", "0h"), rule("scratch", "forever")];
    assert_eq!(due(Policy { rules: both, ..Policy::default() }).await, []);
    let keep = Some("0h".parse().unwrap());
    let kept = due(Policy { keep, rules: vec![rule("scratch", "1d")], ..Policy::default() }).await;
    assert!(kept.len() == 4 && !kept.contains(&other));
}

#[tokio::test]
async fn the_store_is_brought_to_a_size_by_what_rested_longest() {
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
    // A pack that somebody may append to is not written anew.
    lab.store = Embedded::open(lab.path()).unwrap();
    let care = lab.care();
    lab.nobody_works().await;
    let now = Embedded::open_here(lab.path(), "test").unwrap().size().unwrap();
    let policy = |size| Policy { size: Some(rath_audit::care::Size(size)), ..Policy::default() };
    assert!(care.due(&policy(now), &mut |_| {}).await.unwrap().due.is_empty());
    let collection = care.due(&policy(now - 300_000), &mut |_| {}).await.unwrap();
    assert_eq!(
        collection.due.iter().map(|due| due.session.id).collect::<Vec<_>>(),
        ids[..2],
        "{:?}",
        collection.weight
    );
    let all = care.due(&policy(0), &mut |_| {}).await.unwrap();
    assert!(all.due.len() == 6 && all.short_by > 0);
    // What a rule keeps stays, however full the store is.
    let mut contract = lab.store.open(ids[0], Actor::person("ada")).await.unwrap();
    contract.label("contract", "").unwrap();
    contract.publish().await.unwrap();
    drop(contract);
    lab.nobody_works().await;
    let rules = vec![rath_audit::care::Rule { label: "contract".into(), keep: "forever".parse().unwrap() }];
    let due = care.due(&Policy { rules, ..policy(0) }, &mut |_| {}).await.unwrap().due;
    assert!(due.len() == 5 && due.iter().all(|due| due.session.id != ids[0]));
    // Once it fits, nothing more goes.
    let size = policy(now - 300_000);
    let mut collection = care.due(&size, &mut |_| {}).await.unwrap();
    care.collect(&mut collection, "room", &mut |_| {}).await.unwrap().unwrap();
    assert!(care.due(&size, &mut |_| {}).await.unwrap().due.is_empty());
    lab.verify();
}

#[tokio::test]
async fn a_session_that_goes_on_meanwhile_stays_and_blocks_nothing() {
    let lab = Lab::new();
    let [.., other] = resting(&lab).await;
    let care = lab.care();
    let at_once = Policy { keep: Some("0h".parse().unwrap()), only: Some("scratch".into()), ..Policy::default() };
    let mut collection = care.due(&at_once, &mut |_| {}).await.unwrap();
    let goes_on = async |words: &str| {
        let mut session = lab.store.open(other, Actor::person("ada")).await.unwrap();
        session.user(words).unwrap();
        session.publish().await.unwrap();
        drop(session);
        lab.nobody_works().await;
    };
    goes_on("More.").await;
    let error = care.collect(&mut collection, "tidy", &mut |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("has moved on"), "{error}");
    assert!(Erasures::of(&lab.store).await.unwrap().all().is_empty(), "nothing says that it went");

    // One that got onto the record, and whose process died before it was done.
    let collection = care.due(&at_once, &mut |_| {}).await.unwrap();
    let row = &collection.due[0].session;
    let doomed = rath::Doomed { recorded: true, sessions: vec![row.head_reference()], ..rath::Doomed::new() };
    let embedded = Embedded::open_here(lab.path(), "test").unwrap();
    let quiet = embedded.quiet().unwrap();
    embedded.intend(&quiet, &doomed).unwrap();
    let removed = rath::body::Removed { session: row.id, head: row.head, records: row.seq + 1 };
    let mut operator = rath_audit::operator(&lab.store, Actor::person("olga")).await.unwrap();
    let erased = Erased {
        erasure: doomed.name.clone(),
        why: "tidy".into(),
        rule: Some("keep 0h".into()),
        records: Vec::new(),
        sessions: vec![removed],
        posts: 0,
        blobs: 0,
    };
    operator.append(erased).unwrap();
    operator.publish().await.unwrap();
    drop((operator, quiet));
    goes_on("And more.").await;
    assert_eq!(care.finish(&mut |_| {}).await.unwrap(), 0);
    assert_eq!(lab.store.sessions(Which::Id(other).into()).await.unwrap().len(), 1);
    let erased = lab.erase(Wish { sessions: vec![other], ..Wish::default() }).await;
    assert!(!erased.targets.is_empty());
    lab.verify();
}

#[tokio::test]
async fn a_copy_is_found_however_it_came_about() {
    let lab = Lab::new();
    full_of_it(&lab.store).await;
    let mut all = Vec::new();
    for row in lab.store.sessions(Which::All.into()).await.unwrap() {
        all.extend(View::of(&lab.store, row.id, None).await.unwrap().own().await.unwrap());
    }
    let of = |kind: Kind| all.iter().find(|record| *record.kind() == kind).unwrap().clone();
    let copies = async |kind: Kind| {
        let plan = lab.plan(Wish { records: vec![of(kind)], ..Wish::default() }).await;
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
async fn what_was_imported_goes_with_the_file_that_it_came_from() {
    let lab = Lab::new();
    let line = |role: &str, text: &str| format!("{{\"role\":\"{role}\",\"content\":\"{text}\"}}\n");
    let first = line("user", "I am Ada Q\\u0020Lovelace") + &line("assistant", "Hello.");
    let grown = first.clone() + &line("user", "What is new?");
    let mut session = None;
    for file in [&first, &grown] {
        let mut intake = rath_audit::import::Intake::new(&lab.store, Actor::person("ada"), false).await.unwrap();
        let parsed = rath_audit::import::jsonl::read(file.as_bytes()).unwrap();
        session = Some(intake.take("talk.jsonl", file.as_bytes(), parsed).await.unwrap().session);
    }
    let own = View::of(&lab.store, session.unwrap(), None).await.unwrap().own().await.unwrap();
    let said = own.iter().find(|record| *record.kind() == Kind::User).unwrap().clone();
    let plan = lab.erase(Wish { records: vec![said], derived: true, ..Wish::default() }).await;
    let kinds: Vec<_> = plan.targets.iter().map(|target| target.kind.as_str()).collect();
    assert_eq!(kinds, ["imported", "user", "linked"]);
    assert_eq!(plan.weight.blobs, 2);
    assert_eq!(traces::find(lab.dir.path(), "Lovelace"), Vec::<PathBuf>::new());
    assert_eq!(lab.verify(), 3);
}

#[tokio::test]
async fn a_body_that_is_gone_without_a_word_is_a_finding() {
    let lab = Lab::new();
    let (told, taken) = (lab.note("erased on the record").await, lab.note("taken out in silence").await);
    let record = lab.record(told).await;
    lab.erase(Wish { records: vec![record], ..Wish::default() }).await;
    lab.store.erase(vec![taken]).await.unwrap();
    let care = lab.care();
    let mut report = Embedded::open_here(lab.path(), "test").unwrap().verify(None, &mut |_, _| {}).unwrap();
    assert!(report.is_sound() && report.erased == 2, "the chain holds");
    assert_eq!(care.explain(&mut report).await, 0);
    let found: Vec<_> = report.findings.iter().map(|found| (found.what, found.session, found.seq)).collect();
    assert_eq!(found, [(rath::verify::What::BodyMissing, Some(taken.session), Some(taken.seq))]);
}

/// The stores of `corpus/` lost a body below the operator session, which is all that is wrong with them.
#[tokio::test]
async fn the_corpus_lacks_one_body_a_store() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus");
    for dir in std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()) {
        let copy = tempfile::tempdir().unwrap();
        rath_testkit::copy_dir(&dir.join("store"), copy.path());
        let open = || Embedded::open_here(copy.path(), "test").unwrap();
        let mut report = open().verify(None, &mut |_, _| {}).unwrap();
        assert!(report.is_sound() && report.erased == 1, "{}: {:?}", dir.display(), report.findings);
        Care::new(open(), Actor::person("olga")).explain(&mut report).await;
        let found: Vec<_> = report.findings.iter().map(|found| (found.what, found.seq)).collect();
        assert_eq!(found, [(rath::verify::What::BodyMissing, Some(20))], "{}", dir.display());
    }
}

#[tokio::test]
async fn what_was_kept_of_an_older_format_goes_too() {
    let lab = Lab::new();
    let note = lab.note(&long(SECRET)).await;
    let record = lab.record(note).await;
    let backup = lab.path().join("rath.db.format-2.backup");
    std::fs::write(&backup, long(SECRET)).unwrap();
    lab.nobody_works().await;
    let care = lab.care();
    let mut plan = care.plan(Wish { records: vec![record], ..Wish::default() }, &mut |_| {}).await.unwrap();
    let done = care.erase(&mut plan, "ticket 12", &mut |_| {}).await.unwrap().unwrap();
    assert_eq!(done.destroyed.backups, [backup]);
    assert_eq!(lab.traces(), Vec::<PathBuf>::new());
}
