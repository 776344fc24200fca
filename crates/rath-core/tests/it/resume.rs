//! Runs that are killed at every commit and resumed.

use std::sync::{Arc, Mutex};

use rath_core::body::{Outcome, StepEntered, Verdict};
use rath_core::store::{Post, PostContent, Scan, SessionFilter};
use rath_core::{
    Actor, Error, ErrorKind, How, InMemory, Kind, MessageBody, OnDivergence, Result, RunOptions, Session, Store, View,
    Workflow,
};
use rath_testkit::{CrashPoint, CrashingStore};

/// The work that was really executed, in order.
type Log = Arc<Mutex<Vec<String>>>;

fn note(log: &Log, what: &str) {
    log.lock().unwrap().push(what.into());
}

async fn say(session: Session, log: Log, words: &'static str) -> Result<Session> {
    session
        .step(words, async move |mut session: Session| {
            note(&log, words);
            let done = match session.assistant(words) {
                Ok(_) => session.publish().await,
                Err(error) => Err(error),
            };
            done.map(|()| session)
        })
        .await
}

/// Steps, nested steps, forks, a merge, samples and a question.
async fn plan_and_do(session: Session, log: Log, version: &str) -> Result<Session> {
    let mut session = say(session, log.clone(), "a plan").await?;
    let number = session.random()?;
    session.user(format!("number {number}"))?;
    let (left, right) = (session.fork("left"), session.fork("right"));
    let left = say(left, log.clone(), "to the left").await?;
    let inner = log.clone();
    let right = right
        .step("look", async move |mut session: Session| {
            session.user("look around")?;
            let session = say(session, inner.clone(), "nothing here").await?;
            say(session, inner, "to the right").await
        })
        .await?;
    let mut session = session.merge([left, right], How::Append).await?;
    let verdict = match session.ask("Which way?").await {
        Ok(verdict) => verdict,
        Err(error) => return Err(error.with_sessions(vec![session])),
    };
    let Verdict::Text(answer) = verdict else { panic!("a text was answered") };
    session.user(format!("{answer}, then{version}"))?;
    say(session, log, "arrived").await
}

fn workflow(log: &Log, version: &'static str) -> impl Workflow + use<> {
    let log = log.clone();
    move |session: Session| plan_and_do(session, log.clone(), version)
}

async fn input(session: &mut Session) -> Result<()> {
    session.user("Find the way.")?;
    session.publish().await?;
    session.set_title("a way")?;
    Ok(())
}

/// Resumes the run until it is finished, answering its questions.
async fn run_to_end(store: &Arc<dyn Store>, log: &Log) -> Session {
    loop {
        match store.run("the way", Actor::program("test"), &workflow(log, ""), input).await {
            Ok(session) => return session,
            Err(error) => match error.kind() {
                ErrorKind::Waiting(id) => {
                    let id = *id;
                    drop(error);
                    answer(store, id).await;
                }
                _ => panic!("{error}"),
            },
        }
    }
}

async fn answer(store: &Arc<dyn Store>, id: rath_core::SessionId) {
    let ask = View::of(store, id, None).await.unwrap().pending().asks[0].clone();
    let verdict = Verdict::Text("left".into());
    let what = PostContent::Answer { asked: ask.record, shown_digest: ask.shown_digest, verdict, why: None };
    store.post(Post::new(id, Actor::person("ada"), what)).await.unwrap();
}

/// The session's messages without what differs between runs.
async fn transcript(session: &Session) -> Vec<String> {
    let context = session.context().await.unwrap();
    let words = |said: &MessageBody| match said {
        MessageBody::Marker { why, .. } => format!("branch {}", why.clone().unwrap_or_default()),
        MessageBody::User(user) if user.text.to_string().starts_with("number") => "number".into(),
        said => format!("{} {said}", said.role()),
    };
    context.iter().map(|message| words(&message.body)).collect()
}

/// Checks that no step of the session or its branches was entered again after it finished.
async fn check_steps(store: &Arc<dyn Store>, session: &Session) {
    let mut lines = vec![session.id()];
    let mut at = 0;
    while let Some(line) = lines.get(at).copied() {
        at += 1;
        lines.extend(store.sessions(SessionFilter::ChildrenOf(line).into()).await.unwrap().iter().map(|row| row.id));
        let scan = Scan::session(line, 0, u64::MAX - 1).kinds(&[Kind::StepEntered, Kind::Forked]);
        let records = store.scan(scan).await.unwrap().records;
        let names: Vec<_> = records.iter().filter_map(|record| record.body::<StepEntered>().ok()).collect();
        let mut once: Vec<_> = names.iter().map(|step| &step.name).collect();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), names.len(), "a step was entered twice on {line}: {names:?}");
    }
    assert_eq!(lines.len(), 3, "every fork was made once");
}

