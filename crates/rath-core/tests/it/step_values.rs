//! The results of steps: values and errors that a resumed run gets again, and keys that differ between branches.

use std::sync::{Arc, Mutex};

use rath_core::body::StepLeft;
use rath_core::store::Scan;
use rath_core::{Actor, Content, Error, ErrorKind, How, InMemory, Kind, Result, RunOptions, Session, Store, View};
use rath_testkit::{CrashPoint, CrashingStore};
use serde::{Deserialize, Serialize};

/// The work that was really executed, in order.
type Log = Arc<Mutex<Vec<String>>>;

const KEY: &str = "the review";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Verdict {
    accepted: bool,
    reasons: Vec<String>,
}

impl Verdict {
    fn long() -> Self {
        Self { accepted: false, reasons: vec!["it does not compile".into(), "x".repeat(20_000)] }
    }
}

async fn input(session: &mut Session) -> Result<()> {
    session.user("Review it.").map(|_| ())
}

async fn wait(mut session: Session) -> Result<Session> {
    match session.ask("Further?").await {
        Ok(_) => Ok(session),
        Err(error) => Err(error.with_sessions(vec![session])),
    }
}

/// A step with a long value, a nested step with a short one, and a question.
async fn review(session: Session, log: &Log) -> Result<Session> {
    let note = |what: &str| log.lock().unwrap().push(what.into());
    let (session, verdict) = session
        .step_value("judge", async |session: Session| {
            note("judge");
            let (mut session, score) = session
                .step_value("score", async |session| {
                    note("score");
                    Ok((session, 0.25))
                })
                .await?;
            assert_eq!(score, 0.25);
            session.user("judged")?;
            Ok((session, Verdict::long()))
        })
        .await?;
    assert_eq!(verdict, Verdict::long());
    assert_eq!(session.value::<Verdict>("judge").await?, Some(verdict));
    assert_eq!(session.value::<f64>("score").await?, Some(0.25));
    assert_eq!(session.value::<f64>("no such step").await?, None);
    let fork = session.fork("a branch");
    assert_eq!(fork.value::<f64>("score").await?, Some(0.25), "a branch finds what was left before it was forked");
    let (fork, score) = fork.step_value("score", async |session| Ok((session, 0.75))).await?;
    assert_eq!((score, fork.value::<f64>("score").await?), (0.75, Some(0.75)));
    let session = session.merge([fork], How::Append).await?;
    assert_eq!(session.value::<f64>("score").await?, Some(0.25), "a branch does not replace the session's own values");
    wait(session).await
}

#[test]
fn a_step_value_is_returned_on_resume() {
    pollster::block_on(async {
        let (mut commits, mut died) = (0, true);
        while died {
            died = false;
            for moment in [CrashPoint::Before, CrashPoint::After] {
                let store: Arc<dyn Store> = InMemory::new();
                let log = Log::default();
                let code = async |session: Session| review(session, &log).await;
                let mortal = CrashingStore::new(store.clone(), commits, moment);
                let dying: Arc<dyn Store> = mortal.clone();
                drop(dying.run(KEY, Actor::program("test"), &code, input).await);
                died |= mortal.is_dead();
                for _ in 0..2 {
                    let waiting = store.run(KEY, Actor::program("test"), &code, input).await.unwrap_err();
                    assert!(matches!(waiting.kind(), ErrorKind::Waiting(_)), "{waiting}");
                }
                let ran = log.lock().unwrap().clone();
                assert!(ran.len() <= 4, "{ran:?}");
            }
            commits += 1;
        }
        assert!(commits > 3, "{commits}");
    });
}

