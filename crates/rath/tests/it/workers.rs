//! Runs that continue later: which are ready, and workers that resume them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rath::control::{Answer, Control, Delivery};
use rath::inspect::{Readiness, ReadyReason, UnfinishedRun};
use rath::prelude::*;
use rath::session::RunOptions;
use rath::worker::{RunEnd, RunReport, Worker};
use rath::workflow::{BoxWorkflow, SkippingClock, chain, parallel, sleep, wait_for};
use rath::{Cancel, Durability, ErrorKind, Time};
use rath_testkit::{CrashPoint, CrashingStore};

fn ada(store: &Arc<dyn Store>) -> Control {
    Control::new(store, Actor::person("ada"))
}

/// Starts a run of `workflow`, recorded as `name`. Returns its session and the error that ended it.
async fn start(
    store: &Arc<dyn Store>,
    key: &str,
    name: &str,
    workflow: &impl Workflow,
) -> (SessionId, Option<rath::Error>) {
    let options = RunOptions::from(Actor::program("test")).workflow(name, "1");
    let input = async |session: &mut Session| {
        session.set_durability(Durability::Record);
        session.user("Go.").map(drop)
    };
    match store.run(key, options, workflow, input).await {
        Ok(session) => (session.id(), None),
        Err(mut error) => {
            let sessions = error.take_sessions();
            (sessions[0].id(), Some(error))
        }
    }
}

fn says(answer: &str) -> Agent {
    Agent::new("speaker").model(Scripted::new("scripted").say(answer)).retries(0, Duration::ZERO)
}

fn asks(question: &'static str) -> impl Workflow + Clone {
    move |mut session: Session| async move {
        match session.ask(question).await {
            Ok(answer) => {
                session.assistant(format!("{answer:?}"))?;
                Ok(session)
            }
            Err(error) => Err(error.with_sessions(vec![session])),
        }
    }
}

async fn unfinished(store: &Arc<dyn Store>) -> Vec<UnfinishedRun> {
    UnfinishedRun::list(store, Time::now()).await.unwrap()
}

fn reasons(run: &UnfinishedRun) -> Vec<String> {
    match &run.readiness {
        Readiness::Ready { because } => because.iter().map(ToString::to_string).collect(),
        Readiness::Waiting { questions, waits } => vec![format!("waits for {} + {}", questions.len(), waits.len())],
        Readiness::Locked { .. } => vec!["locked".into()],
    }
}

/// What a worker did with each run, by key.
fn ends(reports: &[RunReport]) -> Vec<String> {
    let mut ends: Vec<String> = reports
        .iter()
        .map(|RunReport { run, end }| {
            let end = match end {
                RunEnd::Done(_) => "done".to_owned(),
                RunEnd::Waiting(_) => "waiting".to_owned(),
                RunEnd::Failed(error) => format!("failed: {error}"),
                RunEnd::NotReady => "not ready".to_owned(),
                RunEnd::Locked(_) => "locked".to_owned(),
                RunEnd::UnknownWorkflow => "unknown".to_owned(),
                _ => "other".to_owned(),
            };
            format!("{}: {end}", run.key.as_deref().unwrap_or("no key"))
        })
        .collect();
    ends.sort();
    ends
}

