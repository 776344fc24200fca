//! A run with everything in it whose store dies at every commit, on a real store and in real sandboxes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rath::agent::Decision;
use rath::body::{About, Asked, Forked, OutsideEffect, StepEntered, StepLeft, ToolStarted, Verdict};
use rath::prelude::*;
use rath::store::{Post, Posted, Query, Scan, Which};
use rath::workshop::Place;
use rath::{ErrorKind, Kind, Said};
use rath_testkit::{Moment, Mortal};
use serde_json::json;
use tempfile::TempDir;

use crate::support::{isolates, workshop};

/// What lies outside the sandbox and cannot be taken back.
#[derive(Clone)]
pub(crate) struct Outside(pub(crate) PathBuf);

impl Outside {
    pub(crate) fn mails(&self) -> Vec<String> {
        fs::read_to_string(self.0.join("mails")).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    fn objects(&self) -> usize {
        fs::read_dir(self.0.join("objects")).map(Iterator::count).unwrap_or(0)
    }
}

/// Sends a mail.
#[tool(effect = "irreversible")]
async fn send(
    /// What it says.
    text: String,
    outside: State<Outside>,
) -> ToolOutcome {
    let mut mails = outside.mails();
    mails.push(text.clone());
    fs::write(outside.0.join("mails"), mails.join("\n") + "\n").unwrap();
    let effect = OutsideEffect {
        system: "mail".into(),
        object: text.clone(),
        before: None,
        after: Some("sent".into()),
        reversible: false,
    };
    ToolOutcome::done(format!("sent {text}")).with_effect(effect)
}

/// Puts an object somewhere. The key of the call makes it the same object every time.
#[tool(effect = "idempotent")]
async fn put(text: String, call: &Call, outside: State<Outside>) -> String {
    fs::create_dir_all(outside.0.join("objects")).unwrap();
    fs::write(outside.0.join("objects").join(call.key.to_string()), &text).unwrap();
    format!("put {text}")
}

/// Counts.
#[tool(effect = "pure")]
fn count(text: String) -> String {
    text.len().to_string()
}

fn planner() -> Agent {
    let script =
        Scripted::new("scripted").call("count", json!({ "text": "a plan" })).say("The plan is six letters long.");
    Agent::new("planner").model(script).tools(count)
}

fn writer(file: &str) -> Agent {
    let script = Scripted::new("scripted")
        .turn(
            Turn::new()
                .text("First I look.")
                .call("write", json!({ "path": file, "content": format!("{file}\n") }))
                .call("read", json!({ "path": "notes" }))
                .call("count", json!({ "text": "while others write" }))
                .call("shell", json!({ "command": format!("cat {file} >> log-{file}; cat log-{file}") })),
        )
        .call("shell", json!({ "command": format!("echo again >> log-{file}; cat log-{file}") }))
        .say("Written.");
    Agent::new("writer").model(script).tools((tools::coding(), count))
}

fn closer() -> Agent {
    let script = Scripted::new("scripted")
        .call("ask_human", json!({ "question": "To whom?" }))
        .turn(
            Turn::new()
                .call("send", json!({ "text": "all done" }))
                .call("put", json!({ "text": "the result" }))
                .call("count", json!({ "text": "x" })),
        )
        .call("shell", json!({ "command": "cat log-a log-b | wc -l" }))
        .say("Good night.");
    Agent::new("closer")
        .model(script)
        .tools((tools::coding(), tools::ask_human, count, send, put))
        .policy("put", Decision::Ask)
        .retries(0, Duration::ZERO)
}

#[derive(Workflow)]
struct Everything {
    planner: Agent,
    left: Agent,
    right: Agent,
    closer: Agent,
}

impl Everything {
    async fn run(&self, session: Session) -> Result<Session> {
        let mut session = self.planner.forward(session).await?;
        let workshop = session.equipment().get::<Workshop>().unwrap();
        let forks = async {
            let left = workshop.fork(&mut session, "left").await?;
            Ok((left, workshop.fork(&mut session, "right").await?))
        };
        let (left, right) = match forks.await {
            Ok(forks) => forks,
            Err(rath::workshop::Error::Session(error)) => return Err(error.with_sessions(vec![session])),
            Err(error) => return Err(Error::workflow(error, session)),
        };
        let right = right.step("in a step", async |session: Session| self.right.forward(session).await);
        let (left, right) = tokio::join!(self.left.forward(left), right);
        let session = session.merge([left?, right?], How::Append).await?;
        session.apply(&self.closer).await
    }
}

fn everything() -> Everything {
    Everything { planner: planner(), left: writer("a"), right: writer("b"), closer: closer() }
}

/// One process: a store, a workshop, a run on them.
pub(crate) async fn run(store: Arc<dyn Store>, dir: &Path, durability: Durability) -> Result<Session> {
    let workshop = Arc::new(workshop(&store, dir));
    let origin = dir.join("origin");
    let mut session = store
        .begin_run("everything", Actor::program("test"), async |session: &mut Session| {
            let placed = workshop.place(session, Place::copy_of("local", &origin)).await;
            match placed {
                Ok(_) => {}
                Err(rath::workshop::Error::Session(error)) => return Err(error),
                Err(error) => return Err(ErrorKind::Workflow(error.into()).into()),
            }
            session.user("Do everything.")?;
            Ok(())
        })
        .await?;
    session.set_durability(durability);
    session.equip_shared(workshop);
    session.equip(Outside(dir.join("outside")));
    session.go_on(&everything()).await
}

/// Answers what is asked, truthfully.
pub(crate) async fn answer(store: &Arc<dyn Store>, outside: &Outside) -> usize {
    let mut answered = 0;
    for row in store.sessions(Query::default()).await.unwrap() {
        for ask in View::of(store, row.id, None).await.unwrap().pending().asks {
            let asked: Asked = View::of(store, row.id, Some(ask.seq)).await.unwrap().record().body().unwrap();
            let verdict = match ask.about {
                About::Question => Verdict::Text("ada".into()),
                About::Approval | About::Unknown(_) => Verdict::Yes,
                About::InDoubt => {
                    assert!(asked.shown.to_string().contains("all done"), "only the mail can be in doubt: {asked:?}");
                    match outside.mails().is_empty() {
                        true => Verdict::No,
                        false => Verdict::Text("sent all done".into()),
                    }
                }
            };
            let what = Posted::Answer { asked: ask.record, shown_digest: ask.shown_digest, verdict, why: None };
            store.post(Post::new(row.id, Actor::person("ada"), what)).await.unwrap();
            answered += 1;
        }
    }
    answered
}

/// What a run came to, without what is different in every run.
#[derive(Debug, PartialEq)]
pub(crate) struct Came {
    transcript: Vec<String>,
    files: BTreeMap<String, String>,
    /// How often each tool's calls ended, by tool.
    steps: Vec<String>,
    pub(crate) mails: Vec<String>,
    pub(crate) objects: usize,
}

async fn came(store: &Arc<dyn Store>, session: &Session, outside: &Outside) -> Came {
    let words = |said: &Said| match said {
        Said::Marker { why, .. } => format!("branch {}", why.clone().unwrap_or_default()),
        said => format!("{} {said}", said.role()),
    };
    let context = session.context().await.unwrap();
    let version = session.state().workspace.clone().unwrap();
    let files = crate::support::tree_of(store, &version).await;
    let mut steps = Vec::new();
    for line in lines(store, session.id()).await {
        let records = store.scan(Scan::session(line, 0, u64::MAX - 1)).await.unwrap().records;
        for record in &records {
            match record.kind() {
                Kind::StepEntered => steps.push(format!("+{}", record.body::<StepEntered>().unwrap().name)),
                Kind::StepLeft => steps.push(format!("-{:?}", record.body::<StepLeft>().unwrap().outcome)),
                _ => {}
            }
        }
    }
    Came {
        transcript: context.iter().map(|message| words(&message.said)).collect(),
        files,
        steps,
        mails: outside.mails(),
        objects: outside.objects(),
    }
}

/// A session and its branches, in the order they were forked.
async fn lines(store: &Arc<dyn Store>, root: SessionId) -> Vec<SessionId> {
    let mut rows = store.sessions(Which::ChildrenOf(root).into()).await.unwrap();
    let mut branches = Vec::new();
    for row in rows.drain(..) {
        let forked: Forked = View::of(store, row.id, Some(0)).await.unwrap().record().body().unwrap();
        branches.push((forked.ordinal, row.id));
    }
    branches.sort();
    std::iter::once(root).chain(branches.into_iter().map(|(_, id)| id)).collect()
}

pub(crate) fn fresh() -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("origin")).unwrap();
    fs::create_dir(dir.path().join("outside")).unwrap();
    fs::write(dir.path().join("origin/notes"), "one\ntwo\n").unwrap();
    Embedded::create(dir.path().join("store")).unwrap();
    dir
}

