//! Random programs of steps, forks, agents and questions. However often the process is killed, they have the same
//! result, and each irreversible effect happens once.
//!
//! Everything runs on one thread and depends only on the test case, so that failures can be shrunk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rath::Usage;
use rath::body::{Asked, CallOutcome, Cancelled, Outcome, QuestionKind, StepLeft, ToolFinished, ToolStarted, Verdict};
use rath::model::{Failure, MessageBody};
use rath::prelude::*;
use rath::session::OnDivergence;
use rath::store::{BoxFuture, Post, PostContent, Query, Scan, SessionFilter};
use rath::{Digest, ErrorKind, Kind, RunOptions, SessionId};
use rath_testkit::{CrashPoint, CrashingStore};
use serde_json::json;

use crate::agents::Hooked;

/// A node of a program.
#[derive(Clone, Debug)]
enum Node {
    /// A user message.
    Say,
    /// A random number, and a message with it.
    Sample,
    /// A step that returns a random value of this size, and a message with it.
    Value(usize),
    /// A random number that is recorded once, and a message with it.
    Once,
    /// A question of the workflow.
    Ask,
    /// An agent: its turns, each with its calls and the number of failures before it.
    Agent(Vec<(Vec<Use>, u32)>),
    Step(Vec<Node>),
    Fork(Vec<Node>, Vec<Node>, Together),
}

/// A tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Count,
    Put,
    /// As `put`, after an approval.
    Pay,
    Send,
    Fail,
    AskHuman,
    /// A sub-agent that calls `send`.
    Helper,
    Missing,
}

/// How branches are merged.
#[derive(Clone, Copy, Debug)]
enum Together {
    Append,
    KeepLeft,
    KeepRight,
}

fn a_use() -> impl Strategy<Value = Use> {
    prop_oneof![
        2 => Just(Use::Count),
        2 => Just(Use::Put),
        1 => Just(Use::Pay),
        4 => Just(Use::Send),
        1 => Just(Use::Fail),
        1 => Just(Use::AskHuman),
        2 => Just(Use::Helper),
        1 => Just(Use::Missing),
    ]
}

fn an_agent() -> impl Strategy<Value = Node> {
    let turn = (proptest::collection::vec(a_use(), 1..4), 0..3_u32);
    proptest::collection::vec(turn, 0..4).prop_map(Node::Agent)
}

fn a_program() -> impl Strategy<Value = Vec<Node>> {
    let leaf = prop_oneof![
        1 => Just(Node::Say),
        1 => Just(Node::Sample),
        1 => prop_oneof![Just(0), Just(20_000)].prop_map(Node::Value),
        1 => Just(Node::Once),
        1 => Just(Node::Ask),
        4 => an_agent(),
    ];
    let node = leaf.prop_recursive(3, 10, 3, |inner| {
        let nodes = || proptest::collection::vec(inner.clone(), 1..3);
        let how = prop_oneof![Just(Together::Append), Just(Together::KeepLeft), Just(Together::KeepRight)];
        prop_oneof![nodes().prop_map(Node::Step), (nodes(), nodes(), how).prop_map(|(l, r, how)| Node::Fork(l, r, how))]
    });
    proptest::collection::vec(node, 1..4)
}

/// A process that dies at a commit.
#[derive(Clone, Copy, Debug)]
struct Kill {
    after: u64,
    before_it: bool,
}

fn kills() -> impl Strategy<Value = Vec<Kill>> {
    let kill = (0..12_u64, any::<bool>()).prop_map(|(after, before_it)| Kill { after, before_it });
    proptest::collection::vec(kill, 1..5)
}

/// The outside world, which outlives every process.
#[derive(Default)]
struct World {
    sent: Mutex<Vec<String>>,
    objects: Mutex<BTreeMap<Digest, String>>,
}

/// Counts.
#[tool(effect = "pure")]
fn count(text: String) -> String {
    text.len().to_string()
}

/// Puts an object.
#[tool(effect = "idempotent")]
async fn put(text: String, call: &Call, world: Resource<World>) -> String {
    world.objects.lock().unwrap().insert(call.key, text.clone());
    format!("put {text}")
}

/// Pays.
#[tool(effect = "idempotent")]
async fn pay(text: String, call: &Call, world: Resource<World>) -> String {
    world.objects.lock().unwrap().insert(call.key, text.clone());
    format!("paid {text}")
}

/// Sends.
#[tool(effect = "irreversible")]
async fn send(text: String, world: Resource<World>) -> String {
    world.sent.lock().unwrap().push(text.clone());
    format!("sent {text}")
}

