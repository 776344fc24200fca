//! Combinators: what they do, and that a run of each survives a crash at every record.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rath::body::{Asked, CheckVerdict, QuestionKind, Rejected, ToolFinished, Validated, Verdict};
use rath::model::MessageBody;
use rath::prelude::*;
use rath::session::RunOptions;
use rath::store::{Post, PostContent, Query};
use rath::workflow::validator::{self, Validation};
use rath::workflow::{
    BoxWorkflow, Join, OnReject, RetryKey, SkippingClock, add_branch, chain, choose, compensate, gate, item, map,
    parallel, race, repeat, retry, sleep, timeout, wait_for, when,
};
use rath::{Durability, ErrorKind, Kind, Record};
use rath_testkit::{CrashPoint, CrashingStore};
use serde_json::json;

/// The outside world: what irreversible tools did to it.
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

/// How a run ended, without what differs from run to run.
#[derive(Debug, PartialEq)]
struct Ending {
    error: Option<String>,
    context: Vec<String>,
    steps: Vec<String>,
    rejected: Vec<String>,
    usage: rath::Usage,
    sent: Vec<String>,
}

async fn ending(session: &Session, error: Option<String>, world: &World) -> Ending {
    let describe = |body: &MessageBody| match body {
        MessageBody::Marker { why, .. } => format!("branch {}", why.clone().unwrap_or_default()),
        body => format!("{} {body}", body.role()),
    };
    let context = session.context().await.unwrap().iter().map(|message| describe(&message.body)).collect();
    let history = session.history().await.unwrap().all().await.unwrap();
    let of = |kind: Kind| history.iter().filter(move |record| *record.kind() == kind);
    let mut steps: Vec<String> = of(Kind::StepEntered).map(rath::summary::of).collect();
    steps.sort();
    let mut rejected: Vec<String> = of(Kind::Rejected).map(|record| record.body::<Rejected>().unwrap().why).collect();
    rejected.sort();
    let mut sent = world.sent.lock().unwrap().clone();
    sent.sort();
    Ending { error, context, steps, rejected, usage: session.usage(), sent }
}

/// Runs `workflow` until it ends or the store is dead. Answers questions with yes, and posts the events that are awaited.
async fn live(
    store: &Arc<dyn Store>,
    through: &Arc<dyn Store>,
    workflow: &BoxWorkflow,
    world: &Arc<World>,
    clock: &SkippingClock,
) -> Option<Ending> {
    for _ in 0..50 {
        let input = async |session: &mut Session| {
            session.set_durability(Durability::Record);
            session.user("Go.").map(|_| ())
        };
        let session = through.begin_run("run", RunOptions::from(Actor::program("test")), input).await;
        let mut session = match session {
            Ok(session) => session,
            Err(_) => return None,
        };
        session.set_durability(Durability::Record);
        session.provide_shared(world.clone());
        session.provide(clock.clone());
        let executed = session.execute(workflow).await;
        if through.sessions(Query::default()).await.is_err() {
            return None;
        }
        match executed {
            Ok(session) => return Some(ending(&session, None, world).await),
            Err(error) => match error.kind() {
                ErrorKind::Waiting(_) => {
                    drop(error);
                    answer(store, world, clock).await;
                }
                _ => {
                    let why = format!("{}: {error}", error.code());
                    let Some(session) = error.sessions().first() else { panic!("{why} carries no session") };
                    return Some(ending(session, Some(why), world).await);
                }
            },
        }
    }
    panic!("the run does not end");
}

/// How often the records say that `text` was sent.
async fn recorded_sends(store: &Arc<dyn Store>, text: &str) -> usize {
    let mut count = 0;
    for row in store.sessions(Query::default()).await.unwrap() {
        let view = View::of(store, row.id, None).await.unwrap();
        let finished = view.own_records().await.unwrap();
        let output = |record: &Record| record.body::<ToolFinished>().map(|body| format!("{:?}", body.output));
        let is_sent = |record: &&Record| output(record).is_ok_and(|output| output.contains(&format!("sent {text}\"")));
        count += finished.iter().filter(|record| *record.kind() == Kind::ToolFinished).filter(is_sent).count();
    }
    count
}

