//! Resumes a run that an earlier version started and did not finish: it must have the same steps, keys and merges.
//!
//! `tests/begun-run/` is such a store, written by commit 7edc415.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rath_core::body::Verdict;
use rath_core::store::{Post, PostContent};
use rath_core::{Actor, Error, ErrorKind, How, Result, Session, SessionId, Store, View};
use rath_store::Embedded;
use rath_testkit::copy_dir;

fn begun_run() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/begun-run")
}

type Log = Arc<Mutex<Vec<String>>>;

async fn say(session: Session, log: &Log, words: &'static str) -> Result<Session> {
    let log = log.clone();
    let work = async move |mut session: Session| {
        let key = session.state().steps.last().unwrap().key;
        log.lock().unwrap().push(format!("{words} {key:?}"));
        session.assistant(words)?;
        Ok(session)
    };
    session.step("worker", work).await
}

async fn ask(mut session: Session, log: &Log) -> Result<Session> {
    let key = session.state().steps.last().unwrap().key;
    log.lock().unwrap().push(format!("ask {key:?}"));
    match session.ask("Further?").await {
        Ok(_) => Ok(session),
        Err(error) => Err(error.with_sessions(vec![session])),
    }
}

/// Has branches that end in another order than they were forked, a caught failure, and open branches.
async fn workflow(session: Session, log: &Log) -> Result<Session> {
    let (one, two) = (session.fork("one"), session.fork("two"));
    let two = say(two, log, "second").await?;
    let one = say(one, log, "first").await?;
    let session = session.merge([two, one], How::Append).await?;
    let failing = async |session: Session| -> Result<Session> { Err(Error::workflow("no luck", session)) };
    let error = session.step("luckless", failing).await.unwrap_err();
    log.lock().unwrap().push(format!("{}: {error}", error.code()));
    let session = error.into_sessions().remove(0);
    let (three, four) = (session.fork("three"), session.fork("four"));
    let three = say(three, log, "third").await?;
    let four = four.step("worker", async |session: Session| ask(session, log).await).await?;
    session.merge([four, three], How::Append).await
}

async fn input(session: &mut Session) -> Result<()> {
    session.user("Find the way.").map(|_| ())
}

/// Answers the open question of a run.
async fn answer(store: &Arc<dyn Store>, id: SessionId) {
    let ask = View::of(store, id, None).await.unwrap().pending().asks[0].clone();
    let what =
        PostContent::Answer { asked: ask.record, shown_digest: ask.shown_digest, verdict: Verdict::Yes, why: None };
    store.post(Post::new(id, Actor::person("ada"), what)).await.unwrap();
}

#[test]
fn a_run_of_an_earlier_version_resumes_with_its_keys_and_merges() {
    pollster::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        copy_dir(&begun_run(), dir.path());
        let store: Arc<dyn Store> = Embedded::open(dir.path()).unwrap();
        let log = Log::default();
        let code = async |session: Session| workflow(session, &log).await;
        let error = store.run("the way", Actor::program("test"), &code, input).await.unwrap_err();
        let ErrorKind::Waiting(id) = *error.kind() else { panic!("{error}") };
        drop(error);
        answer(&store, id).await;
        let session = store.run("the way", Actor::program("test"), &code, input).await.unwrap();
        // The keys are those of the earlier version, and finished steps are not run again.
        let (failed, asked) = ("workflow-failed: no luck", "ask ae6ee8c9db59");
        assert_eq!(*log.lock().unwrap(), [failed, asked, failed, asked]);
        let said: Vec<_> = session.context().await.unwrap().iter().map(|message| message.body.to_string()).collect();
        let place = |words: &str| said.iter().position(|said| said == words).unwrap();
        assert!(place("second") < place("first"), "the recorded merge order changed: {said:?}");
        drop(session);
        drop(store);
        let report = Embedded::open_as(dir.path(), "test").unwrap().verify(None, &mut |_, _| {}).unwrap();
        assert!(report.is_valid(), "{:?}", report.findings);
    });
}
