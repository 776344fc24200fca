//! Faults that combinators must survive: branches that hang, losers that wait, undos that fail, rate limits, and many
//! branches at once.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rath::body::{Routed, StepLeft};
use rath::model::{Delta, Encoded, Failure, Model, ModelAnswer, ModelInput, Turn};
use rath::prelude::*;
use rath::store::{BoxFuture, Post, PostContent, Query};
use rath::workflow::{Join, StopTimeout, compensate, map, parallel, race, retry, timeout};
use rath::{Digest, ErrorKind, Kind};
use rath_testkit::{CrashPoint, CrashingStore};
use serde_json::json;
use tokio::sync::Notify;

/// Only a deadlock takes longer, on any machine.
const FOR_EVER: Duration = Duration::from_secs(120);

#[derive(Default)]
struct World {
    sent: Mutex<Vec<String>>,
}

/// Sends a message.
#[tool(effect = "irreversible")]
async fn send(
    /// The text.
    text: String,
    world: Resource<World>,
) -> String {
    world.sent.lock().unwrap().push(text.clone());
    format!("sent {text}")
}

fn says(name: &str, answer: &str) -> Agent {
    Agent::new(name).model(Scripted::new("scripted").say(answer)).retries(0, Duration::ZERO)
}

fn sends(name: &str, text: &str) -> Agent {
    let script = Scripted::new("scripted").call("send", json!({ "text": text })).say(format!("{text} is sent"));
    Agent::new(name).model(script).tools(send).retries(0, Duration::ZERO)
}

fn fails(why: &'static str) -> impl Workflow + Clone {
    move |session: Session| async move { Err(Error::coded("broken", why, session)) }
}

/// Never ends, whatever it is told.
async fn hangs(session: Session) -> Result<Session> {
    loop {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        if session.head().seq == u64::MAX {
            return Ok(session);
        }
    }
}

/// Stops when it is told to.
async fn obeys(mut session: Session) -> Result<Session> {
    session.cancel_token().cancelled().await;
    Err(Error::new(ErrorKind::Cancelled { why: "told to stop".into() }, vec![session]))
}

async fn go(session: &mut Session) -> Result<()> {
    session.user("Go.").map(drop)
}

async fn begin(store: &Arc<dyn Store>) -> Result<(Session, Arc<World>)> {
    let mut session = store.begin_run("run", Actor::program("test"), go).await?;
    let world = Arc::new(World::default());
    session.provide_shared(world.clone());
    session.provide(StopTimeout(Duration::from_millis(50)));
    Ok((session, world))
}