async fn answer(store: &Arc<dyn Store>, world: &World, clock: &SkippingClock) {
    for row in store.sessions(Query::default()).await.unwrap() {
        let pending = View::of(store, row.id, None).await.unwrap().pending();
        for ask in pending.asks {
            let asked: Asked = View::of(store, row.id, Some(ask.seq)).await.unwrap().record().body().unwrap();
            let shown = asked.shown.to_string();
            let verdict = match asked.about {
                QuestionKind::OutcomeUnknown => {
                    let arguments: serde_json::Value = serde_json::from_str(shown.lines().nth(1).unwrap()).unwrap();
                    let text = arguments["text"].as_str().unwrap();
                    let sent = world.sent.lock().unwrap().iter().filter(|sent| *sent == text).count();
                    match sent > recorded_sends(store, text).await {
                        true => Verdict::Text(format!("sent {text}").into()),
                        false => Verdict::No,
                    }
                }
                _ => Verdict::Yes,
            };
            let what = PostContent::Answer { asked: ask.record, shown_digest: ask.shown_digest, verdict, why: None };
            store.post(Post::new(row.id, Actor::person("ada"), what)).await.unwrap();
        }
        for wait in pending.waits {
            if let Some(until) = wait.until {
                clock.skip_to(until);
            }
            if let Some(name) = wait.name {
                let what = PostContent::Event { name: name.clone(), value: json!({ "event": name }).to_string() };
                let id = format!("event for {}@{}", row.id, wait.seq);
                store.post(Post { id, ..Post::new(row.id, Actor::person("ada"), what) }).await.unwrap();
            }
        }
    }
}

/// Runs a workflow without a crash, and then once for each record with a crash before and after it. Every run must end
/// the same way.
async fn survives_crashes(name: &str, workflow: impl Fn() -> BoxWorkflow) -> Ending {
    survives_crashes_as(name, workflow, |ending| ending).await
}

/// Like [`survives_crashes`], for what `compared` leaves of an ending.
async fn survives_crashes_as(
    name: &str,
    workflow: impl Fn() -> BoxWorkflow,
    compared: impl Fn(Ending) -> Ending,
) -> Ending {
    let world = Arc::new(World::default());
    let store: Arc<dyn Store> = InMemory::new();
    let wanted = live(&store, &store, &workflow(), &world, &SkippingClock::default()).await.unwrap();
    let wanted = compared(wanted);
    for moment in [CrashPoint::Before, CrashPoint::After] {
        for commits in 0.. {
            let (world, clock) = (Arc::new(World::default()), SkippingClock::default());
            let store: Arc<dyn Store> = InMemory::new();
            let crashing = CrashingStore::new(store.clone(), commits, moment);
            let through: Arc<dyn Store> = crashing.clone();
            let first = live(&store, &through, &workflow(), &world, &clock).await;
            if !crashing.is_dead() {
                break;
            }
            drop(first);
            let resumed = compared(live(&store, &store, &workflow(), &world, &clock).await.unwrap());
            assert_eq!(resumed, wanted, "{name}: crash {moment:?} commit {commits}");
        }
    }
    wanted
}

