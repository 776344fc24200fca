//! The guarantees of `Session`.

use pollster::block_on;
use rath_core::body::{Assistant, Block, Compressed, Merged, ModelResponded, Outcome, Rejected};
use rath_core::store::SessionFilter;
use rath_core::{Actor, Blob, Durability, How, INLINE_LIMIT, InMemory, Kind, MessageBody, Session, Time, Usage};

fn session() -> Session {
    Session::create(&InMemory::new(), Actor::person("ada"))
}

fn said(session: &Session) -> Vec<String> {
    block_on(session.context()).unwrap().iter().map(|message| message.body.to_string()).collect()
}

fn call(session: &mut Session, id: &str) {
    let block = Block::ToolUse { id: id.into(), name: "look".into(), arguments: "".into() };
    session.append(Assistant::new(vec![block])).unwrap();
}

#[test]
fn display_shows_a_transcript() {
    let mut session = session();
    session.set_title("Colours").unwrap();
    session.user("Which one?\nQuick.").unwrap();
    session.assistant("Red.").unwrap();
    let text = session.to_string();
    let tail = text.split_once('\n').unwrap().1;
    assert!(text.starts_with(&format!("session {} \"Colours\", 4 records\n", session.id().short())), "{text}");
    assert_eq!(
        tail,
        "        ·  created\n        ·  labelled: title \"Colours\"\n     user  Which one?\n           Quick.\nassistant  Red.\n"
    );
}

#[test]
fn keep_takes_the_chosen_context_and_records_the_rejected() {
    let mut session = session();
    session.user("ask").unwrap();
    let (mut a, mut b) = (session.fork("a"), session.fork("b"));
    a.assistant("from a").unwrap();
    b.assistant("from b").unwrap();
    let (chosen, loser) = (a.id(), b.head());
    let session = block_on(session.merge([a, b], How::keep(chosen, "shorter"))).unwrap();
    assert_eq!(said(&session), ["ask", "from a"]);
    let own = block_on(async { session.view().await?.own_records().await }).unwrap();
    let rejected: Rejected = own.last().unwrap().body().unwrap();
    assert_eq!((rejected.branch, rejected.why.as_str()), (loser, "shorter"));
}

#[test]
fn append_keeps_the_parents_view_of_the_shared_prefix() {
    let mut session = session();
    for n in 0..4 {
        session.user(format!("old {n}")).unwrap();
    }
    let mut branch = session.fork("b");
    // Each side compresses the shared prefix differently. The branch's summary of it is not merged.
    block_on(branch.compress(0, 3, "branch's summary")).unwrap();
    branch.assistant("new in branch").unwrap();
    block_on(session.compress(0, 2, "own summary")).unwrap();
    let session = block_on(session.merge([branch], How::Append)).unwrap();
    let said = said(&session);
    assert_eq!(said.len(), 5);
    assert_eq!(said[..3], ["own summary", "old 2", "old 3"]);
    assert_eq!(said[4], "new in branch");
}

#[test]
fn a_summary_that_reaches_into_the_branch_is_merged() {
    let mut session = session();
    session.user("shared").unwrap();
    let mut branch = session.fork("b");
    branch.user("only here").unwrap();
    block_on(branch.compress(0, 2, "both")).unwrap();
    let session = block_on(session.merge([branch], How::Append)).unwrap();
    assert_eq!(said(&session)[2], "both");
}

#[test]
fn synthesize_replaces_the_branches_with_the_result() {
    let mut session = session();
    session.user("ask").unwrap();
    let branches: Vec<Session> = (0..3)
        .map(|n| {
            let mut branch = session.fork("try");
            branch.assistant(format!("answer {n}")).unwrap();
            branch
        })
        .collect();
    let judge = |mut session: Session| async move {
        let seen = session.context().await?.len();
        session.assistant(format!("the best of {seen} items"))?;
        Ok(session)
    };
    let session = block_on(session.merge(branches, How::synthesize(judge))).unwrap();
    let said = said(&session);
    assert_eq!((said.len(), said[0].as_str(), said[2].as_str()), (3, "ask", "the best of 7 items"));
    assert!(said[1].contains("3 merged branches, 6 items"), "{said:?}");
    assert_eq!(session.unpublished_count(), 0);
}

