//! Runs that continue on a fork because their code changed, and other forks that resume must find.

use std::sync::{Arc, Mutex};

use rath_core::body::{Forked, Outcome, StepLeft};
use rath_core::store::{Scan, SessionFilter};
use rath_core::{
    Actor, Error, ErrorKind, How, InMemory, Kind, OnDivergence, Result, RunOptions, Session, SessionId, Store, View,
};
use rath_testkit::{CrashPoint, CrashingStore};

/// The work that was really executed, in order.
type Log = Arc<Mutex<Vec<String>>>;

const KEY: &str = "the way";

fn forking() -> RunOptions {
    RunOptions { on_divergence: OnDivergence::Fork, ..Actor::program("test").into() }
}

async fn input(session: &mut Session) -> Result<()> {
    session.user("Find the way.").map(|_| ())
}

async fn say(session: Session, log: &Log, words: &'static str) -> Result<Session> {
    let log = log.clone();
    let work = async move |mut session: Session| {
        log.lock().unwrap().push(words.into());
        let done = match session.assistant(words) {
            Ok(_) => session.publish().await,
            Err(error) => Err(error),
        };
        match done {
            Ok(()) => Ok(session),
            Err(error) => Err(error.with_sessions(vec![session])),
        }
    };
    session.step(words, work).await
}

/// A run that has finished its first step and waits in its second.
async fn stopped_run(store: &Arc<dyn Store>) -> SessionId {
    let log = Log::default();
    let first = async |session: Session| {
        let session = say(session, &log, "a plan").await?;
        let outer = async |session: Session| {
            let mut session = say(session, &log, "the old way").await?;
            match session.ask("Further?").await {
                Ok(_) => Ok(session),
                Err(error) => Err(error.with_sessions(vec![session])),
            }
        };
        session.step("go", outer).await
    };
    match store.run(KEY, Actor::program("test"), &first, input).await.unwrap_err().kind() {
        ErrorKind::Waiting(id) => *id,
        other => panic!("{other}"),
    }
}

/// The same workflow with different code in the middle of the second step.
async fn changed(session: Session, log: &Log) -> Result<Session> {
    let session = say(session, log, "a plan").await?;
    let outer = async |session: Session| {
        let session = say(session, log, "the new way").await?;
        let (left, right) = (session.fork("left"), session.fork("right"));
        let left = say(left, log, "to the left").await?;
        let right = say(right, log, "to the right").await?;
        let session = session.merge([left, right], How::Append).await?;
        say(session, log, "arrived").await
    };
    session.step("go", outer).await
}

async fn forks_of(store: &Arc<dyn Store>, line: SessionId) -> Vec<(SessionId, Forked)> {
    let mut forks = Vec::new();
    for row in store.sessions(SessionFilter::ChildrenOf(line).into()).await.unwrap() {
        let first = View::of(store, row.id, Some(0)).await.unwrap();
        forks.push((row.id, first.record().body().unwrap()));
    }
    forks
}

async fn records_of(store: &Arc<dyn Store>, line: SessionId, kind: Kind) -> usize {
    store.scan(Scan::session(line, 0, u64::MAX - 1).kinds(&[kind])).await.unwrap().records.len()
}

