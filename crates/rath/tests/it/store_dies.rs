//! A run with agents, forks, questions and all effect classes, whose store crashes at every commit. It uses a real
//! store and real sandboxes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rath::Durability;
use rath::agent::Decision;
use rath::body::{Asked, Forked, OutsideEffect, QuestionKind, StepEntered, StepLeft, ToolStarted, Verdict};
use rath::model::MessageBody;
use rath::prelude::*;
use rath::store::{Post, PostContent, Query, Scan, SessionFilter};
use rath::workspaces::PlacementSpec;
use rath::{ErrorKind, Kind};
use rath_testkit::{CrashPoint, CrashingStore};
use serde_json::json;
use tempfile::TempDir;

use crate::support::{isolates, workspaces};

/// The outside world, where effects are irreversible.
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
    /// The text of the mail.
    text: String,
    outside: Resource<Outside>,
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

/// Puts an object. The call's idempotency key names it, so a repeated call replaces the same object.
#[tool(effect = "idempotent")]
async fn put(text: String, call: &Call, outside: Resource<Outside>) -> String {
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
        .tool_policy("put", Decision::Ask)
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
        let session = self.planner.forward(session).await?;
        let (left, right) = (session.fork("left"), session.fork("right"));
        let right = right.step("in a step", async |session: Session| self.right.forward(session).await);
        let (left, right) = tokio::join!(self.left.forward(left), right);
        let session = session.merge([left?, right?], How::Append).await?;
        session.apply(&self.closer).await
    }
}

fn everything() -> Everything {
    Everything { planner: planner(), left: writer("a"), right: writer("b"), closer: closer() }
}

/// One process: workspaces on a store, and a run.
pub(crate) async fn run(store: Arc<dyn Store>, dir: &Path, durability: Durability) -> Result<Session> {
    let workspaces = Arc::new(workspaces(&store, dir));
    let origin = dir.join("origin");
    let mut session = store
        .begin_run("everything", Actor::program("test"), async |session: &mut Session| {
            let placed = workspaces.assign(session, PlacementSpec::copy_of("local", &origin)).await;
            match placed {
                Ok(_) => {}
                Err(rath::workspaces::Error::Session(error)) => return Err(error),
                Err(error) => return Err(ErrorKind::Workflow(error.into()).into()),
            }
            session.user("Do everything.")?;
            Ok(())
        })
        .await?;
    session.set_durability(durability);
    session.provide_shared(workspaces);
    session.provide(Outside(dir.join("outside")));
    session.execute(&everything()).await
}

/// Answers all questions truthfully.
pub(crate) async fn answer(store: &Arc<dyn Store>, outside: &Outside) -> usize {
    let mut answered = 0;
    for row in store.sessions(Query::default()).await.unwrap() {
        for ask in View::of(store, row.id, None).await.unwrap().pending().asks {
            let asked: Asked = View::of(store, row.id, Some(ask.seq)).await.unwrap().record().body().unwrap();
            let verdict = match ask.about {
                QuestionKind::Question => Verdict::Text("ada".into()),
                QuestionKind::Approval | QuestionKind::Unknown(_) => Verdict::Yes,
                QuestionKind::OutcomeUnknown => {
                    assert!(asked.shown.to_string().contains("all done"), "only the mail can be in doubt: {asked:?}");
                    match outside.mails().is_empty() {
                        true => Verdict::No,
                        false => Verdict::Text("sent all done".into()),
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

/// The result of a run, without values that differ in every run.
#[derive(Debug, PartialEq)]
pub(crate) struct Came {
    transcript: Vec<String>,
    files: BTreeMap<String, String>,
    /// The number of finished calls by tool.
    steps: Vec<String>,
    pub(crate) mails: Vec<String>,
    pub(crate) objects: usize,
}

async fn came(store: &Arc<dyn Store>, session: &Session, outside: &Outside) -> Came {
    let words = |said: &MessageBody| match said {
        MessageBody::Marker { why, .. } => format!("branch {}", why.clone().unwrap_or_default()),
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
        transcript: context.iter().map(|message| words(&message.body)).collect(),
        files,
        steps,
        mails: outside.mails(),
        objects: outside.objects(),
    }
}

/// A session and its branches, in fork order.
async fn lines(store: &Arc<dyn Store>, root: SessionId) -> Vec<SessionId> {
    let mut rows = store.sessions(SessionFilter::ChildrenOf(root).into()).await.unwrap();
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

/// Resumes the run in new processes until it is done.
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
                let report = Embedded::open_as(dir.path().join("store"), "test").unwrap();
                let report = report.verify(None, &mut |_, _| {}).unwrap();
                assert!(report.is_valid(), "{:?}", report.findings);
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

/// The number of irreversible calls that were started.
async fn started(store: &Arc<dyn Store>, session: &Session) -> u64 {
    let scan = Scan::session(session.id(), 0, u64::MAX - 1).kinds(&[Kind::ToolStarted]);
    let records = store.scan(scan).await.unwrap().records;
    records.iter().filter(|record| record.body::<ToolStarted>().is_ok_and(|body| body.tool == "send")).count() as u64
}

fn stride() -> u64 {
    (8 / u64::from(rath_testkit::scaled(8))).max(1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_store_crashes_at_any_commit_has_the_result_of_an_undisturbed_run() {
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
        for moment in [CrashPoint::Before, CrashPoint::After] {
            let dir = fresh();
            let outside = Outside(dir.path().join("outside"));
            // Each process dies after the same number of commits, until one finishes.
            let mut left = commits;
            loop {
                let store = open(&dir);
                let mortal = CrashingStore::new(store.clone(), left, moment);
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