#[test]
fn usage_counts_every_record_once() {
    let pay = |session: &mut Session, tokens| {
        let usage = Usage { requests: 1, input_tokens: tokens, ..Usage::default() };
        session.append(ModelResponded { usage, ..ModelResponded::default() }).unwrap();
    };
    let mut session = session();
    pay(&mut session, 100);
    let (mut a, mut b) = (session.fork("a"), session.fork("b"));
    pay(&mut a, 10);
    pay(&mut b, 1);
    let c = b.fork("c");
    assert_eq!(c.usage().input_tokens, 101);
    let session = block_on(session.merge([a, b], How::Append)).unwrap();
    assert_eq!(session.usage().input_tokens, 111);
    let session = block_on(session.merge([c], How::Append)).unwrap();
    assert_eq!(session.usage(), Usage { requests: 3, input_tokens: 111, ..Usage::default() });
    assert!(block_on(session.detach("clean")).unwrap().usage().is_zero());
}

#[test]
fn merging_open_branches_fails_and_returns_them() {
    let mut session = session();
    session.user("ask").unwrap();
    let mut branch = session.fork("b");
    branch.enter("thinking").unwrap();
    call(&mut branch, "c1");
    let (id, branch_id) = (session.id(), branch.id());
    let error = block_on(session.merge([branch], How::Append)).unwrap_err();
    assert_eq!(error.code(), "still-open");
    assert!(error.to_string().contains("step \"thinking\", call c1 of look"), "{error}");
    let mut sessions = error.into_sessions();
    assert_eq!(sessions.iter().map(Session::id).collect::<Vec<_>>(), [id, branch_id]);
    let branch = sessions.pop().unwrap();
    let session = sessions.pop().unwrap();
    let how = How::Keep { chosen: id, why: "late".into(), cancel_losers: true };
    let session = block_on(session.merge([branch], how)).unwrap();
    assert_eq!(said(&session), ["ask"]);
}

#[test]
fn a_fork_inside_a_step_belongs_to_it_and_may_merge_back() {
    let mut session = session();
    let step = session.enter("review").unwrap();
    let mut branch = session.fork("b");
    branch.assistant("done").unwrap();
    assert!(branch.pending().is_empty());
    let record = block_on(branch.view()).unwrap().record().clone();
    assert_eq!(record.header().unwrap().step, Some(step));
    assert_eq!(branch.leave(Outcome::Done).unwrap_err().code(), "no-step");
    let mut session = block_on(session.merge([branch], How::Append)).unwrap();
    session.leave(Outcome::Done).unwrap();
    assert!(session.pending().is_empty());
}

#[test]
fn a_call_and_its_result_leave_together() {
    let mut session = session();
    session.user("look").unwrap();
    call(&mut session, "c1");
    session.tool_result("c1", "seen").unwrap();
    call(&mut session, "c2");
    let error = block_on(session.compress(0, 2, "…")).unwrap_err();
    assert!(error.to_string().contains("c1"), "{error}");
    assert_eq!(block_on(session.compress(3, 1, "…")).unwrap_err().code(), "bad-range");
    assert_eq!(block_on(session.compress(0, 9, "…")).unwrap_err().code(), "bad-range");
    assert_eq!(block_on(session.compress(0, 0, "…")).unwrap_err().code(), "bad-range");
    block_on(session.compress(0, 3, "looked")).unwrap();
    assert_eq!(said(&session), ["looked", "→ look() [c2]"]);
}

#[test]
fn at_shows_the_session_as_it_was() {
    let mut session = session();
    session.user("one").unwrap();
    session.label("state", "early").unwrap();
    session.user("two").unwrap();
    block_on(session.compress(0, 2, "both")).unwrap();
    session.label("state", "late").unwrap();
    let view = block_on(session.at(3)).unwrap();
    let texts: Vec<String> = block_on(view.context()).unwrap().iter().map(|m| m.body.to_string()).collect();
    assert_eq!(texts, ["one", "two"]);
    assert_eq!(view.state().labels["state"], "early");
    assert_eq!(said(&session), ["both"]);
    assert!(block_on(session.at(99)).is_err());
    let body: Compressed = block_on(session.at(4)).unwrap().record().body().unwrap();
    assert_eq!((body.replaces.at, body.replaces.count, body.replaces.first.seq), (0, 2, 1));
}

#[test]
fn fork_at_refuses_points_outside_the_history() {
    let mut session = session();
    session.user("one").unwrap();
    let stranger = Session::create(session.store(), Actor::person("bob"));
    let error = block_on(session.fork_at(rath_core::Point { session: stranger.id(), seq: 0 }, "?")).unwrap_err();
    assert_eq!(error.code(), "not-in-history");
    let child = session.fork("b");
    let grandchild = child.fork("c");
    let again = block_on(grandchild.fork_at(session.head().point(), "from the root")).unwrap();
    assert_eq!(again.origin(), Some(session.head()));
}