#[test]
fn a_run_killed_at_any_commit_resumes_on_the_same_fork() {
    pollster::block_on(async {
        let (mut commits, mut deaths) = (0, 0);
        loop {
            let mut died = false;
            for (moment, by_key) in [(CrashPoint::Before, true), (CrashPoint::After, true), (CrashPoint::After, false)]
            {
                let store: Arc<dyn Store> = InMemory::new();
                let original = stopped_run(&store).await;
                let length = View::of(&store, original, None).await.unwrap().record().seq();
                let mortal = CrashingStore::new(store.clone(), commits, moment);
                let dying: Arc<dyn Store> = mortal.clone();
                let log = Log::default();
                let code = async |session: Session| changed(session, &log).await;
                if let Ok(session) = dying.begin_run(KEY, forking(), input).await {
                    drop(session.execute(&code).await);
                }
                died |= mortal.is_dead();
                deaths += u32::from(mortal.is_dead());
                // Resumed by its key with the same options, or by the fork's id with default options.
                let fork =
                    forks_of(&store, original).await.into_iter().find(|(_, forked)| forked.continued_from.is_some());
                let session = match fork {
                    Some((fork, _)) if !by_key => store.resume(fork, Actor::program("test")).await.unwrap(),
                    _ => store.begin_run(KEY, forking(), input).await.unwrap(),
                };
                let session = session.execute(&code).await.unwrap();
                let where_ = format!("killed {moment:?} commit {commits}");
                assert_eq!(session.text().await.unwrap().as_deref(), Some("arrived"), "{where_}");
                assert!(session.pending().is_empty(), "the steps around were left on the fork: {where_}");
                let instead: Vec<_> = forks_of(&store, original).await;
                assert_eq!(instead.len(), 1, "{where_}: {instead:?}");
                assert_eq!(instead[0].0, session.id());
                assert_eq!(forks_of(&store, session.id()).await.len(), 2, "{where_}");
                let old = View::of(&store, original, None).await.unwrap();
                assert_eq!((old.record().seq(), old.pending().asks.len()), (length, 1), "the old line waits as before");
                for words in ["the new way", "to the left", "to the right", "arrived"] {
                    let ran = log.lock().unwrap().iter().filter(|ran| *ran == words).count();
                    // Only work whose step was not finished is run again.
                    assert!((1..=2).contains(&ran), "{words} ran {ran} times: {where_}");
                }
                assert!(!log.lock().unwrap().contains(&"a plan".into()), "it was done before: {where_}");
                // Resuming the finished run executes nothing and adds no record.
                let (id, head) = (session.id(), session.head());
                drop(session);
                let before = log.lock().unwrap().len();
                let again = store.resume(id, Actor::program("test")).await.unwrap().execute(&code).await.unwrap();
                assert_eq!((again.head(), log.lock().unwrap().len()), (head, before), "{where_}");
            }
            if !died {
                break;
            }
            commits += 1;
        }
        assert!(deaths > 10, "{deaths}");
    });
}

#[test]
fn code_that_changes_again_forks_the_fork() {
    pollster::block_on(async {
        let store: Arc<dyn Store> = InMemory::new();
        let original = stopped_run(&store).await;
        let log = Log::default();
        let code = async |session: Session| {
            let mut session = changed(session, &log).await?;
            match session.ask("Further?").await {
                Ok(_) => Ok(session),
                Err(error) => Err(error.with_sessions(vec![session])),
            }
        };
        let waiting = store.begin_run(KEY, forking(), input).await.unwrap().execute(&code).await.unwrap_err();
        let ErrorKind::Waiting(second) = *waiting.kind() else { panic!("{waiting}") };
        drop(waiting);
        let third = async |session: Session| {
            let session = say(session, &log, "a plan").await?;
            let outer = async |session: Session| say(session, &log, "the new way").await;
            say(session.step("go", outer).await?, &log, "home").await
        };
        let stopped = store.resume(second, Actor::program("test")).await.unwrap().execute(&third).await.unwrap_err();
        assert!(matches!(stopped.kind(), ErrorKind::Diverged(_)), "{stopped}");
        drop(stopped);
        let session = store.resume(second, forking()).await.unwrap().execute(&third).await.unwrap();
        assert_eq!(session.origin().map(|origin| origin.session), Some(second));
        assert_eq!(session.text().await.unwrap().as_deref(), Some("home"));
        let id = session.id();
        drop(session);
        // The key leads to the last continuation; earlier sessions are found by their ids.
        let last = store.begin_run(KEY, forking(), input).await.unwrap().execute(&third).await.unwrap();
        assert_eq!(last.id(), id);
        drop(last);
        let middle = store.resume(second, Actor::program("test")).await.unwrap().execute(&code).await.unwrap_err();
        assert!(matches!(*middle.kind(), ErrorKind::Waiting(id) if id == second), "{middle}");
        assert_eq!(forks_of(&store, original).await.len(), 1);
        assert_eq!(log.lock().unwrap().iter().filter(|words| *words == "the new way").count(), 1);
    });
}