fn boxed(workflow: impl Workflow + 'static) -> BoxWorkflow {
    BoxWorkflow::new(workflow)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chain_gives_the_last_answer_to_the_next_link() {
    let ended = survives_crashes("chain", || {
        boxed(chain("letter").then(says("draft", "Dear Bob")).task_from_answer().then(says("polish", "Dear Robert")))
    })
    .await;
    assert_eq!(ended.context, ["user Go.", "assistant Dear Bob", "user Dear Bob", "assistant Dear Robert"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_branches_append_their_contexts_in_branch_order() {
    let ended = survives_crashes("parallel", || {
        boxed(parallel("both").branch("a", sends("a", "one")).branch("b", says("b", "two")))
    })
    .await;
    assert_eq!(ended.sent, ["one"]);
    assert_eq!(ended.context.last().unwrap(), "assistant two");
    assert_eq!(ended.context.iter().filter(|line| line.starts_with("branch")).count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_enter_the_context_as_one_message() {
    let ended = survives_crashes("map", || {
        boxed(map("each", says("worker", "done")).items(["one", "two", "three"]).at_most(2))
    })
    .await;
    assert_eq!(ended.context.len(), 2);
    assert!(ended.context[1].contains("## 3\n\ndone"), "{:?}", ended.context);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_branch_fails_the_step_unless_failures_are_collected() {
    let two = || parallel("two").branch("good", says("good", "fine")).branch("bad", fails("no luck"));
    let ended = survives_crashes("fail fast", move || boxed(parallel("two").branch("bad", fails("no luck")))).await;
    assert_eq!(ended.error.as_deref(), Some("broken: no luck"));
    let ended = survives_crashes("collect", move || boxed(two().collect(1))).await;
    assert_eq!((ended.error, ended.rejected), (None, vec!["no luck".to_owned()]));
    let ended = survives_crashes("too few", move || boxed(two().collect(2))).await;
    assert!(ended.error.unwrap().starts_with("too-few-succeeded: 1 branches succeeded, 2 are needed; bad: no luck"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn branches_add_branches_while_they_run() {
    let crawl = || {
        let visit = |mut session: Session| async move {
            let depth: u32 = item(&session)?;
            for next in (depth + 1)..(depth + 3).min(4) {
                add_branch(&mut session, format!("page {next}"), next)?;
            }
            Ok(session)
        };
        let start = |mut session: Session| async move {
            add_branch(&mut session, "page 1", 1)?;
            Ok(session)
        };
        boxed(parallel("crawl").branch("start", start).discover(visit).join(Join::answers()))
    };
    let ended = survives_crashes("discover", crawl).await;
    for page in 1..4 {
        assert!(ended.steps.contains(&format!("step_entered: page {page}")), "{:?}", ended.steps);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_branch_to_succeed_wins_a_race() {
    let slow = |mut session: Session| async move {
        let cancel = session.cancel_token();
        tokio::select! {
            () = cancel.cancelled() => {
                Err(Error::new(ErrorKind::Cancelled { why: "told to stop".into() }, vec![session]))
            }
            // Not for ever: the store may be dead.
            () = tokio::time::sleep(Duration::from_secs(2)) => Err(Error::coded("too-slow", "too slow", session)),
        }
    };
    let make = move || boxed(race("ask").branch("slow", slow).branch("quick", says("quick", "Oslo")));
    // How far the loser came differs from run to run.
    let compared = |ending| Ending { steps: Vec::new(), ..ending };
    let ended = survives_crashes_as("race", make, compared).await;
    assert_eq!(ended.context, ["user Go.", "assistant Oslo"]);
    assert_eq!(ended.rejected.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_start_from_the_same_point_and_failed_ones_are_rejected() {
    let flaky = |session: Session| async move {
        let mut session = session;
        let key = session.resources().get::<RetryKey>().unwrap();
        let attempt = session.context().await?.len();
        session.assistant(format!("attempt of {}", key.0.is_empty()))?;
        match attempt {
            1 => Err(Error::coded("broken", "not yet", session)),
            _ => Ok(session),
        }
    };
    let ended = survives_crashes("retry", move || {
        boxed(retry("flaky", flaky).attempts(2).tell_reason().backoff(Duration::from_secs(60)))
    })
    .await;
    assert_eq!(ended.error, None);
    assert_eq!(ended.rejected, ["attempt 1 failed: not yet"]);
    assert_eq!(ended.context.len(), 3, "{:?}", ended.context);
    let ended = survives_crashes("retry in vain", move || boxed(retry("vain", fails("never")).attempts(3))).await;
    assert_eq!(ended.error.as_deref(), Some("broken: never"));
    assert_eq!(ended.rejected.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_after_an_irreversible_call_needs_a_yes() {
    let paid = || chain("pay").then(sends("payer", "10 EUR")).then(fails("the shop is down"));
    let ended = survives_crashes("pay", move || boxed(retry("buy", paid()).attempts(2))).await;
    assert_eq!(ended.sent, ["10 EUR", "10 EUR"], "the person said yes");
    let store: Arc<dyn Store> = InMemory::new();
    let mut session =
        store.begin_run("r", Actor::program("test"), async |session| session.user("Go.").map(drop)).await.unwrap();
    session.provide(World::default());
    let error = session.execute(&retry("buy", paid())).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Waiting(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rounds_go_on_until_a_validator_accepts() {
    let count = |mut session: Session| async move {
        session.assistant("another try")?;
        Ok(session)
    };
    let enough = || {
        validator::check("three tries", |session: Session| async move {
            let tries = session.context().await?.iter().filter(|message| message.body.role() == "assistant").count();
            let validation =
                if tries >= 3 { Validation::accept() } else { Validation::reject(format!("only {tries}")) };
            Ok((session, validation))
        })
    };
    let ended = survives_crashes("repeat", move || boxed(repeat("work", count).until_accepted(enough()))).await;
    assert_eq!(ended.context.iter().filter(|line| line.starts_with("user Rejected: failed: only")).count(), 2);
    let ended =
        survives_crashes("used up", move || boxed(repeat("work", count).rounds(2).until_accepted(enough()))).await;
    assert!(ended.error.unwrap().starts_with("rounds-used-up: 2 rounds were used up: failed: only 2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_choice_is_made_once() {
    let calls = Arc::new(AtomicU32::new(0));
    let predicate = {
        let calls = calls.clone();
        move |_: &Session| calls.fetch_add(1, Ordering::AcqRel).is_multiple_of(2)
    };
    let make = move || {
        let fresh = predicate.clone();
        boxed(choose("pick").when("yes", fresh, says("yes", "yes")).otherwise(says("no", "no")))
    };
    let store: Arc<dyn Store> = InMemory::new();
    let run = async || {
        let session =
            store.begin_run("r", Actor::program("test"), async |session| session.user("Go.").map(drop)).await.unwrap();
        session.execute(&make()).await.unwrap().text().await.unwrap()
    };
    assert_eq!(run().await.as_deref(), Some("yes"));
    assert_eq!(run().await.as_deref(), Some("yes"), "the recorded choice is used");
    survives_crashes("when", || boxed(when("if", |_| true, says("then", "so")))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_limit_cancels_the_work() {
    let stuck = |mut session: Session| async move {
        session.cancel_token().cancelled().await;
        Err(Error::new(ErrorKind::Cancelled { why: "stopping".into() }, vec![session]))
    };
    let ended = survives_crashes("timeout", move || boxed(timeout("slow", Duration::from_millis(20), stuck))).await;
    assert_eq!(ended.error.as_deref(), Some("timed-out: the time limit of 0.0 s is over"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_and_an_event_leave_the_run_waiting() {
    let ended = survives_crashes("wait", || {
        boxed(
            chain("slow")
                .then(sleep("a day", Duration::from_secs(86_400)))
                .then(wait_for("approved"))
                .then(says("end", "ok")),
        )
    })
    .await;
    assert_eq!(ended.context.last().unwrap(), "assistant ok");
    let ended = survives_crashes("wait on branches", || {
        boxed(parallel("two").branch("a", wait_for("go")).branch("b", wait_for("go")))
    })
    .await;
    assert_eq!(ended.error, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_lets_nothing_pass_that_is_rejected() {
    let never = || validator::check("never", |session| async move { Ok((session, Validation::reject("bad"))) });
    let ended = survives_crashes("gate", move || boxed(gate("g", says("work", "done")).validator(never()))).await;
    assert_eq!(ended.error.as_deref(), Some("rejected: never did not accept the work: failed: bad"));
    let ended = survives_crashes("gate asks", move || {
        boxed(gate("g", says("work", "done")).validator(never()).on_reject(OnReject::Ask))
    })
    .await;
    assert_eq!(ended.error, None);
    let person = || gate("g", says("work", "done")).validator(validator::person("Is it good?"));
    let ended = survives_crashes("person", move || boxed(person())).await;
    assert_eq!(ended.error, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_undos_of_finished_steps_run_in_reverse_order() {
    let ended = survives_crashes("compensate", || {
        boxed(
            compensate("trip")
                .step("flight", sends("a", "book flight"), sends("b", "cancel flight"))
                .step("hotel", sends("c", "book hotel"), sends("d", "cancel hotel"))
                .step("car", fails("no cars"), sends("e", "cancel car")),
        )
    })
    .await;
    assert_eq!(ended.error.as_deref(), Some("broken: no cars"));
    assert_eq!(ended.sent, ["book flight", "book hotel", "cancel flight", "cancel hotel"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_best_branch_is_kept_and_the_others_are_rejected_with_their_scores() {
    let longest = || {
        validator::check("length", |session: Session| async move {
            let length = session.text().await?.unwrap_or_default().len();
            Ok((session, Validation::accept().score(length as f64)))
        })
    };
    let ended = survives_crashes("best", move || {
        boxed(
            parallel("three")
                .branch("a", says("a", "x"))
                .branch("b", says("b", "xyz"))
                .branch("c", says("c", "xy"))
                .join(Join::best(longest())),
        )
    })
    .await;
    assert_eq!(ended.context, ["user Go.", "assistant xyz"]);
    assert_eq!(ended.rejected, ["passed, score 1", "passed, score 2"]);
    let ended = survives_crashes("majority", || {
        boxed(
            parallel("vote")
                .branch("a", says("a", "4"))
                .branch("b", says("b", "5"))
                .branch("c", says("c", "4"))
                .join(Join::majority()),
        )
    })
    .await;
    assert_eq!(ended.context, ["user Go.", "assistant 4"]);
    assert_eq!(ended.rejected.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_that_panics_is_a_failed_branch() {
    let panics = |session: Session| async move {
        drop(session);
        if true {
            panic!("out of luck");
        }
        unreachable!()
    };
    let ended = survives_crashes("panic", move || {
        boxed(parallel("p").branch("a", panics).branch("b", says("b", "fine")).collect(1))
    })
    .await;
    assert_eq!((ended.error, ended.rejected), (None, vec!["the workflow panicked: out of luck".to_owned()]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verdict_names_the_validator_and_the_score() {
    let store: Arc<dyn Store> = InMemory::new();
    let session =
        store.begin_run("r", Actor::program("test"), async |session| session.user("Go.").map(drop)).await.unwrap();
    let check =
        validator::check(
            "half",
            |session| async move { Ok((session, Validation::accept().score(0.5).reason("so so"))) },
        );
    let session = session.execute(&gate("g", says("work", "done")).validator(check)).await.unwrap();
    let records = session.own_records(&[Kind::Validated]).await.unwrap();
    let validated: Validated = records[0].body().unwrap();
    assert_eq!(
        (validated.validator.as_deref(), validated.verdict, validated.score),
        (Some("half"), CheckVerdict::Passed, Some(0.5))
    );
    assert_eq!(validated.reasons, ["so so"]);
}

/// All combinators, with an approval and an irreversible tool.
fn everything() -> BoxWorkflow {
    let slow = |mut session: Session| async move {
        let cancel = session.cancel_token();
        tokio::select! {
            () = cancel.cancelled() => {
                Err(Error::new(ErrorKind::Cancelled { why: "told to stop".into() }, vec![session]))
            }
            // Not for ever: the store may be dead.
            () = tokio::time::sleep(Duration::from_millis(100)) => Err(Error::coded("too-slow", "too slow", session)),
        }
    };
    let second = |session: Session| async move {
        match session.context().await?.iter().any(|message| message.body.to_string().contains("not yet")) {
            false => Err(Error::coded("broken", "not yet", session)),
            true => Ok(session),
        }
    };
    let longest = validator::check("length", |session: Session| async move {
        let length = session.text().await?.unwrap_or_default().len();
        Ok((session, Validation::accept().score(length as f64)))
    });
    let enough = validator::check("two lines", |session: Session| async move {
        let lines = session.context().await?.iter().filter(|message| message.body.to_string() == "line").count();
        Ok((session, if lines >= 2 { Validation::accept() } else { Validation::reject("too few lines") }))
    });
    let mails = gate("mail", sends("mailer", "the result")).validator(validator::person("Was it right to send it?"));
    let trip = compensate("trip")
        .step("flight", sends("flight", "book flight"), sends("no flight", "cancel flight"))
        .step("car", fails("no cars"), sends("no car", "cancel car"));
    let best = parallel("best").branch("a", says("a", "x")).branch("b", says("b", "xyz")).join(Join::best(longest));
    let branches = parallel("branches")
        .branch("retried", retry("retry", chain("attempt").then(says("tries", "tried")).then(second)).tell_reason())
        .branch("judged", best)
        .branch("raced", race("race").branch("slow", slow).branch("quick", says("quick", "quick")))
        .branch("mapped", map("map", says("mapper", "mapped")).items([1, 2]))
        .branch("mailed", timeout("limit", Duration::from_secs(1 << 30), mails))
        .branch("undone", trip)
        .collect(5);
    let rounds = repeat("rounds", says("rounder", "line")).until_accepted(enough).rounds(3);
    let route =
        choose("route").when("titled", |session| session.title().is_some(), fails("no title")).otherwise(rounds);
    boxed(
        chain("everything")
            .then(sleep("a minute", Duration::from_secs(60)))
            .then(branches)
            .then(wait_for("approved"))
            .then(route)
            .task_from_answer()
            .then(says("last", "done")),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nested_run_survives_a_crash_at_every_record() {
    // How far the losers came differs from run to run.
    let compared = |ending| Ending { steps: Vec::new(), ..ending };
    let ended = survives_crashes_as("everything", everything, compared).await;
    assert_eq!(ended.error, None);
    assert_eq!(ended.sent, ["book flight", "cancel flight", "the result"]);
    assert_eq!(ended.context.last().unwrap(), "assistant done");
}
