//! The run of `store_dies.rs` in a separate process, which is killed with SIGKILL at every commit: before the commit,
//! and after the commit but before the run gets its result.

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rath::Durability;
use rath::prelude::*;
use rath_testkit::{CrashPoint, CrashingStore, scaled};

use crate::store_dies::{Outside, answer, fresh, open, run, to_the_end};
use crate::support::isolates;

/// The child's directory, and which commit kills it: `DIR`, `NUMBER-before` or `NUMBER-after`.
const DIRECTORY: &str = "RATH_TEST_CHILD";
const DEATH: &str = "RATH_TEST_DEATH";

/// How the process of a run ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Killed,
    Waiting,
    Done,
}

/// The child process. Without the environment variables, as in a normal test run, it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process() {
    let (Some(dir), Ok(death)) = (std::env::var_os(DIRECTORY).map(PathBuf::from), std::env::var(DEATH)) else { return };
    let (commits, moment) = death.split_once('-').unwrap();
    let moment = if moment == "before" { CrashPoint::Before } else { CrashPoint::After };
    let store = Embedded::open(dir.join("store")).unwrap();
    let store = CrashingStore::killing_the_process(store, commits.parse().unwrap(), moment);
    // With this durability each record is a separate commit, except records that must be committed together.
    match run(store, &dir, Durability::Record).await {
        Ok(_) => {}
        Err(error) if matches!(error.kind(), rath::ErrorKind::Waiting(_)) => std::process::exit(WAITING),
        Err(error) => panic!("{error}"),
    }
}

const WAITING: i32 = 75;

fn process(dir: &std::path::Path, commits: u64, moment: &str) -> Ended {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process_killed::one_process", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, dir)
        .env(DEATH, format!("{commits}-{moment}"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    match (child.status.signal(), child.status.code()) {
        (Some(9), _) => Ended::Killed,
        (_, Some(WAITING)) => Ended::Waiting,
        (_, Some(0)) => Ended::Done,
        _ => panic!("{}: {}", child.status, String::from_utf8_lossy(&child.stderr)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_killed_at_any_commit_has_the_result_of_an_undisturbed_run() {
    if !isolates() {
        return;
    }
    let (wanted, _) = to_the_end(&fresh()).await;
    // The number of commits is not known in advance: the loop ends with the first run that is not killed.
    let mut kills = 0;
    let stride = u64::from(16 / scaled(16).min(16));
    for commits in (0..).step_by(stride as usize) {
        let mut survived = true;
        for moment in ["before", "after"] {
            let dir = fresh();
            let outside = Outside(dir.path().join("outside"));
            // Each process resumes after an answer. The last one is killed, or finishes the run.
            let mut left = commits;
            let ended = loop {
                match process(dir.path(), left, moment) {
                    Ended::Waiting => {
                        let store = open(&dir);
                        assert!(answer(&store, &outside).await > 0, "a run that waits has asked something");
                        // A resumed run makes only the records after those of the earlier processes.
                        left = commits.saturating_sub(stored(&store).await);
                    }
                    ended => break ended,
                }
            };
            survived &= ended == Ended::Done;
            kills += u64::from(ended == Ended::Killed);
            let (came, started) = to_the_end(&dir).await;
            assert_eq!(came, wanted, "killed {moment} commit {commits}");
            assert!(started <= 2, "the irreversible call was started {started} times");
        }
        if survived {
            break;
        }
    }
    eprintln!("{kills} processes were killed");
    assert!(kills > 50 / stride);
}

/// The number of stored records.
async fn stored(store: &std::sync::Arc<dyn Store>) -> u64 {
    let sessions = store.sessions(rath::store::Query::default()).await.unwrap();
    sessions.iter().map(|session| session.seq + 1).sum()
}