#[tokio::test]
async fn an_event_is_checked_and_stays_in_the_inbox_until_a_wait_consumes_it() {
    let store: Arc<dyn Store> = InMemory::new();
    let (id, error) = start(&store, "a", "wait", &wait_for("approved")).await;
    assert!(matches!(error.unwrap().kind(), ErrorKind::Waiting(_)));
    let why = ada(&store).send_event(id, "approved", "{broken").await.unwrap_err();
    assert!(why.to_string().starts_with("the value of the event is not JSON"), "{why}");
    assert!(ada(&store).send_event(id, "", "1").await.is_err());
    assert!(store.posts(id).await.unwrap().is_empty(), "nothing invalid is posted");

    assert_eq!(reasons(&unfinished(&store).await[0]), ["waits for 0 + 1"]);
    ada(&store).send_event(id, "other", "1").await.unwrap();
    assert_eq!(reasons(&unfinished(&store).await[0]), ["waits for 0 + 1"]);
    let delivery = ada(&store).send_event(id, "approved", r#"{"by": "ada"}"#).await.unwrap();
    assert!(matches!(delivery, Delivery::Queued { holder: None, .. }));
    let run = unfinished(&store).await.remove(0);
    assert_eq!(reasons(&run), ["event approved has arrived"]);
    assert_eq!((run.workflow.as_deref(), run.version.as_deref()), (Some("wait"), Some("1")));

    let reports = Worker::new(&store).register("wait", wait_for("approved")).run_ready().await.unwrap();
    assert_eq!(ends(&reports), ["a: done"]);
    let session = View::of(&store, id, None).await.unwrap();
    let value: Option<serde_json::Value> = session.value("wait for approved").await.unwrap();
    assert_eq!(value.unwrap()["by"], "ada");
    assert!(unfinished(&store).await.is_empty());
    assert_eq!(store.posts(id).await.unwrap().len(), 1, "the other event stays");
}

#[tokio::test]
async fn a_run_is_ready_when_its_question_is_answered() {
    let store: Arc<dyn Store> = InMemory::new();
    let (id, _) = start(&store, "a", "ask", &asks("Which colour?")).await;
    assert_eq!(reasons(&unfinished(&store).await[0]), ["waits for 1 + 0"]);
    let worker = Worker::new(&store).register("ask", asks("Which colour?"));
    assert_eq!(ends(&worker.run_ready().await.unwrap()), ["a: not ready"]);
    let question = ada(&store).questions_of(id).await.unwrap().remove(0);
    ada(&store).answer(&question, Answer::Text("red".into())).await.unwrap();
    assert_eq!(reasons(&unfinished(&store).await[0]), ["its question is answered"]);
    assert_eq!(ends(&worker.run_ready().await.unwrap()), ["a: done"]);
}

#[tokio::test]
async fn a_run_is_ready_when_the_time_has_come_on_any_branch() {
    let store: Arc<dyn Store> = InMemory::new();
    let workflow = || {
        parallel("two")
            .branch("slow", chain("slow").then(sleep("an hour", Duration::from_secs(3600))).then(says("late")))
            .branch("fast", says("at once"))
    };
    let (_, error) = start(&store, "a", "two", &workflow()).await;
    assert!(matches!(error.unwrap().kind(), ErrorKind::Waiting(_)));
    let run = unfinished(&store).await.remove(0);
    assert_eq!(reasons(&run), ["waits for 0 + 1"]);
    let due = run.due().unwrap();
    let later = UnfinishedRun::list(&store, due).await.unwrap();
    assert!(matches!(&later[0].readiness, Readiness::Ready { because }
        if matches!(&because[..], [ReadyReason::TimeReached { until, .. }] if *until == due)));

    let clock = SkippingClock::default();
    let worker = Worker::new(&store).register("two", workflow()).provide(clock.clone());
    assert_eq!(ends(&worker.run_ready().await.unwrap()), ["a: not ready"]);
    clock.skip_to(due);
    assert_eq!(ends(&worker.run_ready().await.unwrap()), ["a: done"]);
}

#[tokio::test]
async fn an_event_for_the_run_reaches_a_branch() {
    let store: Arc<dyn Store> = InMemory::new();
    let workflow = || parallel("two").branch("a", wait_for("go")).branch("b", wait_for("go"));
    let (id, _) = start(&store, "a", "two", &workflow()).await;
    assert_eq!(reasons(&unfinished(&store).await[0]), ["waits for 0 + 2"]);
    ada(&store).send_event(id, "go", "1").await.unwrap();
    assert!(unfinished(&store).await[0].is_ready());
    let worker = Worker::new(&store).register("two", workflow());
    assert_eq!(ends(&worker.run_ready().await.unwrap()), ["a: waiting"], "one event ends one wait");
    assert_eq!(reasons(&unfinished(&store).await[0]), ["waits for 0 + 1"]);
    ada(&store).send_event(id, "go", "2").await.unwrap();
    assert_eq!(ends(&worker.run_ready().await.unwrap()), ["a: done"]);
}

#[tokio::test]
async fn one_failure_stops_no_other_run_and_unknown_and_locked_runs_are_left_alone() {
    let store: Arc<dyn Store> = InMemory::new();
    let waits = || chain("all").then(wait_for("go"));
    let mut ids = Vec::new();
    for (key, name) in
        [("good", "good"), ("bad", "bad"), ("panics", "panics"), ("unknown", "unknown"), ("locked", "good")]
    {
        ids.push(start(&store, key, name, &waits()).await.0);
    }
    for id in &ids {
        ada(&store).send_event(*id, "go", "1").await.unwrap();
    }
    let lock = store.open(ids[4], Actor::person("ada")).await.unwrap();
    let fails = |why: &'static str| {
        move |session: Session| async move { Err::<Session, _>(Error::coded("broken", why, session)) }
    };
    let panics = |session: Session| async move {
        if session.id() == session.id() {
            panic!("out of cheese");
        }
        Ok(session)
    };
    let worker = Worker::new(&store)
        .register("good", waits())
        .register("bad", waits().then(fails("no luck")))
        .register("panics", waits().then(panics))
        .at_most(2);
    let ended = ends(&worker.run_ready().await.unwrap());
    assert_eq!(
        ended,
        [
            "bad: failed: no luck",
            "good: done",
            "locked: locked",
            "panics: failed: the workflow panicked: out of cheese",
            "unknown: unknown"
        ]
    );
    drop(lock);
    let ended = ends(&worker.run_ready().await.unwrap());
    assert!(ended.contains(&"locked: done".to_owned()), "{ended:?}");
    assert!(!ended.iter().any(|end| end.starts_with("bad")), "a failed run is over: {ended:?}");
}