#[test]
fn a_failure_on_the_fork_is_written_there() {
    pollster::block_on(async {
        for dropped in [false, true] {
            let store: Arc<dyn Store> = InMemory::new();
            let original = stopped_run(&store).await;
            let length = View::of(&store, original, None).await.unwrap().record().seq();
            let log = Log::default();
            let failing = async |session: Session| {
                let session = say(session, &log, "a plan").await?;
                let outer = async |session: Session| -> Result<Session> {
                    let session = say(session, &log, "the new way").await?;
                    match dropped {
                        true => Err(ErrorKind::Workflow("no luck".into()).into()),
                        false => Err(Error::workflow("no luck", session)),
                    }
                };
                session.step("go", outer).await
            };
            let session = store.begin_run(KEY, forking(), input).await.unwrap();
            let error = session.execute(&failing).await.unwrap_err();
            assert!(error.is_recorded(), "{error}");
            let fork = error.sessions()[0].id();
            assert_ne!(fork, original);
            drop(error);
            assert_eq!(View::of(&store, original, None).await.unwrap().record().seq(), length);
            assert_eq!(records_of(&store, fork, Kind::Failed).await, 1);
            let left = store.scan(Scan::session(fork, 0, 99).kinds(&[Kind::StepLeft])).await.unwrap().records;
            let outcomes: Vec<_> = left.iter().map(|record| record.body::<StepLeft>().unwrap().outcome).collect();
            // The record that the first step finished was lost with the dropped session.
            let first = if dropped { Outcome::Failed } else { Outcome::Done };
            assert_eq!(outcomes, [first, Outcome::Failed, Outcome::Failed], "the new way, go, run");
            let again = store.resume(fork, Actor::program("test")).await.unwrap().execute(&failing).await.unwrap_err();
            assert!(again.to_string().contains("no luck"), "{again}");
            assert_eq!(records_of(&store, fork, Kind::Failed).await, 1, "said once");
        }
    });
}

#[test]
fn changed_samples_and_merges_also_fork() {
    pollster::block_on(async {
        let store: Arc<dyn Store> = InMemory::new();
        let code = async |mut session: Session, what: &str, keeps: bool| {
            session.sample(what, || 7)?;
            let (one, other) = (session.fork("one"), session.fork("other"));
            let how = if keeps { How::keep(one.id(), "better") } else { How::Append };
            let mut session = session.merge([one, other], how).await?;
            match session.ask("Further?").await {
                Ok(_) => Ok(session),
                Err(error) => Err(error.with_sessions(vec![session])),
            }
        };
        let first = async |session: Session| code(session, "dice", false).await;
        let waiting = store.run(KEY, Actor::program("test"), &first, input).await.unwrap_err();
        let ErrorKind::Waiting(original) = *waiting.kind() else { panic!("{waiting}") };
        drop(waiting);
        let other_sample = async |session: Session| code(session, "coin", false).await;
        let other_merge = async |session: Session| code(session, "dice", true).await;
        for changed in [0, 1] {
            let session = store.begin_run(KEY, Actor::program("test"), input).await.unwrap();
            let stopped = match changed {
                0 => session.execute(&other_sample).await,
                _ => session.execute(&other_merge).await,
            };
            let error = stopped.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Diverged(_)), "{error}");
        }
        let error = store.resume(original, forking()).await.unwrap().execute(&other_merge).await.unwrap_err();
        let ErrorKind::Waiting(fork) = *error.kind() else { panic!("{error}") };
        drop(error);
        assert_eq!(records_of(&store, fork, Kind::Merged).await, 1);
        let error = store.resume(original, forking()).await.unwrap().execute(&other_sample).await.unwrap_err();
        let ErrorKind::Waiting(sampled) = *error.kind() else { panic!("{error}") };
        assert_eq!(records_of(&store, sampled, Kind::Sampled).await, 1);
    });
}