#[test]
fn detached_sessions_copy_context_and_forget_history() {
    let mut session = session();
    session.user("x".repeat(INLINE_LIMIT + 1)).unwrap();
    call(&mut session, "c1");
    session.tool_result("c1", "seen").unwrap();
    let mut child = block_on(session.detach("start clean")).unwrap();
    child.assistant("on my own").unwrap();
    block_on(child.publish()).unwrap();
    assert_eq!(child.origin(), None);
    // The origin was never published, and the copy does not depend on it.
    assert!(block_on(session.store().sessions(SessionFilter::Id(session.id()).into())).unwrap().is_empty());
    let id = child.id();
    let store = session.store().clone();
    drop((session, child));
    let child = block_on(store.open(id, Actor::person("bob"))).unwrap();
    let context = block_on(child.context()).unwrap();
    assert_eq!(context.len(), 4);
    let MessageBody::User(user) = &context[0].body else { panic!("{context:?}") };
    let text = block_on(async { child.view().await.unwrap().content(&user.text).await }).unwrap();
    assert_eq!(text.len(), INLINE_LIMIT + 1);
    let twice = block_on(child.detach("again")).unwrap();
    assert_eq!(said(&twice), said(&child));
}

#[test]
fn durability_decides_when_records_are_published() {
    let mut session = session();
    session.enter("outer").unwrap();
    session.enter("inner").unwrap();
    session.leave(Outcome::Done).unwrap();
    block_on(session.publish_if_due()).unwrap();
    assert_eq!(session.unpublished_count(), 4);
    session.leave(Outcome::Done).unwrap();
    block_on(session.publish_if_due()).unwrap();
    assert_eq!(session.unpublished_count(), 0);
    session.set_durability(Durability::Record);
    session.note("one").unwrap();
    block_on(session.publish_if_due()).unwrap();
    assert_eq!(session.unpublished_count(), 0);
    session.set_durability(Durability::Relaxed { every: std::time::Duration::from_secs(3600) });
    session.note("two").unwrap();
    block_on(session.publish_if_due()).unwrap();
    assert_eq!(session.unpublished_count(), 1);
    session.set_durability(Durability::Relaxed { every: std::time::Duration::ZERO });
    block_on(session.publish_if_due()).unwrap();
    assert_eq!(session.unpublished_count(), 0);
}

#[test]
fn time_never_runs_backwards_along_parents() {
    let mut session = session();
    let mut last = Time(0);
    for _ in 0..100 {
        session.note("tick").unwrap();
        let time = block_on(session.view()).unwrap().record().time().unwrap();
        assert!(time >= last);
        last = time;
    }
}