#[tokio::test]
async fn a_version_of_its_own_is_resumed_with_its_own_workflow() {
    let store: Arc<dyn Store> = InMemory::new();
    let (id, _) = start(&store, "a", "greet", &chain("all").then(wait_for("go"))).await;
    ada(&store).send_event(id, "go", "1").await.unwrap();
    let worker = Worker::new(&store)
        .register("greet", chain("all").then(wait_for("go")).then(says("new")))
        .register_version("greet", "1", chain("all").then(wait_for("go")).then(says("old")));
    assert_eq!(ends(&worker.run_ready().await.unwrap()), ["a: done"]);
    let view = View::of(&store, id, None).await.unwrap();
    assert_eq!(view.text().await.unwrap().as_deref(), Some("old"));
}

#[tokio::test]
async fn a_worker_goes_on_until_it_is_stopped() {
    let store: Arc<dyn Store> = InMemory::new();
    let workflow =
        || chain("steps").then(sleep("a moment", Duration::from_millis(200))).then(wait_for("go")).then(says("done"));
    let (id, _) = start(&store, "a", "steps", &workflow()).await;
    let cancel = Cancel::new();
    let reports = Arc::new(Mutex::new(Vec::new()));
    let (kept, stop) = (reports.clone(), cancel.clone());
    let worker = Worker::new(&store).register("steps", workflow()).stop_with(cancel).on_report(move |report| {
        kept.lock().unwrap().extend(ends(std::slice::from_ref(report)));
        if matches!(report.end, RunEnd::Done(_)) {
            stop.cancel("the test is over");
        }
    });
    let running = tokio::spawn(async move { worker.run().await });
    let until_it_waits = async {
        loop {
            let runs = unfinished(&store).await;
            if let Readiness::Waiting { waits, .. } = &runs[0].readiness
                && waits.iter().any(|one| one.wait.name.is_some())
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), until_it_waits).await.unwrap();
    ada(&store).send_event(id, "go", "null").await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), running).await.unwrap().unwrap().unwrap();
    assert_eq!(*reports.lock().unwrap(), ["a: waiting", "a: done"]);
}