#[test]
fn forks_at_earlier_records_are_found_again() {
    pollster::block_on(async {
        for commits in 0..12 {
            let store: Arc<dyn Store> = InMemory::new();
            let mortal = CrashingStore::new(store.clone(), commits, CrashPoint::After);
            let log = Log::default();
            let code = async |session: Session| {
                let session = say(session, &log, "one").await?;
                let early = session.head().point();
                let session = say(session, &log, "two").await?;
                let branch = session.fork("a branch");
                // Two sessions fork at the same point: each finds its own fork.
                let ours = session.fork_at(early, "back").await?;
                let theirs = branch.fork_at(early, "back").await?;
                let ours = say(ours, &log, "ours").await?;
                let theirs = say(theirs, &log, "theirs").await?;
                let session = session.merge([ours, theirs, branch], How::Append).await?;
                say(session, &log, "three").await
            };
            let dying: Arc<dyn Store> = mortal.clone();
            drop(dying.run(KEY, Actor::program("test"), &code, input).await);
            let session = store.run(KEY, Actor::program("test"), &code, input).await.unwrap();
            let forks = forks_of(&store, session.id()).await;
            assert_eq!(forks.len(), 3, "killed at commit {commits}: {forks:?}");
            let (one, three) = (forks.iter().filter(|(_, f)| f.why == "back").count(), forks.len());
            assert_eq!((one, three), (2, 3));
        }
        // Forking at another point is a divergence.
        let store: Arc<dyn Store> = InMemory::new();
        let code = async |session: Session, back: u64| {
            let session = say(session, &Log::default(), "one").await?;
            let mut point = session.head().point();
            point.seq -= back;
            let mut session = say(session, &Log::default(), "two").await?;
            let fork = say(session.fork_at(point, "back").await?, &Log::default(), "there").await?;
            drop(fork);
            match session.ask("Further?").await {
                Ok(_) => Ok(session),
                Err(error) => Err(error.with_sessions(vec![session])),
            }
        };
        let (near, far) = (async |session| code(session, 0).await, async |session| code(session, 1).await);
        assert!(store.run(KEY, Actor::program("test"), &near, input).await.is_err());
        let error = store.run(KEY, Actor::program("test"), &far, input).await.unwrap_err();
        let ErrorKind::Diverged(diverged) = error.kind() else { panic!("{error}") };
        assert!(diverged.recorded.contains("a fork at") && diverged.now.contains("a fork at"), "{diverged}");
    });
}

#[test]
fn detaching_inside_a_run_fails() {
    pollster::block_on(async {
        let store: Arc<dyn Store> = InMemory::new();
        let code = async |session: Session| {
            let error = session.detach("a copy").await.unwrap_err();
            assert_eq!(error.code(), "detach-in-run");
            say(session, &Log::default(), "done").await
        };
        let session = store.run(KEY, Actor::program("test"), &code, input).await.unwrap();
        assert!(session.detach("a copy").await.is_ok(), "the run is over");
    });
}

#[test]
fn a_step_that_drops_its_session_does_not_miscount_forks() {
    pollster::block_on(async {
        let store: Arc<dyn Store> = InMemory::new();
        let code = async |mut session: Session| {
            session.provide(7_u32);
            let one = say(session.fork("one"), &Log::default(), "first").await?;
            let dropping = async |session: Session| -> Result<Session> {
                drop(session);
                Err(ErrorKind::Workflow("no luck".into()).into())
            };
            let error = session.step("luckless", dropping).await.unwrap_err();
            let session = error.into_sessions().remove(0);
            assert_eq!(*session.resources().get::<u32>().unwrap(), 7, "what it carries is kept");
            let two = say(session.fork("two"), &Log::default(), "second").await?;
            let mut session = session.merge([one, two], How::Append).await?;
            match session.ask("Further?").await {
                Ok(_) => Ok(session),
                Err(error) => Err(error.with_sessions(vec![session])),
            }
        };
        for _ in 0..3 {
            let waiting = store.run(KEY, Actor::program("test"), &code, input).await.unwrap_err();
            let ErrorKind::Waiting(id) = *waiting.kind() else { panic!("{waiting}") };
            drop(waiting);
            assert_eq!(forks_of(&store, id).await.len(), 2);
        }
    });
}

