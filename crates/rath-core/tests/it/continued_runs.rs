//! Runs that were over, are told more, and go on.

use std::sync::{Arc, Mutex};

use rath_core::{
    Actor, Ancestry, Blob, Conditions, ErrorKind, How, Memory, OnDivergence, Result, Said, Session, SessionId, Store,
};
use rath_testkit::{Moment, Mortal};

/// What was really run, in order.
type Log = Arc<Mutex<Vec<String>>>;

const KEY: &str = "a talk";

fn conditions(program: &str) -> Conditions {
    let program = Some(Blob::new(program.as_bytes().to_vec(), "text/plain"));
    Conditions { program, ..Actor::program("test").into() }
}

/// Says these words in a step, and takes in a branch that says them too.
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

async fn begun(store: &Arc<dyn Store>, log: &Log) -> Result<Session> {
    let input = async |session: &mut Session| session.user("Hello.").map(|_| ());
    let session = store.begin_run(KEY, conditions("first"), input).await?;
    session.go_on(&async |session: Session| say(session, log, "good morning").await).await
}

async fn continued(store: &Arc<dyn Store>, log: &Log, id: SessionId) -> Result<Session> {
    let mut session = store.continue_run(id, conditions("second")).await?;
    session.user("And now?")?;
    session.go_on(&async |session: Session| say(session, log, "good night").await).await
}

async fn words(session: &Session) -> Vec<String> {
    let words = |said: &Said| match said {
        Said::Marker { why, .. } => format!("branch {}", why.clone().unwrap_or_default()),
        said => said.to_string(),
    };
    session.context().await.unwrap().iter().map(|message| words(&message.said)).collect()
}

#[test]
fn a_run_that_goes_on_and_is_killed_is_resumed_where_it_went_on() {
    pollster::block_on(async {
        let store = Memory::new();
        let session = begun(&store, &Log::default()).await.unwrap();
        let id = session.id();
        drop(session);
        let wanted = words(&continued(&store, &Log::default(), id).await.unwrap()).await;
        assert!(wanted.iter().any(|words| words == "good night"), "{wanted:?}");

        let mut resumed = 0;
        for commits in 0.. {
            let mut died = false;
            for moment in [Moment::Before, Moment::After] {
                let (store, log) = (Memory::new(), Log::default());
                let id = begun(&store, &log).await.unwrap().id();
                let mortal = Mortal::new(store.clone(), commits, moment);
                let dying: Arc<dyn Store> = mortal.clone();
                drop(continued(&dying, &log, id).await);
                died |= mortal.is_dead();
                let program = Ancestry::of(&store, id).await.unwrap().program.unwrap();
                let session = match program == conditions("second").program.unwrap().reference {
                    true => {
                        resumed += 1;
                        let session = store.resume(id, conditions("second")).await.unwrap();
                        session.go_on(&async |session: Session| say(session, &log, "good night").await).await.unwrap()
                    }
                    // It was killed before anything of it was stored.
                    false => continued(&store, &log, id).await.unwrap(),
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
fn what_is_open_is_resumed_before_a_run_is_told_more() {
    pollster::block_on(async {
        let store = Memory::new();
        let asks = async |mut session: Session| match session.ask("Which way?").await {
            Ok(_) => Ok(session),
            Err(error) => Err(error.with_sessions(vec![session])),
        };
        let input = async |session: &mut Session| session.user("Hello.").map(|_| ());
        let error = store.run(KEY, Actor::program("test"), &asks, input).await.unwrap_err();
        let ErrorKind::Waiting(id) = *error.kind() else { panic!("{error}") };
        drop(error);
        let error = store.continue_run(id, conditions("second")).await.map(drop).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Open { .. }), "{error}");
    });
}

#[test]
fn a_run_that_went_on_diverges_on_a_fork_that_is_found_again() {
    pollster::block_on(async {
        let (store, log) = (Memory::new(), Log::default());
        let id = begun(&store, &log).await.unwrap().id();
        let mut session = store.continue_run(id, conditions("second")).await.unwrap();
        session.user("And now?").unwrap();
        let asks = async |session: Session| {
            let mut session = say(session, &log, "good evening").await?;
            match session.ask("Further?").await {
                Ok(_) => Ok(session),
                Err(error) => Err(error.with_sessions(vec![session])),
            }
        };
        let error = session.go_on(&asks).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Waiting(_)), "{error}");
        drop(error);

        let forking = Conditions { on_divergence: OnDivergence::Fork, ..conditions("third") };
        let session = store.resume(id, forking).await.unwrap();
        let other = async |session: Session| {
            let session = say(session, &log, "good evening").await?;
            say(session, &log, "good bye").await
        };
        let session = session.go_on(&other).await.unwrap();
        let (line, wanted) = (session.id(), words(&session).await);
        assert_ne!(line, id);
        drop(session);
        let ran = log.lock().unwrap().clone();
        assert_eq!(ran, ["good morning", "good evening", "good bye"]);

        let session = store.resume(line, conditions("third")).await.unwrap();
        let session = session.go_on(&other).await.unwrap();
        assert_eq!((session.id(), words(&session).await), (line, wanted));
        drop(session);
        let session = continued(&store, &log, line).await.unwrap();
        assert_eq!(session.id(), line);
        drop(session);
        let program = Ancestry::of(&store, line).await.unwrap().program;
        assert_eq!(program, conditions("second").program.map(|program| program.reference));
        let session = store.resume(line, conditions("second")).await.unwrap();
        let session = session.go_on(&async |session: Session| say(session, &log, "good night").await).await.unwrap();
        assert_eq!(words(&session).await.iter().filter(|words| *words == "good night").count(), 1);
        assert_eq!(log.lock().unwrap().len(), ran.len() + 1, "nothing was run again");
    });
}