#[tokio::test]
async fn a_worker_skips_time_with_a_clock_for_tests() {
    let store: Arc<dyn Store> = InMemory::new();
    let workflow = || chain("steps").then(sleep("a year", Duration::from_secs(31_536_000))).then(says("done"));
    start(&store, "a", "steps", &workflow()).await;
    let cancel = Cancel::new();
    let stop = cancel.clone();
    let worker = Worker::new(&store)
        .register("steps", workflow())
        .provide(SkippingClock::default())
        .stop_with(cancel)
        .on_report(move |report| {
            if let RunEnd::Done(_) = report.end {
                stop.cancel("the test is over");
            }
        });
    tokio::time::timeout(Duration::from_secs(20), worker.run()).await.unwrap().unwrap();
    assert!(unfinished(&store).await.is_empty());
}

#[tokio::test]
async fn a_run_that_cannot_continue_does_not_keep_a_worker_busy() {
    let store: Arc<dyn Store> = InMemory::new();
    let (id, _) = start(&store, "a", "changed", &wait_for("go")).await;
    ada(&store).send_event(id, "go", "1").await.unwrap();
    let tries = Arc::new(AtomicU32::new(0));
    let (counted, cancel) = (tries.clone(), Cancel::new());
    let worker =
        Worker::new(&store).register("changed", says("other code")).stop_with(cancel.clone()).on_report(move |_| {
            counted.fetch_add(1, Ordering::AcqRel);
        });
    let stop = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        cancel.cancel("the test is over");
    };
    let (ended, ()) = tokio::join!(worker.run(), stop);
    ended.unwrap();
    assert_eq!(tries.load(Ordering::Acquire), 1);
}