#[test]
fn many_records_of_a_step_are_read_ahead() {
    pollster::block_on(async {
        let store: Arc<dyn Store> = InMemory::new();
        let code = async |mut session: Session| {
            session.enter("a lot")?;
            for number in 0..700 {
                session.user(format!("number {number}"))?;
            }
            session.leave(Outcome::Done)?;
            match session.ask("Further?").await {
                Ok(_) => Ok(session),
                Err(error) => Err(error.with_sessions(vec![session])),
            }
        };
        for _ in 0..2 {
            let waiting = store.run(KEY, Actor::program("test"), &code, input).await.unwrap_err();
            assert!(matches!(waiting.kind(), ErrorKind::Waiting(_)), "{waiting}");
        }
    });
}

/// Forks directly before the divergence, work on them, and merges of branches that the abandoned session has merged.
async fn forking_early(session: Session, log: &Log, words: Option<&'static str>, wait: bool) -> Result<Session> {
    let branch = say(session.fork("a branch"), log, "branch work").await?;
    let session = match words {
        Some(words) => say(session, log, words).await?,
        None => session,
    };
    let session = session.merge([branch], How::Append).await?;
    let mut session = say(session, log, "after").await?;
    match wait {
        false => Ok(session),
        true => match session.ask("Further?").await {
            Ok(_) => Ok(session),
            Err(error) => Err(error.with_sessions(vec![session])),
        },
    }
}

#[test]
fn branches_from_before_the_divergence_are_found_and_merged_again() {
    pollster::block_on(async {
        let (mut commits, mut died) = (0, true);
        while died {
            died = false;
            for moment in [CrashPoint::Before, CrashPoint::After] {
                let store: Arc<dyn Store> = InMemory::new();
                let old = async |session: Session| forking_early(session, &Log::default(), None, true).await;
                let waiting = store.run(KEY, Actor::program("test"), &old, input).await.unwrap_err();
                let ErrorKind::Waiting(original) = *waiting.kind() else { panic!("{waiting}") };
                drop(waiting);
                let log = Log::default();
                let new = async |session: Session| forking_early(session, &log, Some("look first"), true).await;
                let mortal = CrashingStore::new(store.clone(), commits, moment);
                let dying: Arc<dyn Store> = mortal.clone();
                if let Ok(session) = dying.begin_run(KEY, forking(), input).await {
                    drop(session.execute(&new).await);
                }
                died |= mortal.is_dead();
                let mut fork = None;
                for by_key in [true, false, true, false] {
                    let session = match fork.filter(|_| !by_key) {
                        Some(fork) => store.resume(fork, Actor::program("test")).await.unwrap(),
                        None => store.begin_run(KEY, forking(), input).await.unwrap(),
                    };
                    let error = session.execute(&new).await.unwrap_err();
                    let ErrorKind::Waiting(id) = *error.kind() else { panic!("killed {moment:?} {commits}: {error}") };
                    assert!(fork.is_none_or(|fork| fork == id));
                    fork = Some(id);
                }
                let ran = log.lock().unwrap().clone();
                assert!(!ran.contains(&"branch work".into()), "killed {moment:?} {commits}: {ran:?}");
                let after = ran.iter().filter(|words| *words == "after").count();
                assert!((1..=2).contains(&after), "{ran:?}");
                assert_eq!(forks_of(&store, original).await.len(), 2, "the branch, and the continuation");
                let again =
                    store.resume(original, Actor::program("test")).await.unwrap().execute(&old).await.unwrap_err();
                assert!(matches!(*again.kind(), ErrorKind::Waiting(id) if id == original), "{again}");
            }
            commits += 1;
        }
        assert!(commits > 4);
    });
}