#[test]
fn long_values_are_blobs_and_short_ones_inline() {
    pollster::block_on(async {
        let store: Arc<dyn Store> = InMemory::new();
        let log = Log::default();
        let code = async |session: Session| review(session, &log).await;
        let waiting = store.run(KEY, Actor::program("test"), &code, input).await.unwrap_err();
        let id = waiting.sessions()[0].id();
        drop(waiting);
        let left = store.scan(Scan::session(id, 0, 99).kinds(&[Kind::StepLeft])).await.unwrap().records;
        let values: Vec<_> = left.iter().filter_map(|record| record.body::<StepLeft>().unwrap().value).collect();
        assert!(matches!(&values[..], [Content::Text(score), Content::Blob(_)] if score == "0.25"), "{values:?}");
        let view = View::of(&store, id, None).await.unwrap();
        assert_eq!(view.value::<Verdict>("judge").await.unwrap(), Some(Verdict::long()), "without holding the session");
    });
}

#[test]
fn reading_a_value_as_another_type_diverges() {
    pollster::block_on(async {
        let store: Arc<dyn Store> = InMemory::new();
        let then = async |session: Session| {
            let (session, _) = session.step_value("score", async |session| Ok((session, 7_u32))).await?;
            wait(session).await
        };
        let now = async |session: Session| {
            let (session, _) = session.step_value("score", async |session| Ok((session, String::from("good")))).await?;
            wait(session).await
        };
        assert!(store.run(KEY, Actor::program("test"), &then, input).await.is_err());
        let error = store.run(KEY, Actor::program("test"), &now, input).await.unwrap_err();
        let ErrorKind::Diverged(diverged) = error.kind() else { panic!("{error}") };
        assert!(diverged.recorded.contains('7') && diverged.now.contains("String"), "{diverged}");
        drop(error);
        let waiting = store.run(KEY, Actor::program("test"), &then, input).await.unwrap_err();
        assert!(matches!(waiting.kind(), ErrorKind::Waiting(_)), "{waiting}");
        // A value that JSON cannot represent is rejected before it is recorded.
        let lost =
            async |session: Session| Ok(session.step_value("score", async |session| Ok((session, f64::NAN))).await?.0);
        let error = store.run("another", Actor::program("test"), &lost, input).await.unwrap_err();
        assert_eq!(error.code(), "bad-body", "{error}");
    });
}

/// What a program can find out about an error.
fn facts(error: &Error) -> String {
    format!("{} | {error} | {} | {} | {:?}", error.code(), error.is_transient(), error.is_cancelled(), error.kind())
}

/// Catches the errors of steps and logs what it can find out about them.
async fn catching(mut session: Session, log: &Log) -> Result<Session> {
    let model = |transient| ErrorKind::Model { model: "m".into(), why: "overloaded".into(), transient };
    let kinds: [fn() -> ErrorKind; 6] = [
        || ErrorKind::Workflow("no luck".into()),
        || ErrorKind::Coded { code: "tests-failed".into(), why: "2 of 7".into() },
        || ErrorKind::Budget { agent: "a".into(), spent: "3 of 3 turns".into() },
        || ErrorKind::Cancelled { why: "enough".into() },
        || ErrorKind::BadMerge("nothing to merge".into()),
        || ErrorKind::Workflow("".into()),
    ];
    let fail = async |session: Session, kind: ErrorKind| -> Result<Session> { Err(Error::new(kind, vec![session])) };
    let catch = |error: Error, what: &str| {
        log.lock().unwrap().push(format!("{what}: {}", facts(&error)));
        error.into_sessions().remove(0)
    };
    for (at, kind) in kinds.into_iter().enumerate() {
        session = catch(session.step(format!("{at}"), |session| fail(session, kind())).await.unwrap_err(), "one");
    }
    for transient in [true, false] {
        let inner = async |session: Session| session.step("inner", |session| fail(session, model(transient))).await;
        session = catch(session.step("outer", inner).await.unwrap_err(), "nested");
    }
    // The failure of a branch is recorded there and ends the outer step here.
    let branching = async |session: Session| {
        let branch = session.fork("a branch");
        match branch.step("work", |session| fail(session, ErrorKind::Workflow("not on a branch".into()))).await {
            Err(error) => Err(error.with_sessions(vec![session])),
            Ok(_) => Ok(session),
        }
    };
    session = catch(session.step("branching", branching).await.unwrap_err(), "branch");
    wait(session).await
}