#[test]
fn bad_bodies_are_refused_and_change_nothing() {
    let mut session = session();
    let head = session.head();
    for (kind, body) in [
        ("Bad Kind", "{}"),
        ("", "{}"),
        ("note", "[]"),
        ("note", "{"),
        ("note", r#"{"words":1}"#),
        ("created", "{}"),
        ("merged", "{}"),
        ("closed", "{}"),
        ("my.kind", r#"{"in":"\ud800"}"#),
        ("my.kind", r#"{"in":1e999}"#),
        ("my.kind", &format!("{{\"in\":{}{}}}", "[".repeat(127), "]".repeat(127))),
    ] {
        assert_eq!(session.append_json(kind, body).unwrap_err().code(), "bad-body", "{kind} {body}");
    }
    let huge = format!("{{\"x\":\"{}\"}}", "y".repeat(rath_core::BODY_LIMIT));
    assert_eq!(session.append_json("my.kind", &huge).unwrap_err().code(), "body-too-large");
    assert_eq!(session.head(), head);
}

#[test]
fn a_body_begins_with_its_brace() {
    let mut session = session();
    session.append_json("my.kind", " \r\n\t{ \"a\" : 1 } ").unwrap();
    let record = block_on(session.view()).unwrap().record().clone();
    assert_eq!(record.body_bytes().unwrap(), b"{ \"a\" : 1 } ");
    assert!(rath_core::verify::is_json_object(&record));
}

#[test]
fn a_merge_names_the_records_it_adds() {
    let mut session = session();
    session.user("ask").unwrap();
    let base = session.head();
    let mut branch = session.fork("b");
    branch.assistant("answer").unwrap();
    session.note("meanwhile").unwrap();
    let (own, theirs) = (session.head(), branch.head());
    let session = block_on(session.merge([branch], How::Append)).unwrap();
    let record = block_on(session.view()).unwrap().record().clone();
    assert_eq!(*record.kind(), Kind::Merged);
    assert_eq!(record.header().unwrap().parents[..], [own.id, theirs.id]);
    let body: Merged = record.body().unwrap();
    assert_eq!(body.base, Some(base));
    assert_eq!((body.added[0].session, body.added[0].from, body.added[0].to), (theirs.session, 0, 1));
}

#[test]
fn failed_merges_return_the_sessions() {
    let first = session();
    let error = block_on(first.merge([], How::Append)).unwrap_err();
    assert_eq!(error.code(), "bad-merge");
    let first = error.into_sessions().pop().unwrap();
    let stranger = session();
    let branch = first.fork("b");
    let error = block_on(first.merge([branch], How::keep(stranger.id(), "?"))).unwrap_err();
    assert_eq!(error.code(), "bad-merge");
    assert_eq!(error.sessions().len(), 2);
    let error = block_on(session().merge([session()], How::Append)).unwrap_err();
    assert!(error.to_string().contains("lives in another store"), "{error}");
}

#[test]
fn values_and_futures_cross_threads() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>(_: &T) {}
    shared::<Session>();
    shared::<rath_core::Error>();
    shared::<rath_core::View>();
    assert_eq!(std::mem::size_of::<Session>(), std::mem::size_of::<usize>());
    let mut first = session();
    let branch = first.fork("b");
    sent(&first.publish());
    sent(&first.context());
    let merging = first.merge([branch], How::Append);
    sent(&merging);
}

#[test]
fn a_view_of_unpublished_records_can_be_forked() {
    let mut parent = session();
    parent.user("one").unwrap();
    parent.user("two").unwrap();
    let mut child = block_on(parent.at(1)).unwrap().fork(Actor::person("bob"), "from the first").unwrap();
    assert_eq!(said(&child), ["one"]);
    block_on(child.publish()).unwrap();
    // The parent is stored up to the fork point and no further.
    let store = parent.store().clone();
    assert_eq!(block_on(store.sessions(SessionFilter::Id(parent.id()).into())).unwrap()[0].seq, 1);
    let mut early = block_on(parent.fork_at(rath_core::Point { session: parent.id(), seq: 0 }, "earlier")).unwrap();
    block_on(early.publish()).unwrap();
    assert_eq!(block_on(store.sessions(SessionFilter::Id(parent.id()).into())).unwrap()[0].seq, 1);
    drop(parent);
    assert_eq!(said(&child), ["one"]);
}

#[test]
fn failed_operations_change_nothing() {
    let mut session = session();
    session.enter("thinking").unwrap();
    let error = block_on(session.close("early")).unwrap_err();
    assert_eq!(error.code(), "still-open");
    let session = error.into_sessions().pop().unwrap();
    assert_eq!(session.pending().steps.len(), 1);

    let (mut a, mut b) = (session.fork("a"), session.fork("b"));
    a.enter("busy").unwrap();
    b.enter("chosen and busy").unwrap();
    let heads = [session.head(), a.head(), b.head()];
    let how = How::Keep { chosen: b.id(), why: "?".into(), cancel_losers: true };
    let back = block_on(session.merge([a, b], how)).unwrap_err().into_sessions();
    assert_eq!(back.iter().map(Session::head).collect::<Vec<_>>(), heads);
    assert_eq!(back[1].pending().steps.len(), 1);
}

#[test]
fn kinds_written_by_operations_cannot_be_appended() {
    let mut session = session();
    let head = session.head();
    assert_eq!(session.append(rath_core::body::Created::default()).unwrap_err().code(), "bad-body");
    assert_eq!(session.append(rath_core::body::Closed::default()).unwrap_err().code(), "bad-body");
    assert_eq!(session.head(), head);
}

#[test]
fn a_dropped_publish_does_not_lock_the_session() {
    let mut session = session();
    let (store, id) = (session.store().clone(), session.id());
    // Polled once and dropped, as by a timeout.
    let mut publishing = Box::pin(session.publish());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let _ = std::future::Future::poll(publishing.as_mut(), &mut context);
    drop(publishing);
    drop(session);
    assert!(block_on(store.open(id, Actor::person("bob"))).is_ok());
}

#[test]
fn messages_can_have_attachments() {
    let store = InMemory::new();
    let mut session = Session::create(&store, Actor::person("ada"));
    let picture = Blob::new(*b"\x89PNG", "image/png");
    session
        .user_with("Who is this?", [("cat.png", picture.clone()), ("", Blob::new(*b"%PDF", "application/pdf"))])
        .unwrap();
    block_on(session.publish()).unwrap();
    let id = session.id();
    drop(session);
    let session = block_on(store.open(id, Actor::person("ada"))).unwrap();
    let said = block_on(session.context()).unwrap().remove(0).body.to_string();
    let wanted = "Who is this?\n[attached: cat.png, image/png, 4 bytes]\n[attached: application/pdf, 4 bytes]";
    assert_eq!(said, wanted);
    let kept = block_on(store.blob_get(picture.reference.digest)).unwrap().unwrap();
    assert_eq!(kept, picture.bytes);
}