/// Fails.
#[tool(effect = "pure")]
fn fail(text: String) -> Result<String, String> {
    Err(format!("cannot do {text}"))
}

/// An agent with a scripted model, which fails only with `failures`.
fn agent(name: &str, turns: &[(Vec<Use>, u32)], failures: bool) -> Agent {
    let mut script = Scripted::new("scripted");
    for (at, (uses, fails)) in turns.iter().enumerate() {
        let mut turn = Turn::new();
        for (place, what) in uses.iter().enumerate() {
            let text = format!("{name}.{at}.{place}");
            let arguments = match what {
                Use::AskHuman => json!({ "question": format!("What about {text}?") }),
                Use::Helper => json!({ "task": text }),
                _ => json!({ "text": text }),
            };
            let tool = match what {
                Use::Count => "count",
                Use::Put => "put",
                Use::Pay => "pay",
                Use::Send => "send",
                Use::Fail => "fail",
                Use::AskHuman => "ask_human",
                Use::Helper => "helper",
                Use::Missing => "missing",
            };
            turn = turn.call(tool, arguments);
        }
        if failures {
            turn = turn.fails_first(*fails, Failure::transient("overloaded"));
        }
        script = script.turn(turn);
    }
    let helper = Scripted::from_fn(|seen| match seen.turn {
        0 => Turn::new()
            .call("send", json!({ "text": format!("for {}", seen.latest) }))
            .call("count", json!({ "text": "x" })),
        _ => Turn::from("helped"),
    });
    let helper = Agent::new("helper").model(helper).tools((send, count)).as_tool("Helps.");
    Agent::new(name)
        .model(script.say(format!("{name} is done.")))
        .tools((count, put, pay, send, fail, tools::ask_human, helper))
        .tool_policy("pay", Decision::Ask)
        .retries(100, Duration::ZERO)
}

/// Runs a program. The name of a node follows from its position.
fn follow(
    nodes: Vec<Node>,
    mut session: Session,
    place: String,
    failures: bool,
) -> BoxFuture<'static, Result<Session>> {
    Box::pin(async move {
        for (at, node) in nodes.into_iter().enumerate() {
            let place = format!("{place}{at}");
            let failed = |error: Error, session| Err(error.with_sessions(vec![session]));
            session = match node {
                Node::Say => match session.user(format!("words {place}")) {
                    Ok(_) => session,
                    Err(error) => return failed(error, session),
                },
                Node::Sample => {
                    let said = session.random().and_then(|number| session.user(format!("number {number}")));
                    match said {
                        Ok(_) => session,
                        Err(error) => return failed(error, session),
                    }
                }
                Node::Value(size) => {
                    let work = async |session| Ok((session, (rath_core::random_number(), "v".repeat(size))));
                    let (mut session, (number, more)) = session.step_value("value", work).await?;
                    let known: Option<(u64, String)> = session.value("value").await?;
                    assert_eq!(known, Some((number, more)));
                    match session.user(format!("number {number}")) {
                        Ok(_) => session,
                        Err(error) => return failed(error, session),
                    }
                }
                Node::Once => {
                    let number = session.record_once("a number", async || Ok(rath_core::random_number())).await;
                    match number.and_then(|number: u64| session.user(format!("number {number}"))) {
                        Ok(_) => session,
                        Err(error) => return failed(error, session),
                    }
                }
                Node::Ask => {
                    let said = match session.ask(format!("Which way at {place}?")).await {
                        Ok(Verdict::Text(text)) => session.user(format!("they say {text}")),
                        Ok(verdict) => panic!("{verdict:?}"),
                        Err(error) => return failed(error, session),
                    };
                    match said {
                        Ok(_) => session,
                        Err(error) => return failed(error, session),
                    }
                }
                Node::Agent(turns) => agent(&format!("a{place}"), &turns, failures).forward(session).await?,
                Node::Step(nodes) => {
                    let inside = format!("{place}.");
                    let work = async move |session: Session| follow(nodes, session, inside, failures).await;
                    // Sibling branches have steps with the same name.
                    session.step(format!("step {at}"), work).await?
                }
                Node::Fork(left, right, how) => {
                    let forks = [session.fork(format!("l{place}")), session.fork(format!("r{place}"))];
                    let [one, other] = forks;
                    let left = follow(left, one, format!("{place}l"), failures);
                    let right = follow(right, other, format!("{place}r"), failures);
                    let (left, right) = tokio::join!(left, right);
                    let (left, right) = both(left, right).await?;
                    let how = match how {
                        Together::Append => How::Append,
                        Together::KeepLeft => How::keep(left.id(), "left is better"),
                        Together::KeepRight => How::keep(right.id(), "right is better"),
                    };
                    // In the process that is killed the branches are given in another order.
                    let given = if failures { [right, left] } else { [left, right] };
                    session.merge(given, how).await?
                }
            };
        }
        Ok(session)
    })
}