#[test]
fn an_error_is_the_same_when_it_happens_and_when_a_run_is_resumed() {
    pollster::block_on(async {
        let store: Arc<dyn Store> = InMemory::new();
        let (live, resumed) = (Log::default(), Log::default());
        for log in [&live, &resumed, &resumed] {
            let code = async |session: Session| catching(session, log).await;
            log.lock().unwrap().clear();
            let waiting = store.run(KEY, Actor::program("test"), &code, input).await.unwrap_err();
            assert!(matches!(waiting.kind(), ErrorKind::Waiting(_)), "{waiting}");
        }
        let (live, resumed) = (live.lock().unwrap(), resumed.lock().unwrap());
        assert_eq!(*live, *resumed);
        assert_eq!(live.len(), 9);
        assert!(live[1].contains("tests-failed | 2 of 7 | false | false"), "{}", live[1]);
        assert!(live[3].contains("cancelled | cancelled: enough | false | true"), "{}", live[3]);
        assert!(live[6].contains("model-failed") && live[6].contains("| true | false"), "{}", live[6]);
        assert!(live[7].contains("| false | false"), "{}", live[7]);
        assert!(live[8].contains("not on a branch"), "{}", live[8]);
    });
}

#[test]
fn an_error_keeps_what_it_was_in_the_process_where_it_happened() {
    pollster::block_on(async {
        let store: Arc<dyn Store> = InMemory::new();
        let failing = async |session: Session| -> Result<Session> {
            Err(Error::workflow(std::io::Error::other("the disk is on fire"), session))
        };
        let error = store.run(KEY, Actor::program("test"), &failing, input).await.unwrap_err();
        let Some(ErrorKind::Workflow(cause)) = error.cause() else { panic!("{error:?}") };
        assert!(cause.downcast_ref::<std::io::Error>().is_some());
        assert!(!error.is_replayed());
        drop(error);
        let error = store.run(KEY, Actor::program("test"), &failing, input).await.unwrap_err();
        assert!(error.cause().is_none() && error.is_replayed(), "{error:?}");
        assert_eq!(error.to_string(), "the disk is on fire");
    });
}

/// Sibling branches, a fork of a fork and a fork at an earlier record enter steps of the same name.
async fn siblings(session: Session, log: &Log) -> Result<Session> {
    let worker = async |session: Session| -> Result<Session> {
        session
            .step("worker", async |session: Session| {
                let key = session.state().steps.last().unwrap().key;
                log.lock().unwrap().push(format!("{key:?}"));
                wait(session).await
            })
            .await
    };
    let early = session.head().point();
    let session = session.step("a plan", async |session| Ok(session)).await?;
    let (one, two) = (session.fork("one"), session.fork("two"));
    let three = one.fork("three");
    let four = session.fork_at(early, "four").await?;
    let five = session.fork_for_call("five", "0");
    let mut waiting = Vec::new();
    for branch in [one, two, three, four, five] {
        waiting.push(worker(branch).await.unwrap_err());
    }
    match waiting.pop() {
        Some(error) => Err(error.with_sessions(vec![session])),
        None => Ok(session),
    }
}

#[test]
fn step_keys_differ_between_branches() {
    pollster::block_on(async {
        let mut of_runs = Vec::new();
        for _ in 0..2 {
            let store: Arc<dyn Store> = InMemory::new();
            for _ in 0..2 {
                let log = Log::default();
                let code = async |session: Session| siblings(session, &log).await;
                assert!(store.run(KEY, Actor::program("test"), &code, input).await.is_err());
                let keys = log.lock().unwrap().clone();
                let mut distinct = keys.clone();
                distinct.sort();
                distinct.dedup();
                assert_eq!((keys.len(), distinct.len()), (5, 5), "{keys:?}");
                of_runs.push(keys);
            }
        }
        assert!(of_runs.windows(2).all(|two| two[0] == two[1]), "the same in every process: {of_runs:?}");
    });
}