#[test]
fn a_run_that_is_killed_at_any_commit_ends_like_one_that_was_not() {
    pollster::block_on(async {
        let store = InMemory::new();
        let log = Log::default();
        let session = run_to_end(&store, &log).await;
        let wanted = transcript(&session).await;
        assert_eq!(wanted.last().map(String::as_str), Some("assistant arrived"));
        check_steps(&store, &session).await;
        drop(session);

        let (mut commits, mut killed) = (0, 0);
        loop {
            let mut died = false;
            for moment in [CrashPoint::Before, CrashPoint::After] {
                let store = InMemory::new();
                let mortal = CrashingStore::new(store.clone(), commits, moment);
                let log = Log::default();
                let dying: Arc<dyn Store> = mortal.clone();
                let first = dying.run("the way", Actor::program("test"), &workflow(&log, ""), input).await;
                drop(first);
                died |= mortal.is_dead();
                killed += 1;
                let session = run_to_end(&store, &log).await;
                assert_eq!(transcript(&session).await, wanted, "killed {moment:?} commit {commits}");
                check_steps(&store, &session).await;
            }
            if !died {
                break;
            }
            commits += 1;
        }
        assert!(commits > 8 && killed > 16, "{commits} commits, {killed} kills");
    });
}

#[test]
fn a_finished_run_is_skipped() {
    pollster::block_on(async {
        let store = InMemory::new();
        let log = Log::default();
        let wanted = transcript(&run_to_end(&store, &log).await).await;
        let ran = log.lock().unwrap().len();
        let session = run_to_end(&store, &log).await;
        assert_eq!(transcript(&session).await, wanted);
        assert_eq!(log.lock().unwrap().len(), ran, "nothing was run again");
        assert!(session.is_live() && session.pending().is_empty());
    });
}

/// The session of a run that waits for its answer.
async fn waiting(store: &Arc<dyn Store>) -> rath_core::SessionId {
    let log = Log::default();
    let error = store.run("the way", Actor::program("test"), &workflow(&log, ""), input).await.unwrap_err();
    let ErrorKind::Waiting(id) = error.kind() else { panic!("{error}") };
    *id
}

#[test]
fn changed_code_stops_with_both_sides() {
    pollster::block_on(async {
        let store = InMemory::new();
        let id = waiting(&store).await;
        let changed = async |session: Session| say(session, Log::default(), "another plan").await;
        let error = store.run("the way", Actor::program("test"), &changed, input).await.unwrap_err();
        let ErrorKind::Diverged(diverged) = error.kind() else { panic!("{error}") };
        assert_eq!(diverged.point.session, id);
        assert!(diverged.recorded.contains("a plan") && diverged.now.contains("another plan"), "{diverged}");
        drop(error);
        // The records are unchanged, and the original code can still resume the run.
        answer(&store, id).await;
        let session = run_to_end(&store, &Log::default()).await;
        assert_eq!(session.text().await.unwrap().as_deref(), Some("arrived"));
    });
}

#[test]
fn changed_words_between_steps_are_noticed() {
    pollster::block_on(async {
        let store = InMemory::new();
        let id = waiting(&store).await;
        answer(&store, id).await;
        drop(run_to_end(&store, &Log::default()).await);
        // The finished run's steps are not compared, so a difference after the answer is not noticed there. Before the
        // end it is: the record with the words is compared with what the code appends now.
        let store = InMemory::new();
        let mortal = CrashingStore::new(store.clone(), u64::MAX, CrashPoint::Before);
        let id = waiting(&store).await;
        answer(&store, id).await;
        let dying: Arc<dyn Store> = mortal.clone();
        let log = Log::default();
        let stop = mortal.clone();
        let stopping = move |session: Session| {
            let (log, stop) = (log.clone(), stop.clone());
            async move {
                let session = plan_and_do(session, log, "").await?;
                stop.kill();
                Ok(session)
            }
        };
        assert!(dying.run("the way", Actor::program("test"), &stopping, input).await.is_err());
        let error = store
            .run("the way", Actor::program("test"), &workflow(&Log::default(), " slowly"), input)
            .await
            .unwrap_err();
        let ErrorKind::Diverged(diverged) = error.kind() else { panic!("{error}") };
        assert!(diverged.recorded.contains("left, then") && diverged.now.contains("slowly"), "{diverged}");
    });
}

fn forking() -> RunOptions {
    RunOptions { on_divergence: OnDivergence::Fork, ..Actor::program("test").into() }
}