/// Runs a workflow with every kind of wait until it is done: with workers, each in a process of its own. One of them
/// dies at a commit.
async fn with_crashes(commits: u64, moment: CrashPoint, workflow: impl Fn() -> BoxWorkflow) -> (Vec<String>, bool) {
    let store: Arc<dyn Store> = InMemory::new();
    let clock = SkippingClock::default();
    let crashing = CrashingStore::new(store.clone(), commits, moment);
    for round in 0..40 {
        // After the crash, the next process works.
        let through: Arc<dyn Store> = if crashing.is_dead() { store.clone() } else { crashing.clone() };
        if round == 0 {
            let options = RunOptions::from(Actor::program("test")).workflow("all", "1");
            let input = async |session: &mut Session| {
                session.provide(clock.clone());
                session.set_durability(Durability::Record);
                session.user("Go.").map(drop)
            };
            let _ = through.run("run", options, &workflow(), input).await;
        } else {
            let worker = Worker::new(&through).register("all", workflow()).provide(clock.clone());
            let _ = worker.run_ready().await;
        }
        let runs = UnfinishedRun::list(&store, clock.now()).await.unwrap();
        let Some(run) = runs.first() else { break };
        let Readiness::Waiting { questions, waits } = &run.readiness else { continue };
        for question in questions {
            let question = ada(&store).question_at(question.at).await.unwrap();
            ada(&store).answer(&question, Answer::Text("yes".into())).await.unwrap();
        }
        for wait in waits {
            match (&wait.wait.name, wait.wait.until) {
                (Some(name), _) => drop(ada(&store).send_event(wait.at.session, name, "7").await.unwrap()),
                (None, Some(until)) => clock.skip_to(until),
                _ => {}
            }
        }
    }
    let rows = store.sessions(rath::store::Query::default()).await.unwrap();
    let Some(row) = rows.iter().find(|row| row.origin.is_none()) else { return (Vec::new(), crashing.is_dead()) };
    let view = View::of(&store, row.id, None).await.unwrap();
    let messages = view.context().await.unwrap();
    let texts = messages.iter().map(|message| format!("{} {}", message.body.role(), message.body));
    // A branch's marker contains its id.
    (texts.filter(|text| !text.contains("branch")).collect(), crashing.is_dead())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_ends_a_run_that_crashed_at_any_record_as_if_it_had_not() {
    let workflow = || {
        let branches = parallel("two").branch("asks", asks("Good?")).branch("waits", wait_for("go"));
        let all = chain("all").then(sleep("a day", Duration::from_secs(86_400))).then(branches).then(says("ok"));
        BoxWorkflow::new(all)
    };
    let (wanted, _) = with_crashes(u64::MAX, CrashPoint::After, workflow).await;
    assert_eq!(wanted.last().map(String::as_str), Some("assistant ok"), "{wanted:?}");
    for moment in [CrashPoint::Before, CrashPoint::After] {
        for commits in 0.. {
            let (texts, died) = with_crashes(commits, moment, workflow).await;
            if !died {
                break;
            }
            // The run exists once its input is stored. A run without a step has no workflow that a worker could know.
            if texts.len() > 1 {
                assert_eq!(texts, wanted, "crash {moment:?} commit {commits}");
            } else {
                assert!(commits <= 3, "crash {moment:?} commit {commits}: {texts:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_patch_is_on_in_new_runs_and_off_in_runs_that_passed_it() {
    async fn patched(mut session: Session, waits: bool) -> rath::Result<Session> {
        match session.patched("politer") {
            Ok(true) => session.assistant("Good morning.")?,
            Ok(false) => session.assistant("Hi.")?,
            Err(error) => return Err(error.with_sessions(vec![session])),
        };
        if waits { wait_for("go").forward(session).await } else { Ok(session) }
    }
    async fn old(mut session: Session) -> rath::Result<Session> {
        session.assistant("Hi.")?;
        wait_for("go").forward(session).await
    }
    let store: Arc<dyn Store> = InMemory::new();
    let (before, _) = start(&store, "old", "greet", &old).await;
    let new = |session: Session| patched(session, true);
    let (after, _) = start(&store, "new", "greet", &new).await;
    for id in [before, after] {
        ada(&store).send_event(id, "go", "1").await.unwrap();
    }
    let worker = Worker::new(&store).register("greet", new);
    assert_eq!(ends(&worker.run_ready().await.unwrap()), ["new: done", "old: done"]);
    for (id, said) in [(before, "Hi."), (after, "Good morning.")] {
        let view = View::of(&store, id, None).await.unwrap();
        assert_eq!(view.text().await.unwrap().as_deref(), Some(said));
    }
}

/// Counts its calls, and fails while `fails` is true.
#[derive(Clone, Default)]
struct Flaky {
    calls: Arc<AtomicU32>,
    is_fixed: Arc<AtomicBool>,
}

impl Flaky {
    fn fixed() -> Self {
        Self { is_fixed: Arc::new(AtomicBool::new(true)), ..Self::default() }
    }

    fn calls(&self) -> u32 {
        self.calls.load(Ordering::Acquire)
    }

    fn fix(&self) {
        self.is_fixed.store(true, Ordering::Release);
    }

    /// A step that says `text` or fails.
    fn step(&self, name: &'static str, text: &'static str) -> impl Workflow + Clone + use<> {
        let flaky = self.clone();
        move |session: Session| {
            let flaky = flaky.clone();
            session.step(name, move |mut session| async move {
                flaky.calls.fetch_add(1, Ordering::AcqRel);
                if !flaky.is_fixed.load(Ordering::Acquire) {
                    return Err(Error::coded("flaky", "not yet", session));
                }
                match session.assistant(text) {
                    Ok(_) => Ok(session),
                    Err(error) => Err(error.with_sessions(vec![session])),
                }
            })
        }
    }
}

async fn again(store: &Arc<dyn Store>, id: SessionId, workflow: &impl Workflow) -> rath::Result<Session> {
    let session = store.run_again(id, Actor::program("test")).await?;
    session.execute(workflow).await
}

async fn text_of(session: &Session) -> String {
    session.text().await.unwrap().unwrap_or_default()
}

#[tokio::test]
async fn a_failed_step_runs_again_and_finished_ones_stay_finished() {
    let store: Arc<dyn Store> = InMemory::new();
    let (first, second) = (Flaky::fixed(), Flaky::default());
    let workflow = chain("all").then(first.step("first", "one")).then(second.step("second", "two"));
    let (id, error) = start(&store, "a", "all", &workflow).await;
    assert_eq!(error.unwrap().code(), "flaky");
    assert!(unfinished(&store).await.is_empty());

    let error = again(&store, id, &workflow).await.unwrap_err();
    assert_eq!(error.code(), "flaky", "it fails again");
    let newest = error.sessions()[0].id();
    drop(error);
    assert_ne!(newest, id, "the run continues on a fork");
    second.fix();
    let session = again(&store, newest, &workflow).await.unwrap();
    assert_eq!((first.calls(), second.calls()), (1, 3));
    let texts: Vec<String> = session.context().await.unwrap().iter().map(|message| message.body.to_string()).collect();
    assert_eq!(texts, ["Go.", "one", "two"]);
    let ended = session.id();
    drop(session);
    let error = again(&store, ended, &workflow).await.unwrap_err();
    assert_eq!(error.code(), "nothing-failed");
    let old = store.resume(id, Actor::program("test")).await.unwrap().execute(&workflow).await.unwrap_err();
    assert_eq!(old.code(), "flaky", "the old session still has the failure");
}

#[tokio::test]
async fn branches_that_finished_are_kept_when_the_others_run_again() {
    let store: Arc<dyn Store> = InMemory::new();
    let (good, inner, bad) = (Flaky::fixed(), Flaky::fixed(), Flaky::default());
    let workflow = parallel("both")
        .branch("good", good.step("good", "good"))
        .branch("bad", chain("steps").then(inner.step("inner", "so far")).then(bad.step("bad", "fixed")))
        .at_most(1);
    let (id, error) = start(&store, "a", "both", &workflow).await;
    assert_eq!(error.unwrap().code(), "flaky");
    bad.fix();
    let session = again(&store, id, &workflow).await.unwrap();
    assert_eq!((good.calls(), inner.calls(), bad.calls()), (1, 1, 2));
    let texts: Vec<String> = session.context().await.unwrap().iter().map(|message| message.body.to_string()).collect();
    assert!(["good", "so far", "fixed"].iter().all(|text| texts.iter().any(|said| said == text)), "{texts:?}");
}

#[tokio::test]
async fn a_step_over_its_budget_runs_again_with_a_larger_one() {
    let store: Arc<dyn Store> = InMemory::new();
    let agent = |turns| {
        let script = Scripted::new("scripted").call("look", serde_json::json!({})).say("Seen.");
        let budget = rath::agent::Budget { turns: Some(turns), ..Default::default() };
        Agent::new("looks").model(script).tools(look).budget(budget)
    };
    let (id, error) = start(&store, "a", "look", &agent(1)).await;
    assert!(error.unwrap().is_recorded());
    let session = again(&store, id, &agent(5)).await.unwrap();
    assert_eq!(text_of(&session).await, "Seen.");
}

/// Looks around.
#[tool(effect = "pure")]
fn look() -> &'static str {
    "A door."
}

#[tokio::test]
async fn a_cancelled_run_continues_where_it_was_cancelled() {
    let store: Arc<dyn Store> = InMemory::new();
    let first = Flaky::fixed();
    let workflow = chain("all").then(first.step("first", "one")).then(wait_for("go")).then(says("done"));
    let (id, _) = start(&store, "a", "all", &workflow).await;
    ada(&store).cancel(id, "not now").await.unwrap();
    let error = store.resume(id, Actor::program("test")).await.unwrap().execute(&workflow).await.unwrap_err();
    assert!(error.is_cancelled(), "{error}");
    drop(error);
    let error = again(&store, id, &workflow).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Waiting(_)), "{error}");
    drop(error);
    let run = unfinished(&store).await.remove(0);
    assert_eq!(reasons(&run), ["waits for 0 + 1"]);
    assert_eq!(run.key.as_deref(), Some("a"));
    ada(&store).send_event(id, "go", "1").await.unwrap();
    let worker = Worker::new(&store).register("all", workflow);
    assert_eq!(ends(&worker.run_ready().await.unwrap()), ["a: done"]);
    assert_eq!(first.calls(), 1);
}

#[tokio::test]
async fn a_rejected_work_is_validated_again_and_attempts_start_over() {
    let store: Arc<dyn Store> = InMemory::new();
    let accepts = Arc::new(AtomicBool::new(false));
    let (work, tried) = (Flaky::fixed(), Flaky::default());
    let accepted = accepts.clone();
    let check = rath::workflow::validator::check("person", move |session: Session| {
        let is_accepted = accepted.load(Ordering::Acquire);
        async move {
            Ok((
                session,
                match is_accepted {
                    true => rath::workflow::validator::Validation::accept(),
                    false => rath::workflow::validator::Validation::reject("no"),
                },
            ))
        }
    });
    let gate = rath::workflow::gate("gate", work.step("work", "done")).validator(check);
    let (id, error) = start(&store, "gate", "gate", &gate).await;
    assert_eq!(error.unwrap().code(), "rejected");
    accepts.store(true, Ordering::Release);
    again(&store, id, &gate).await.unwrap();
    assert_eq!(work.calls(), 1);

    let retried = rath::workflow::retry("retry", tried.step("try", "done")).attempts(2);
    let (id, _) = start(&store, "retry", "retry", &retried).await;
    assert_eq!(tried.calls(), 2);
    tried.fix();
    again(&store, id, &retried).await.unwrap();
    assert_eq!(tried.calls(), 3);
}

#[tokio::test]
async fn running_again_survives_a_crash_at_every_commit() {
    let run = async |commits: u64, moment: CrashPoint| {
        let store: Arc<dyn Store> = InMemory::new();
        let (good, bad) = (Flaky::fixed(), Flaky::default());
        let workflow = chain("all").then(
            parallel("both")
                .branch("good", good.step("good", "good"))
                .branch("bad", bad.step("bad", "fixed"))
                .at_most(1),
        );
        let workflow = workflow.then(says("end"));
        let (id, _) = start(&store, "a", "all", &workflow).await;
        bad.fix();
        let crashing = CrashingStore::new(store.clone(), commits, moment);
        let through: Arc<dyn Store> = crashing.clone();
        drop(again(&through, id, &workflow).await);
        // The run has either not been continued, then a person does so again, or a worker finds it.
        match unfinished(&store).await.is_empty() {
            true => drop(again(&store, id, &workflow).await),
            false => {
                let worker = Worker::new(&store).register("all", workflow);
                let ended = ends(&worker.run_ready().await.unwrap());
                assert_eq!(ended, ["a: done"], "crash {moment:?} commit {commits}");
            }
        }
        assert!(unfinished(&store).await.is_empty());
        assert_eq!(good.calls(), 1, "crash {moment:?} commit {commits}");
        let rows = store.sessions(rath::store::Query::default()).await.unwrap();
        let mut is_done = false;
        for row in rows {
            let view = View::of(&store, row.id, None).await.unwrap();
            is_done |= view.text().await.unwrap().as_deref() == Some("end");
        }
        assert!(is_done, "crash {moment:?} commit {commits}");
        crashing.is_dead()
    };
    for moment in [CrashPoint::Before, CrashPoint::After] {
        for commits in 0.. {
            if !run(commits, moment).await {
                break;
            }
        }
    }
}