#[test]
fn record_once_runs_its_work_once() {
    pollster::block_on(async {
        let (mut commits, mut died) = (0, true);
        while died {
            died = false;
            for moment in [CrashPoint::Before, CrashPoint::After] {
                let store: Arc<dyn Store> = InMemory::new();
                let log = Log::default();
                let code = async |mut session: Session| {
                    let text: String = session
                        .record_once("a long text", async || {
                            log.lock().unwrap().push("made".into());
                            Ok("y".repeat(30_000))
                        })
                        .await?;
                    assert_eq!(text.len(), 30_000);
                    let number: u64 = session.record_once("a number", async || Ok(7)).await?;
                    session.user(format!("{number}"))?;
                    wait(session).await
                };
                let mortal = CrashingStore::new(store.clone(), commits, moment);
                let dying: Arc<dyn Store> = mortal.clone();
                drop(dying.run(KEY, Actor::program("test"), &code, input).await);
                died |= mortal.is_dead();
                for _ in 0..3 {
                    let waiting = store.run(KEY, Actor::program("test"), &code, input).await.unwrap_err();
                    assert!(matches!(waiting.kind(), ErrorKind::Waiting(_)), "{waiting}");
                }
                let made = log.lock().unwrap().len();
                // The work is repeated only if the process died between the work and its record.
                assert!(made == 1 || made == 2 && mortal.is_dead(), "made {made} times, killed {moment:?} {commits}");
            }
            commits += 1;
        }
        assert!(commits > 3, "{commits}");
    });
}

#[test]
fn record_once_does_not_record_errors() {
    pollster::block_on(async {
        let mut session = Session::create(&(InMemory::new() as Arc<dyn Store>), Actor::person("ada"));
        let failed = session.record_once::<u32, _, _>("x", async || Err(ErrorKind::Workflow("no".into()).into())).await;
        assert_eq!(failed.unwrap_err().to_string(), "no");
        assert_eq!(session.record_once("x", async || Ok(3_u32)).await.unwrap(), 3);
    });
}

#[test]
fn a_run_records_its_workflow_name_and_version() {
    pollster::block_on(async {
        let store: Arc<dyn Store> = InMemory::new();
        let named = |version: &str| RunOptions::from(Actor::program("test")).workflow("review", version);
        let code = async |session: Session| wait(session).await;
        let waiting = store.run(KEY, named("1"), &code, input).await.unwrap_err();
        assert!(matches!(waiting.kind(), ErrorKind::Waiting(_)), "{waiting}");
        drop(waiting);
        let error = store.run(KEY, named("2"), &code, input).await.unwrap_err();
        let ErrorKind::Diverged(diverged) = error.kind() else { panic!("{error}") };
        assert!(diverged.to_string().contains("version: 1 was recorded, now it is 2"), "{diverged}");
        drop(error);
        let other = RunOptions::from(Actor::program("test")).workflow("deploy", "1");
        let error = store.run(KEY, other, &code, input).await.unwrap_err();
        assert!(error.to_string().contains("workflow: review was recorded, now it is deploy"), "{error}");
        drop(error);
        // Code without a workflow name can resume the run, and named code can resume a run without one.
        for conditions in [Actor::program("test").into(), named("1")] {
            let waiting = store.run(KEY, conditions, &code, input).await.unwrap_err();
            assert!(matches!(waiting.kind(), ErrorKind::Waiting(_)), "{waiting}");
        }
        let silent = store.run("another", Actor::program("test"), &code, input).await.unwrap_err();
        drop(silent);
        let waiting = store.run("another", named("7"), &code, input).await.unwrap_err();
        assert!(matches!(waiting.kind(), ErrorKind::Waiting(_)), "{waiting}");
    });
}
