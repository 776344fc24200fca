//! Finished runs that are continued with a new message.

use std::sync::{Arc, Mutex};

use rath_core::{
    Actor, Ancestry, Blob, ErrorKind, How, InMemory, MessageBody, OnDivergence, Result, RunOptions, Session, SessionId,
    Store,
};
use rath_testkit::{CrashPoint, CrashingStore};

/// The work that was really executed, in order.
type Log = Arc<Mutex<Vec<String>>>;

const KEY: &str = "a talk";

fn options(program: &str) -> RunOptions {
    let program = Some(Blob::new(program.as_bytes().to_vec(), "text/plain"));
    RunOptions { program, ..Actor::program("test").into() }
}

/// Appends these words in a step and merges a branch that does the same.
async fn say(session: Session, log: &Log, words: &'static str) -> Result<Session> {
    let log = log.clone();
    let work = async move |mut session: Session| {
        log.lock().unwrap().push(words.into());
        let branch = session.fork("a second opinion");
        let branch = branch.step("echo", async |mut branch: Session| {
            branch.assistant(format!("{words}, too"))?;
            Ok(branch)
        });
        let branch = branch.await?;
        session.assistant(words)?;
        session.merge([branch], How::Append).await
    };
    session.step("say", work).await
}

async fn finished_run(store: &Arc<dyn Store>, log: &Log) -> Result<Session> {
    let input = async |session: &mut Session| session.user("Hello.").map(|_| ());
    let session = store.begin_run(KEY, options("first"), input).await?;
    session.execute(&async |session: Session| say(session, log, "good morning").await).await
}

async fn continued_run(store: &Arc<dyn Store>, log: &Log, id: SessionId) -> Result<Session> {
    let mut session = store.continue_run(id, options("second")).await?;
    session.user("And now?")?;
    session.execute(&async |session: Session| say(session, log, "good night").await).await
}

async fn words(session: &Session) -> Vec<String> {
    let words = |said: &MessageBody| match said {
        MessageBody::Marker { why, .. } => format!("branch {}", why.clone().unwrap_or_default()),
        said => said.to_string(),
    };
    session.context().await.unwrap().iter().map(|message| words(&message.body)).collect()
}

#[test]
fn a_killed_continuation_of_a_run_is_resumed() {
    pollster::block_on(async {
        let store = InMemory::new();
        let session = finished_run(&store, &Log::default()).await.unwrap();
        let id = session.id();
        drop(session);
        let wanted = words(&continued_run(&store, &Log::default(), id).await.unwrap()).await;
        assert!(wanted.iter().any(|words| words == "good night"), "{wanted:?}");

        let mut resumed = 0;
        for commits in 0.. {
            let mut died = false;
            for moment in [CrashPoint::Before, CrashPoint::After] {
                let (store, log) = (InMemory::new(), Log::default());
                let id = finished_run(&store, &log).await.unwrap().id();
                let mortal = CrashingStore::new(store.clone(), commits, moment);
                let dying: Arc<dyn Store> = mortal.clone();
                drop(continued_run(&dying, &log, id).await);
                died |= mortal.is_dead();
                let program = Ancestry::of(&store, id).await.unwrap().program.unwrap();
                let session = match program == options("second").program.unwrap().reference {
                    true => {
                        resumed += 1;
                        let session = store.resume(id, options("second")).await.unwrap();
                        session.execute(&async |session: Session| say(session, &log, "good night").await).await.unwrap()
                    }
                    // Killed before any record of the continuation was stored.
                    false => continued_run(&store, &log, id).await.unwrap(),
                };
                assert_eq!(words(&session).await, wanted, "killed {moment:?} commit {commits}");
                let mornings = log.lock().unwrap().iter().filter(|words| *words == "good morning").count();
                assert_eq!(mornings, 1, "what was over is not run again");
                assert!(session.is_live() && session.pending().is_empty());
            }
            if !died {
                break;
            }
        }
        assert!(resumed > 4, "{resumed}");
    });
}

#[test]
fn open_work_is_resumed_before_a_run_is_continued() {
    pollster::block_on(async {
        let store = InMemory::new();
        let asks = async |mut session: Session| match session.ask("Which way?").await {
            Ok(_) => Ok(session),
            Err(error) => Err(error.with_sessions(vec![session])),
        };
        let input = async |session: &mut Session| session.user("Hello.").map(|_| ());
        let error = store.run(KEY, Actor::program("test"), &asks, input).await.unwrap_err();
        let ErrorKind::Waiting(id) = *error.kind() else { panic!("{error}") };
        drop(error);
        let error = store.continue_run(id, options("second")).await.map(drop).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Open { .. }), "{error}");
    });
}

#[test]
fn a_continued_run_that_diverges_resumes_on_its_fork() {
    pollster::block_on(async {
        let (store, log) = (InMemory::new(), Log::default());
        let id = finished_run(&store, &log).await.unwrap().id();
        let mut session = store.continue_run(id, options("second")).await.unwrap();
        session.user("And now?").unwrap();
        let asks = async |session: Session| {
            let mut session = say(session, &log, "good evening").await?;
            match session.ask("Further?").await {
                Ok(_) => Ok(session),
                Err(error) => Err(error.with_sessions(vec![session])),
            }
        };
        let error = session.execute(&asks).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Waiting(_)), "{error}");
        drop(error);

        let forking = RunOptions { on_divergence: OnDivergence::Fork, ..options("third") };
        let session = store.resume(id, forking).await.unwrap();
        let other = async |session: Session| {
            let session = say(session, &log, "good evening").await?;
            say(session, &log, "good bye").await
        };
        let session = session.execute(&other).await.unwrap();
        let (line, wanted) = (session.id(), words(&session).await);
        assert_ne!(line, id);
        drop(session);
        let ran = log.lock().unwrap().clone();
        assert_eq!(ran, ["good morning", "good evening", "good bye"]);

        let session = store.resume(line, options("third")).await.unwrap();
        let session = session.execute(&other).await.unwrap();
        assert_eq!((session.id(), words(&session).await), (line, wanted));
        drop(session);
        let session = continued_run(&store, &log, line).await.unwrap();
        assert_eq!(session.id(), line);
        drop(session);
        let program = Ancestry::of(&store, line).await.unwrap().program;
        assert_eq!(program, options("second").program.map(|program| program.reference));
        let session = store.resume(line, options("second")).await.unwrap();
        let session = session.execute(&async |session: Session| say(session, &log, "good night").await).await.unwrap();
        assert_eq!(words(&session).await.iter().filter(|words| *words == "good night").count(), 1);
        assert_eq!(log.lock().unwrap().len(), ran.len() + 1, "nothing was run again");
    });
}