#[test]
fn diverging_branches_continue_in_one_resume() {
    pollster::block_on(async {
        let store: Arc<dyn Store> = InMemory::new();
        let code = async |session: Session, log: &Log, words: [&'static str; 2]| {
            let (one, other) = (session.fork("one"), session.fork("other"));
            let one = say(one, log, words[0]).await?;
            let other = say(other, log, words[1]).await?;
            let mut session = session.merge([one, other], How::Append).await?;
            match session.ask("Further?").await {
                Ok(_) => Ok(session),
                Err(error) => Err(error.with_sessions(vec![session])),
            }
        };
        let log = Log::default();
        let old = async |session: Session| code(session, &log, ["a", "b"]).await;
        let new = async |session: Session| code(session, &log, ["c", "d"]).await;
        let waiting = store.run(KEY, Actor::program("test"), &old, input).await.unwrap_err();
        let ErrorKind::Waiting(original) = *waiting.kind() else { panic!("{waiting}") };
        drop(waiting);
        let mut fork = None;
        for round in 0..4 {
            let session = match fork.filter(|_| round % 2 == 1) {
                Some(fork) => store.resume(fork, Actor::program("test")).await.unwrap(),
                None => store.begin_run(KEY, forking(), input).await.unwrap(),
            };
            let error = session.execute(&new).await.unwrap_err();
            let ErrorKind::Waiting(id) = *error.kind() else { panic!("round {round}: {error}") };
            assert!(id != original && fork.is_none_or(|fork| fork == id), "round {round}");
            fork = Some(id);
        }
        let waiting = store.resume(original, Actor::program("test")).await.unwrap().execute(&old).await.unwrap_err();
        assert!(matches!(*waiting.kind(), ErrorKind::Waiting(id) if id == original), "{waiting}");
        assert_eq!(*log.lock().unwrap(), ["a", "b", "c", "d"], "each once");
    });
}

#[test]
fn forks_are_counted_from_zero_on_a_continuation() {
    pollster::block_on(async {
        let store: Arc<dyn Store> = InMemory::new();
        let original = stopped_run(&store).await;
        let log = Log::default();
        let code = async |session: Session| {
            let session = say(session, &log, "a plan").await?;
            drop(session.fork("nothing"));
            let dropping = async |session: Session| -> Result<Session> {
                drop(say(session, &log, "the new way").await?);
                Err(ErrorKind::Workflow("no luck".into()).into())
            };
            let session = session.step("go", dropping).await.unwrap_err().into_sessions().remove(0);
            let branch = say(session.fork("again"), &log, "branch work").await?;
            let mut session = session.merge([branch], How::Append).await?;
            match session.ask("Further?").await {
                Ok(_) => Ok(session),
                Err(error) => Err(error.with_sessions(vec![session])),
            }
        };
        for _ in 0..3 {
            let session = store.begin_run(KEY, forking(), input).await.unwrap();
            let error = session.execute(&code).await.unwrap_err();
            assert!(matches!(*error.kind(), ErrorKind::Waiting(id) if id != original), "{error}");
        }
        assert_eq!(log.lock().unwrap().iter().filter(|words| *words == "branch work").count(), 1);
    });
}

#[test]
fn every_session_of_a_run_resumes_the_whole_run() {
    pollster::block_on(async {
        let store: Arc<dyn Store> = InMemory::new();
        let session = stopped_run(&store).await;
        let ancestry = rath_core::Ancestry::of(&store, session).await.unwrap();
        assert_eq!(ancestry.root, session);
        let log = Log::default();
        let code = async |session: Session| changed(session, &log).await;
        let fork = store.begin_run(KEY, forking(), input).await.unwrap().execute(&code).await.unwrap();
        for (branch, _) in forks_of(&store, fork.id()).await {
            assert_eq!(rath_core::Ancestry::of(&store, branch).await.unwrap().root, session);
        }
    });
}