/// Both branches, or the relevant error. If one branch failed, the step abandons the other one that waits.
async fn both(left: Result<Session>, right: Result<Session>) -> Result<(Session, Session)> {
    let dead = |error: &Error| matches!(error.kind(), ErrorKind::Store(_) | ErrorKind::Diverged(_));
    let over = |error: &Error| !error.leaves_the_run_open();
    match (left, right) {
        (Ok(left), Ok(right)) => Ok((left, right)),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
        (Err(one), Err(other)) => {
            if dead(&one) || dead(&other) {
                return Err(if dead(&one) { one } else { other });
            }
            let (ends, waits) = match (over(&one), over(&other)) {
                (true, _) => (one, other),
                (_, true) => (other, one),
                _ => return Err(other.with_sessions(one.into_sessions())),
            };
            drop(waits);
            Err(ends)
        }
    }
}

/// One process: its program, store and world.
struct Process<'a> {
    store: &'a Arc<dyn Store>,
    program: &'a [Node],
    world: &'a Arc<World>,
    failures: bool,
    on_divergence: OnDivergence,
    /// The session to resume. Without one, the run is started or found by its key.
    line: Option<SessionId>,
}

async fn run(process: &Process<'_>) -> Result<Session> {
    let Process { store, program, world, failures, on_divergence, line } = *process;
    let input = async |session: &mut Session| session.user("Go.").map(|_| ());
    let conditions = RunOptions { on_divergence, ..Actor::program("test").into() };
    let mut session = match line {
        Some(line) => store.resume(line, conditions).await?,
        None => store.begin_run("random", conditions, input).await?,
    };
    session.provide_shared(world.clone());
    let program = program.to_vec();
    session.execute(&move |session| follow(program.clone(), session, String::new(), failures)).await
}

/// Answers all questions truthfully. Returns their number.
async fn answer(store: &Arc<dyn Store>, world: &World) -> usize {
    let mut answered = 0;
    for row in store.sessions(Query::default()).await.unwrap() {
        for ask in View::of(store, row.id, None).await.unwrap().pending().asks {
            let asked: Asked = View::of(store, row.id, Some(ask.seq)).await.unwrap().record().body().unwrap();
            let shown = asked.shown.to_string();
            let verdict = match ask.about {
                QuestionKind::Question => Verdict::Text(format!("re: {shown}").into()),
                QuestionKind::Approval if shown.len().is_multiple_of(3) => Verdict::No,
                QuestionKind::Approval | QuestionKind::Unknown(_) => Verdict::Yes,
                QuestionKind::OutcomeUnknown => {
                    let arguments: serde_json::Value = serde_json::from_str(shown.lines().nth(1).unwrap()).unwrap();
                    let text = arguments["text"].as_str().unwrap();
                    match world.sent.lock().unwrap().iter().any(|sent| sent == text) {
                        true => Verdict::Text(format!("sent {text}").into()),
                        false => Verdict::No,
                    }
                }
            };
            let what = PostContent::Answer { asked: ask.record, shown_digest: ask.shown_digest, verdict, why: None };
            store.post(Post::new(row.id, Actor::person("ada"), what)).await.unwrap();
            answered += 1;
        }
    }
    answered
}

/// The end of a run.
enum End {
    Done(Session),
    Stopped(Error),
    Killed,
}

/// Resumes the run and answers questions until it is done or its process is dead.
async fn go_on(
    store: &Arc<dyn Store>,
    through: &Arc<dyn Store>,
    program: &[Node],
    world: &Arc<World>,
    failures: bool,
) -> End {
    let process = Process { store: through, program, world, failures, on_divergence: OnDivergence::Stop, line: None };
    live_on(store, &process).await
}