#[test]
fn a_diverged_run_continues_on_a_fork_in_fork_mode() {
    pollster::block_on(async {
        let store = InMemory::new();
        let id = waiting(&store).await;
        let session = store.begin_run("the way", forking(), input).await.unwrap();
        let changed = async |session: Session| say(session, Log::default(), "another plan").await;
        let session = session.execute(&changed).await.unwrap();
        assert_ne!(session.id(), id);
        assert_eq!(session.origin().map(|origin| origin.session), Some(id));
        assert_eq!(session.text().await.unwrap().as_deref(), Some("another plan"));
        assert_eq!(View::of(&store, id, None).await.unwrap().pending().asks.len(), 1, "the old line waits as before");
    });
}

#[test]
fn a_failed_step_is_recorded_once_and_replayed() {
    pollster::block_on(async {
        let store = InMemory::new();
        let failing = async |session: Session| {
            let outer = async |session: Session| {
                let inner = async |session: Session| -> Result<Session> { Err(Error::workflow("no luck", session)) };
                session.step("inner", inner).await
            };
            session.step("outer", outer).await
        };
        let error = store.run("luckless", Actor::program("test"), &failing, input).await.unwrap_err();
        assert!(error.is_recorded() && error.to_string().contains("no luck"), "{error}");
        let session = &error.sessions()[0];
        assert!(session.pending().is_empty());
        let id = session.id();
        let kinds: Vec<_> = store.scan(Scan::session(id, 0, 99)).await.unwrap().records;
        let failed = kinds.iter().filter(|record| *record.kind() == Kind::Failed).count();
        let left: Vec<_> = kinds.iter().filter_map(|r| r.body::<rath_core::body::StepLeft>().ok()).collect();
        assert_eq!((failed, left.len()), (1, 3));
        assert!(left.iter().all(|left| left.outcome == Outcome::Failed));
        drop(error);
        let again = store.run("luckless", Actor::program("test"), &failing, input).await.unwrap_err();
        assert!(matches!(again.kind(), ErrorKind::Ended { outcome: Outcome::Failed, .. }), "{again}");
        assert!(again.to_string().contains("no luck"), "{again}");
    });
}

#[test]
fn a_session_that_the_code_dropped_is_found_in_the_store() {
    pollster::block_on(async {
        let store = InMemory::new();
        let careless = async |mut session: Session| {
            session.assistant("half done")?;
            session.publish().await?;
            session.append_json("no such kind!", "{}")?; // the session is dropped here
            Ok(session)
        };
        let error = store.run("careless", Actor::program("test"), &careless, input).await.unwrap_err();
        assert!(error.is_recorded(), "{error}");
        assert!(error.sessions()[0].pending().is_empty());
        assert_eq!(error.sessions()[0].text().await.unwrap().as_deref(), Some("half done"));
    });
}

#[test]
fn one_answer_answers_one_question() {
    pollster::block_on(async {
        let store = InMemory::new();
        let mut session = store.create(Actor::program("test"));
        let first = session.ask("May I?").await;
        assert!(matches!(first.unwrap_err().kind(), ErrorKind::Waiting(_)));
        let ask = session.pending().asks[0].clone();
        let id = session.id();
        let post = |verdict: Verdict, digest| {
            Post::new(
                id,
                Actor::person("ada"),
                PostContent::Answer { asked: ask.record, shown_digest: digest, verdict, why: None },
            )
        };
        // An answer with the digest of something else is ignored.
        store.post(post(Verdict::Yes, rath_core::Digest::of(b"something else"))).await.unwrap();
        assert!(matches!(session.ask("May I?").await.unwrap_err().kind(), ErrorKind::Waiting(_)));
        let yes = post(Verdict::Yes, ask.shown_digest);
        store.post(yes.clone()).await.unwrap();
        store.post(yes).await.unwrap();
        store.post(post(Verdict::No, ask.shown_digest)).await.unwrap();
        assert_eq!(session.ask("May I?").await.unwrap(), Verdict::Yes, "the first answer counts");
        let answers = store.scan(Scan::session(id, 0, 99).kinds(&[Kind::Answered])).await.unwrap().records;
        assert_eq!(answers.len(), 3, "every answer is kept, each once");
        assert!(answers.iter().all(|record| record.header().unwrap().actor == Actor::person("ada")));
        assert!(store.posts(id).await.unwrap().is_empty());
        let second = session.ask("And this?").await;
        assert!(matches!(second.unwrap_err().kind(), ErrorKind::Waiting(_)), "one answer is not two");
    });
}