async fn nothing_is_open(store: &Arc<dyn Store>) {
    for row in store.sessions(Query::default()).await.unwrap() {
        let pending = View::of(store, row.id, None).await.unwrap().pending();
        assert!(pending.is_empty(), "{}: {pending:?}", row.id);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_that_ignores_cancellation_is_dropped() {
    let store: Arc<dyn Store> = InMemory::new();
    let (session, _) = begin(&store).await.unwrap();
    let both = parallel("both").branch("hangs", hangs).branch("bad", fails("no luck"));
    let executed = tokio::time::timeout(FOR_EVER, session.execute(&both)).await.expect("a deadlock");
    assert_eq!(executed.unwrap_err().to_string(), "no luck");
    nothing_is_open(&store).await;

    let store: Arc<dyn Store> = InMemory::new();
    let (session, _) = begin(&store).await.unwrap();
    let step = race("race").branch("hangs", hangs).branch("quick", says("quick", "Oslo"));
    let session = tokio::time::timeout(FOR_EVER, session.execute(&step)).await.expect("a deadlock").unwrap();
    assert_eq!(session.text().await.unwrap().as_deref(), Some("Oslo"));
    drop(session);
    nothing_is_open(&store).await;

    let store: Arc<dyn Store> = InMemory::new();
    let (session, _) = begin(&store).await.unwrap();
    let step = timeout("limit", Duration::from_millis(20), hangs);
    let error = tokio::time::timeout(FOR_EVER, session.execute(&step)).await.expect("a deadlock").unwrap_err();
    assert_eq!(error.code(), "timed-out");
    drop(error);
    nothing_is_open(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loser_that_waits_for_a_person_does_not_hold_up_a_race() {
    let store: Arc<dyn Store> = InMemory::new();
    let asked = Arc::new(Notify::new());
    let asks = {
        let asked = asked.clone();
        move |mut session: Session| {
            let asked = asked.clone();
            async move {
                let answered = session.ask("Shall I?").await;
                asked.notify_one();
                match answered {
                    Ok(_) => Ok(session),
                    Err(error) => Err(error.with_sessions(vec![session])),
                }
            }
        }
    };
    let later = move |mut session: Session| {
        let asked = asked.clone();
        async move {
            asked.notified().await;
            session.assistant("Oslo")?;
            Ok(session)
        }
    };
    let (session, _) = begin(&store).await.unwrap();
    let session = session.execute(&race("race").branch("asks", asks).branch("later", later)).await.unwrap();
    assert_eq!(session.text().await.unwrap().as_deref(), Some("Oslo"));
    drop(session);
    nothing_is_open(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_who_is_asked_on_one_of_20_branches_does_not_hold_up_the_others() {
    let store: Arc<dyn Store> = InMemory::new();
    let answers = Arc::new(AtomicUsize::new(0));
    let step = || {
        let asks = |mut session: Session| async move {
            match session.ask("Shall I?").await {
                Ok(_) => Ok(session),
                Err(error) => Err(error.with_sessions(vec![session])),
            }
        };
        (1..20).fold(parallel("twenty").branch("0", asks), |step, number| {
            let answers = answers.clone();
            let model = Scripted::from_fn(move |_| {
                answers.fetch_add(1, Ordering::AcqRel);
                Turn::from("fine")
            });
            step.branch(number.to_string(), Agent::new("agent").model(model))
        })
    };
    let (session, _) = begin(&store).await.unwrap();
    let error = session.execute(&step()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Waiting(_)), "{error}");
    drop(error);
    assert_eq!(answers.load(Ordering::Acquire), 19, "the others ran to their end");
    for row in store.sessions(Query::default()).await.unwrap() {
        for ask in View::of(&store, row.id, None).await.unwrap().pending().asks {
            let verdict = rath::body::Verdict::Yes;
            let what = PostContent::Answer { asked: ask.record, shown_digest: ask.shown_digest, verdict, why: None };
            store.post(Post::new(row.id, Actor::person("ada"), what)).await.unwrap();
        }
    }
    let (session, _) = begin(&store).await.unwrap();
    session.execute(&step()).await.unwrap();
    assert_eq!(answers.load(Ordering::Acquire), 19, "no finished branch runs again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_branch_that_finished_before_a_crash_wins_the_race() {
    let mut between = 0;
    for moment in [CrashPoint::Before, CrashPoint::After] {
        for commits in 0.. {
            let store: Arc<dyn Store> = InMemory::new();
            let crashing = CrashingStore::new(store.clone(), commits, moment);
            let through: Arc<dyn Store> = crashing.clone();
            let may_finish = |may: bool| {
                move |session: Session| async move {
                    // Not for ever: the store may be dead.
                    match may {
                        true => Ok(session),
                        false => obeys_for_a_while(session).await,
                    }
                }
            };
            let step = |other: bool| {
                race("race").branch("other", may_finish(other)).branch("first", says("first", "the first"))
            };
            if let Ok((session, _)) = begin(&through).await {
                drop(session.execute(&step(false)).await);
            }
            if !crashing.is_dead() {
                break;
            }
            drop(through);
            let (mut finished, mut recorded) = (false, false);
            for row in store.sessions(Query::default()).await.unwrap() {
                let view = View::of(&store, row.id, None).await.unwrap();
                let records = view.own_records().await.unwrap();
                let done = |left: StepLeft| left.outcome == rath::body::Outcome::Done;
                let is_done = records.last().unwrap().body::<StepLeft>().is_ok_and(done);
                // The step of the branch, not only that of the agent in it.
                let steps = |kind: Kind| records.iter().filter(|record| *record.kind() == kind).count();
                let all_left = steps(Kind::StepEntered) == steps(Kind::StepLeft) && steps(Kind::StepLeft) == 2;
                finished |= is_done && all_left && *records[0].kind() == Kind::Forked;
                recorded |= records.iter().any(|record| record.body::<Routed>().is_ok());
            }
            between += u32::from(finished && !recorded);
            // Now the other branch could finish at once.
            let (session, _) = begin(&store).await.unwrap();
            let session = session.execute(&step(true)).await.unwrap();
            if finished {
                assert_eq!(session.text().await.unwrap().as_deref(), Some("the first"), "{moment:?} {commits}");
            }
            drop(session);
            nothing_is_open(&store).await;
        }
    }
    assert!(between >= 1, "no crash fell between the win and its record");
}

/// Stops when it is told to, or fails some time later.
async fn obeys_for_a_while(session: Session) -> Result<Session> {
    let mut session = session;
    let cancel = session.cancel_token();
    tokio::select! {
        () = cancel.cancelled() => Err(Error::new(ErrorKind::Cancelled { why: "told to stop".into() }, vec![session])),
        () = tokio::time::sleep(Duration::from_millis(300)) => Err(Error::coded("too-slow", "too slow", session)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_failure_of_a_step_is_the_same_after_a_crash_among_its_cancelled_branches() {
    for moment in [CrashPoint::Before, CrashPoint::After] {
        for commits in 0.. {
            let store: Arc<dyn Store> = InMemory::new();
            let crashing = CrashingStore::new(store.clone(), commits, moment);
            let through: Arc<dyn Store> = crashing.clone();
            // The cancelled branch comes first, and is therefore the first to be found again.
            let step = || parallel("both").branch("obeys", obeys_for_a_while).branch("bad", fails("no luck"));
            if let Ok((session, _)) = begin(&through).await {
                drop(session.execute(&step()).await);
            }
            if !crashing.is_dead() {
                break;
            }
            drop(through);
            let (session, _) = begin(&store).await.unwrap();
            let error = session.execute(&step()).await.unwrap_err();
            assert_eq!((error.code(), &*error.to_string()), ("broken", "no luck"), "{moment:?} {commits}");
            drop(error);
            nothing_is_open(&store).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undo_that_fails_does_not_stop_the_others() {
    let store: Arc<dyn Store> = InMemory::new();
    let (session, world) = begin(&store).await.unwrap();
    let trip = compensate("trip")
        .step("flight", sends("a", "book flight"), sends("b", "cancel flight"))
        .step("hotel", sends("c", "book hotel"), fails("the hotel is closed"))
        .then("car", fails("no cars"));
    let error = session.execute(&trip).await.unwrap_err();
    assert_eq!(error.to_string(), "no cars");
    assert_eq!(*world.sent.lock().unwrap(), ["book flight", "book hotel", "cancel flight"]);
    let session = &error.sessions()[0];
    let failed: Vec<String> =
        session.own_records(&[Kind::Failed]).await.unwrap().iter().map(rath::summary::of).collect();
    assert!(failed.iter().any(|line| line.contains("the hotel is closed")), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loser_of_a_race_and_a_cancelled_run_are_undone() {
    let booked = Arc::new(Notify::new());
    let trip = |booked: &Arc<Notify>| {
        let booked = booked.clone();
        let wait = move |session: Session| {
            let booked = booked.clone();
            async move {
                booked.notify_one();
                obeys(session).await
            }
        };
        compensate("trip").step("flight", sends("a", "book flight"), sends("b", "cancel flight")).then("wait", wait)
    };
    let later = {
        let booked = booked.clone();
        move |session: Session| {
            let booked = booked.clone();
            async move {
                booked.notified().await;
                Ok(session)
            }
        }
    };
    let store: Arc<dyn Store> = InMemory::new();
    let (session, world) = begin(&store).await.unwrap();
    let step = race("race").branch("trip", trip(&booked)).branch("later", later);
    drop(session.execute(&step).await.unwrap());
    assert_eq!(*world.sent.lock().unwrap(), ["book flight", "cancel flight"]);
    nothing_is_open(&store).await;

    let store: Arc<dyn Store> = InMemory::new();
    let (mut session, world) = begin(&store).await.unwrap();
    let cancel = rath::Cancel::new();
    session.stop_with(cancel.clone());
    let trip = trip(&booked);
    let stop = async {
        booked.notified().await;
        cancel.cancel("enough");
    };
    let (executed, ()) = tokio::join!(session.execute(&trip), stop);
    assert!(executed.unwrap_err().is_cancelled());
    assert_eq!(*world.sent.lock().unwrap(), ["book flight", "cancel flight"]);
    nothing_is_open(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_10_000_branches_64_run_at_once() {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let work = {
        let (running, most) = (running.clone(), most.clone());
        move |session: Session| {
            let (running, most) = (running.clone(), most.clone());
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
                tokio::task::yield_now().await;
                running.fetch_sub(1, Ordering::AcqRel);
                Ok(session)
            }
        }
    };
    let count = (10_000 * rath_testkit::scaled(10) / 10).min(10_000) as usize;
    let store: Arc<dyn Store> = InMemory::new();
    let (session, _) = begin(&store).await.unwrap();
    let step = map("each", work).items(0..count).at_most(64).join(Join::answers());
    let session = session.execute(&step).await.unwrap();
    assert_eq!(session.context().await.unwrap().len(), 2);
    let most = most.load(Ordering::Acquire);
    assert!(most > 1 && most <= 64, "{most}");
    assert_eq!(store.sessions(Query::default()).await.unwrap().len(), count + 1);
}

/// A provider that refuses all requests for a while after too many, and says how long to wait.
struct Limited {
    answers: Scripted,
    limit: Arc<Limit>,
}

#[derive(Default)]
struct Limit {
    requests: AtomicU64,
    refused: AtomicU64,
    until: Mutex<Option<Instant>>,
}

const PAUSE: Duration = Duration::from_millis(300);

impl Model for Limited {
    fn name(&self) -> &str {
        "limited"
    }

    fn encoder(&self) -> &str {
        self.answers.encoder()
    }

    fn encode<'a>(&'a self, input: &'a ModelInput<'a>) -> BoxFuture<'a, Result<Encoded, Failure>> {
        self.answers.encode(input)
    }

    fn send<'a>(
        &'a self,
        input: &'a ModelInput<'a>,
        request: &'a Encoded,
        on_delta: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>> {
        Box::pin(async move {
            let number = self.limit.requests.fetch_add(1, Ordering::AcqRel);
            let until = {
                let mut until = self.limit.until.lock().unwrap();
                if number == 8 {
                    *until = Some(Instant::now() + PAUSE);
                }
                *until
            };
            if let Some(left) = until.and_then(|until| until.checked_duration_since(Instant::now())) {
                self.limit.refused.fetch_add(1, Ordering::AcqRel);
                let failure =
                    Failure { status: Some(429), after: Some(left), ..Failure::transient("too many requests") };
                return Err(failure);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.answers.send(input, request, on_delta).await
        })
    }

    fn rate_limit_key(&self, _: u32) -> Option<Digest> {
        Some(Digest::of(b"the key of this test"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_retry_after_holds_back_all_branches_that_use_the_key() {
    let limit = Arc::new(Limit::default());
    let model = Limited { answers: Scripted::new("scripted").say("fine"), limit: limit.clone() };
    // One retry, although a branch may be refused more often: a wait for the rate limit is not an attempt.
    let agent = Agent::new("agent").model(model).retries(1, Duration::from_millis(1));
    let store: Arc<dyn Store> = InMemory::new();
    let (session, _) = begin(&store).await.unwrap();
    let session = session.execute(&map("each", agent).items(0..200).at_most(64)).await.unwrap();
    assert_eq!(session.usage().requests, 200);
    let (requests, refused) = (limit.requests.load(Ordering::Acquire), limit.refused.load(Ordering::Acquire));
    assert_eq!(requests, 200 + refused);
    assert!((1..=64).contains(&refused), "only requests that were on their way are refused: {refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_the_rate_limit_is_not_an_attempt() {
    let model = |refusals: u32| {
        let turn = Turn::new().text("fine").fails_first(
            refusals,
            Failure {
                status: Some(429),
                after: Some(Duration::from_millis(2)),
                ..Failure::transient("too many requests")
            },
        );
        let (answers, limit) = (Scripted::new("scripted").turn(turn), Arc::<Limit>::default());
        Limited { answers, limit }
    };
    let store: Arc<dyn Store> = InMemory::new();
    let (session, _) = begin(&store).await.unwrap();
    let agent = Agent::new("agent").model(model(5)).retries(1, Duration::from_millis(1));
    let session = session.execute(&retry("once", agent).attempts(1)).await.unwrap();
    assert_eq!(session.text().await.unwrap().as_deref(), Some("fine"));
}