async fn live_on(store: &Arc<dyn Store>, process: &Process<'_>) -> End {
    let world = process.world;
    for _ in 0..200 {
        match run(process).await {
            Ok(session) => return End::Done(session),
            Err(error) => match error.kind() {
                ErrorKind::Waiting(_) => {
                    drop(error);
                    assert!(answer(store, world).await > 0, "a run that waits has asked something");
                }
                ErrorKind::Store(_) if error.to_string().contains("the process is dead") => return End::Killed,
                ErrorKind::Cancelled { .. } | ErrorKind::Ended { .. } => return End::Stopped(error),
                _ => panic!("{error}"),
            },
        }
    }
    panic!("the run does not come to an end");
}

/// The result of a run, without values that differ in every run.
#[derive(Debug, PartialEq)]
struct Came {
    transcript: Vec<String>,
    steps: Vec<String>,
    usage: Usage,
    sent: Vec<String>,
    objects: Vec<String>,
}

async fn came(session: &Session, world: &World) -> Came {
    let words = |said: &MessageBody| match said {
        MessageBody::Marker { why, .. } => format!("branch {}", why.clone().unwrap_or_default()),
        MessageBody::User(user) if user.text.to_string().starts_with("number") => "user number".into(),
        said => format!("{} {said}", said.role()),
    };
    let context = session.context().await.unwrap();
    let history = session.history().await.unwrap().all().await.unwrap();
    let mut steps: Vec<_> =
        history.iter().filter(|record| *record.kind() == Kind::StepEntered).map(rath::summary::of).collect();
    steps.sort();
    let mut sent = world.sent.lock().unwrap().clone();
    sent.sort();
    let mut objects: Vec<_> = world.objects.lock().unwrap().values().cloned().collect();
    objects.sort();
    let transcript = context.iter().map(|message| words(&message.body)).collect();
    Came { transcript, steps, usage: session.usage(), sent, objects }
}

/// Effects without a `tool_finished` record.
async fn unrecorded(store: &Arc<dyn Store>, world: &World) -> usize {
    let mut ended = 0;
    for row in store.sessions(Query::default()).await.unwrap() {
        let scan = Scan::session(row.id, 0, u64::MAX - 1).kinds(&[Kind::ToolFinished]);
        let records = store.scan(scan).await.unwrap().records;
        let ends = records.iter().filter_map(|record| record.body::<ToolFinished>().ok());
        ended += ends.filter(|end| format!("{:?}", end.output).contains("\"sent ")).count();
    }
    world.sent.lock().unwrap().len().saturating_sub(ended)
}