/// A finished step that left a branch open, and a step that waits on its second branch.
async fn explore(session: Session, log: &Log) -> Result<Session> {
    let leaving = async |session: Session| {
        let open = session.fork("left open");
        drop(say(open, log, "explored").await?);
        Ok(session)
    };
    let session = session.step("explore", leaving).await?;
    let waiting = async |session: Session| {
        let (one, two) = (session.fork("one"), session.fork("two"));
        let one = one
            .step("wait", async |mut session: Session| match session.ask("Further?").await {
                Ok(_) => Ok(session),
                Err(error) => Err(error.with_sessions(vec![session])),
            })
            .await;
        let two = say(two, log, "second").await;
        session.merge([one?, two?], How::Append).await
    };
    session.step("go", waiting).await
}

#[test]
fn a_branch_is_opened_when_the_program_reaches_it() {
    pollster::block_on(async {
        let store: Arc<dyn Store> = InMemory::new();
        let log = Log::default();
        let code = async |session: Session| explore(session, &log).await;
        let waiting = store.run(KEY, Actor::program("test"), &code, input).await.unwrap_err();
        let ErrorKind::Waiting(asking) = *waiting.kind() else { panic!("{waiting}") };
        drop(waiting);
        let root = View::of(&store, asking, None).await.unwrap().lineage().await.unwrap()[0].session;
        let branches = forks_of(&store, root).await;
        let branch = |why: &str| branches.iter().find(|(_, forked)| forked.why == why).unwrap().0;
        // Branches of a finished step are not opened, so another process may have them open.
        let held = store.open(branch("left open"), Actor::program("another")).await.unwrap();
        // A locked branch of an open step does not matter until the program uses it.
        let second = store.open(branch("two"), Actor::program("another")).await.unwrap();
        let reading = async |session: Session| {
            let within = async |session: Session| {
                let (one, two) = (session.fork("one"), session.fork("two"));
                assert_eq!((one.id(), one.origin()), (branch("one"), Some(session.head())));
                let error = say(two, &log, "second").await.unwrap_err();
                assert_eq!(error.code(), "session-held");
                Err::<Session, _>(error.with_sessions(vec![one, session]))
            };
            let session = session.step("explore", async |session| Ok(session)).await?;
            session.step("go", within).await
        };
        let error = store.run(KEY, Actor::program("test"), &reading, input).await.unwrap_err();
        assert_eq!(error.code(), "session-held", "{error}");
        assert!(error.leaves_the_run_open());
        drop(error);
        drop(second);
        let waiting = store.run(KEY, Actor::program("test"), &code, input).await.unwrap_err();
        assert!(matches!(*waiting.kind(), ErrorKind::Waiting(id) if id == asking), "{waiting}");
        drop((waiting, held));
        assert_eq!(*log.lock().unwrap(), ["explored", "second"], "each once");
    });
}

#[test]
fn a_fork_at_a_record_of_a_merged_branch_is_found_again() {
    pollster::block_on(async {
        let store: Arc<dyn Store> = InMemory::new();
        let log = Log::default();
        let code = async |session: Session| {
            let mut early = None;
            let first = async |session: Session| {
                let branch = say(session.fork("a branch"), &log, "branch work").await?;
                let point = branch.head().point();
                let session = session.merge([branch], How::Append).await?;
                Ok((session, (point.session.to_string(), point.seq)))
            };
            let (session, (line, seq)) = session.step_value("first", first).await?;
            early.get_or_insert(rath_core::Point { session: line.parse().unwrap(), seq });
            let again = session.fork_at(early.unwrap(), "once more").await?;
            let again = say(again, &log, "once more").await?;
            let mut session = session.merge([again], How::Append).await?;
            match session.ask("Further?").await {
                Ok(_) => Ok(session),
                Err(error) => Err(error.with_sessions(vec![session])),
            }
        };
        for _ in 0..3 {
            let waiting = store.run(KEY, Actor::program("test"), &code, input).await.unwrap_err();
            assert!(matches!(waiting.kind(), ErrorKind::Waiting(_)), "{waiting}");
        }
        assert_eq!(*log.lock().unwrap(), ["branch work", "once more"], "each once");
    });
}