pub(crate) fn open(dir: &TempDir) -> Arc<dyn Store> {
    Embedded::open(dir.path().join("store")).unwrap()
}

/// Goes on, process after process, until the run is over.
pub(crate) async fn to_the_end(dir: &TempDir) -> (Came, u64) {
    let outside = Outside(dir.path().join("outside"));
    for _ in 0..20 {
        let store = open(dir);
        match run(store.clone(), dir.path(), Durability::Effect).await {
            Ok(session) => {
                assert!(session.pending().is_empty());
                let came = came(&store, &session, &outside).await;
                let started = started(&store, &session).await;
                drop(session);
                let report = Embedded::open_here(dir.path().join("store"), "test").unwrap();
                let report = report.verify(None, &mut |_, _| {}).unwrap();
                assert!(report.is_sound(), "{:?}", report.findings);
                return (came, started);
            }
            Err(error) if matches!(error.kind(), ErrorKind::Waiting(_)) => {
                drop(error);
                assert!(answer(&store, &outside).await > 0, "a run that waits has asked something");
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the run does not come to an end");
}

/// How often an irreversible call was begun.
async fn started(store: &Arc<dyn Store>, session: &Session) -> u64 {
    let scan = Scan::session(session.id(), 0, u64::MAX - 1).kinds(&[Kind::ToolStarted]);
    let records = store.scan(scan).await.unwrap().records;
    records.iter().filter(|record| record.body::<ToolStarted>().is_ok_and(|body| body.tool == "send")).count() as u64
}

fn stride() -> u64 {
    (8 / u64::from(rath_testkit::scaled(8))).max(1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_store_dies_at_any_commit_the_run_ends_like_a_run_that_was_not() {
    if !isolates() {
        return;
    }
    let dir = fresh();
    let (wanted, _) = to_the_end(&dir).await;
    assert_eq!(wanted.mails, ["all done"]);
    assert_eq!(wanted.objects, 1);
    assert_eq!((&*wanted.files["log-a"], &*wanted.files["log-b"]), ("a\nagain\n", "b\nagain\n"));
    let mut commits = 0;
    let mut kills = 0;
    loop {
        let mut died = false;
        for moment in [Moment::Before, Moment::After] {
            let dir = fresh();
            let outside = Outside(dir.path().join("outside"));
            // One process after the other, each dies after as many commits as the one before, until one comes through.
            let mut left = commits;
            loop {
                let store = open(&dir);
                let mortal = Mortal::new(store.clone(), left, moment);
                let ended = run(mortal.clone(), dir.path(), Durability::Effect).await;
                match ended {
                    Err(error) if matches!(error.kind(), ErrorKind::Waiting(_)) => {
                        drop(error);
                        answer(&store, &outside).await;
                        left = left.saturating_sub(mortal.commits());
                    }
                    ended => {
                        drop(ended);
                        died |= mortal.is_dead();
                        kills += u64::from(mortal.is_dead());
                        break;
                    }
                }
            }
            let (came, started) = to_the_end(&dir).await;
            assert_eq!(came, wanted, "killed {moment:?} commit {commits}");
            assert!(started <= 2, "{started}");
        }
        if !died {
            break;
        }
        commits += stride();
    }
    eprintln!("kill test: {kills} kills in a run of about {commits} commits");
    assert!(kills >= 10);
}