/// Calls of `send` that were started and then abandoned, without a recovery question.
async fn given_up(store: &Arc<dyn Store>) -> usize {
    let mut given_up = 0;
    for row in store.sessions(Query::default()).await.unwrap() {
        let mut open = BTreeSet::new();
        for record in store.scan(Scan::session(row.id, 0, u64::MAX - 1)).await.unwrap().records {
            if let Ok(started) = record.body::<ToolStarted>() {
                open.extend((started.tool == "send").then_some(started.call));
            } else if let Ok(finished) = record.body::<ToolFinished>() {
                let began = open.remove(&finished.call);
                given_up += usize::from(began && finished.outcome == CallOutcome::Lost);
            } else if let Ok(cancelled) = record.body::<Cancelled>() {
                given_up += cancelled.calls.iter().filter(|call| open.remove(*call)).count();
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }
    given_up
}

/// A store on disk or in memory, with a check that it is valid.
struct TestStore {
    dir: Option<tempfile::TempDir>,
    store: Arc<dyn Store>,
}

impl TestStore {
    fn new(on_disk: bool) -> Self {
        match on_disk {
            true => {
                let dir = tempfile::tempdir().unwrap();
                let store = Embedded::create(dir.path().join("store")).unwrap();
                Self { dir: Some(dir), store }
            }
            false => Self { dir: None, store: InMemory::new() },
        }
    }

    fn check(self) {
        drop(self.store);
        if let Some(dir) = self.dir {
            let store = Embedded::open_as(dir.path().join("store"), "test").unwrap();
            let report = store.verify(None, &mut |_, _| {}).unwrap();
            assert!(report.is_valid(), "{:?}", report.findings);
        }
    }
}

fn on_one_thread<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(work)
}

/// The configured number of cases, with a fixed seed.
fn runner() -> TestRunner {
    let cases = rath_testkit::scaled(48);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

#[test]
fn a_killed_run_has_the_result_of_an_undisturbed_one() {
    let [killed, in_between, cases_in_between, cases] = [const { AtomicU64::new(0) }; 4];
    let strategy = (a_program(), kills(), prop::bool::weighted(0.15));
    let done = runner().run(&strategy, |(program, kills, on_disk)| {
        on_one_thread(async {
            let world = Arc::new(World::default());
            let store = InMemory::new();
            let End::Done(session) = go_on(&store, &store, &program, &world, false).await else { panic!("not done") };
            let wanted = came(&session, &world).await;
            drop(session);

            let (world, place) = (Arc::new(World::default()), TestStore::new(on_disk));
            let mut between = 0;
            for Kill { after, before_it } in kills {
                let moment = if before_it { CrashPoint::Before } else { CrashPoint::After };
                let mortal: Arc<dyn Store> = CrashingStore::new(place.store.clone(), after, moment);
                match go_on(&place.store, &mortal, &program, &world, true).await {
                    End::Killed => {
                        killed.fetch_add(1, Ordering::Relaxed);
                        between += u64::from(unrecorded(&place.store, &world).await > 0);
                    }
                    End::Done(_) => break,
                    End::Stopped(error) => panic!("{error}"),
                }
            }
            in_between.fetch_add(between, Ordering::Relaxed);
            cases_in_between.fetch_add(u64::from(between > 0), Ordering::Relaxed);
            cases.fetch_add(1, Ordering::Relaxed);
            let end = go_on(&place.store, &place.store, &program, &world, true).await;
            let End::Done(session) = end else { panic!("not done") };
            assert_eq!(came(&session, &world).await, wanted);
            assert!(session.pending().is_empty() && session.unpublished_count() == 0);
            drop(session);
            place.check();
        });
        Ok(())
    });
    done.unwrap_or_else(|failure| panic!("{failure}"));
    let [killed, in_between, cases_in_between, cases] =
        [killed, in_between, cases_in_between, cases].map(AtomicU64::into_inner);
    eprintln!("{cases} cases, {killed} kills, {in_between} between effect and record, in {cases_in_between} cases");
    assert!(killed >= cases, "most cases are killed: {killed} of {cases}");
    // The few cases of a quick run may not hit it.
    assert!(
        cases < 32 || cases_in_between * 5 >= cases,
        "too few kills fell between effect and record: {cases_in_between} of {cases}"
    );
}

/// The program with an additional node. Not in a step, because a finished step is not compared again.
fn changed(program: &[Node], at: usize) -> Vec<Node> {
    let mut program = program.to_vec();
    let at = at % (program.len() + 1);
    match program.get_mut(at) {
        Some(Node::Fork(left, _, _)) => left.push(Node::Say),
        _ => program.insert(at, Node::Say),
    }
    program
}

#[test]
fn a_run_with_changed_code_has_the_result_of_a_new_run() {
    let [cases, forked] = [const { AtomicU64::new(0) }; 2];
    let strategy = (a_program(), 0..4_usize, kills(), kills(), prop::bool::weighted(0.15));
    let done = runner().run(&strategy, |(old, at, first, second, on_disk)| {
        on_one_thread(async {
            let new = changed(&old, at);
            let world = Arc::new(World::default());
            let store = InMemory::new();
            let End::Done(session) = go_on(&store, &store, &new, &world, false).await else { panic!("not done") };
            let wanted = came(&session, &world).await;
            drop(session);

            let (world, place) = (Arc::new(World::default()), TestStore::new(on_disk));
            let mortal: Arc<dyn Store> = CrashingStore::new(place.store.clone(), first[0].after + 2, CrashPoint::After);
            if !matches!(go_on(&place.store, &mortal, &old, &world, true).await, End::Killed) {
                return;
            }
            let rows = place.store.sessions(SessionFilter::Run("random".into()).into()).await.unwrap();
            let Some(row) = rows.first() else { return };
            let begun = View::of(&place.store, row.id, None).await.unwrap();
            // A finished run is not affected by changed code.
            if begun.pending().steps.is_empty() && *begun.record().kind() == Kind::StepLeft {
                return;
            }
            let on_divergence = OnDivergence::Fork;
            let process = Process {
                store: &place.store,
                program: &new,
                world: &world,
                failures: true,
                on_divergence,
                line: None,
            };
            for Kill { after, before_it } in second {
                let moment = if before_it { CrashPoint::Before } else { CrashPoint::After };
                let mortal: Arc<dyn Store> = CrashingStore::new(place.store.clone(), after, moment);
                match live_on(&place.store, &Process { store: &mortal, ..process }).await {
                    End::Killed => {}
                    End::Done(_) => break,
                    End::Stopped(error) => panic!("{error}"),
                }
            }
            let End::Done(session) = live_on(&place.store, &process).await else { panic!("not done") };
            let ended = came(&session, &world).await;
            let same = |came: &Came| (came.transcript.clone(), came.steps.clone(), came.usage);
            assert_eq!(same(&ended), same(&wanted));
            assert!(session.pending().is_empty() && session.unpublished_count() == 0);
            cases.fetch_add(1, Ordering::Relaxed);
            let (id, head) = (session.id(), session.head());
            forked.fetch_add(u64::from(session.origin().is_some()), Ordering::Relaxed);
            drop(session);
            // Opened by its id, without forking on divergence, it is unchanged.
            let by_name = Process { line: Some(id), on_divergence: OnDivergence::Stop, ..process };
            let End::Done(session) = live_on(&place.store, &by_name).await else { panic!("not done") };
            assert_eq!((session.id(), session.head()), (id, head));
            drop(session);
            place.check();
        });
        Ok(())
    });
    done.unwrap_or_else(|failure| panic!("{failure}"));
    let [cases, forked] = [cases, forked].map(AtomicU64::into_inner);
    eprintln!("{forked} of {cases} runs went on on a fork");
    assert!(cases < 32 || forked * 10 >= cases, "{forked} of {cases}");
}

#[test]
fn a_cancelled_run_leaves_nothing_open() {
    let stopped = AtomicU64::new(0);
    let cases = AtomicU64::new(0);
    let strategy = (a_program(), 1..30_u64, proptest::option::of(kills()), prop::bool::weighted(0.15));
    let done = runner().run(&strategy, |(program, stop_at, kills, on_disk)| {
        on_one_thread(async {
            let (world, place) = (Arc::new(World::default()), TestStore::new(on_disk));
            let commits = AtomicU64::new(0);
            // The session whose records are in that commit is cancelled.
            let store = Hooked::new(place.store.clone(), move |batch| {
                let at = commits.fetch_add(1, Ordering::AcqRel) + 1;
                let session = batch.parts.last().filter(|_| at == stop_at)?.session;
                Some(Post::new(session, Actor::person("grace"), PostContent::Cancel { why: "enough".into() }))
            });
            let killed = kills.is_some();
            for Kill { after, before_it } in kills.into_iter().flatten() {
                let moment = if before_it { CrashPoint::Before } else { CrashPoint::After };
                let mortal: Arc<dyn Store> = CrashingStore::new(store.clone(), after, moment);
                match go_on(&store, &mortal, &program, &world, true).await {
                    End::Killed => {}
                    End::Done(_) | End::Stopped(_) => break,
                }
            }
            let end = go_on(&store, &store, &program, &world, true).await;
            cases.fetch_add(1, Ordering::Relaxed);
            let id = match &end {
                End::Done(session) => session.id(),
                End::Stopped(error) => {
                    stopped.fetch_add(1, Ordering::Relaxed);
                    assert!(error.is_recorded(), "{error}");
                    error.sessions()[0].id()
                }
                End::Killed => panic!("nobody killed it"),
            };
            let stopped = matches!(end, End::Stopped(_));
            drop(end);
            for row in store.sessions(Query::default()).await.unwrap() {
                let pending = View::of(&store, row.id, None).await.unwrap().pending();
                assert!(pending.is_empty(), "{}: {pending:?}", row.id);
            }
            let scan = Scan::session(id, 0, u64::MAX - 1).kinds(&[Kind::StepLeft]);
            let left = store.scan(scan).await.unwrap().records;
            let outcome = left.last().unwrap().body::<StepLeft>().unwrap().outcome;
            assert_eq!(outcome != Outcome::Done, stopped);
            let mut sent = world.sent.lock().unwrap().clone();
            let all = sent.len();
            sent.sort();
            sent.dedup();
            assert_eq!(sent.len(), all, "something was sent twice");
            // A call with unknown outcome at the cancellation has a start on record and no end.
            let (unrecorded, given_up) = (unrecorded(&store, &world).await, given_up(&store).await);
            assert!(unrecorded <= given_up, "{unrecorded} were sent and no record says so; {given_up} were given up");
            assert!(killed || given_up == 0, "without a crash every call that began has an end");
            drop(store);
            place.check();
        });
        Ok(())
    });
    done.unwrap_or_else(|failure| panic!("{failure}"));
    let (stopped, cases) = (stopped.into_inner(), cases.into_inner());
    eprintln!("{stopped} of {cases} runs were stopped");
    assert!(stopped * 4 >= cases, "{stopped} of {cases}");
}
