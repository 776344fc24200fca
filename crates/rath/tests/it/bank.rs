//! The bank example, killed at every commit: money moves once.

use std::path::Path;
use std::sync::Arc;

use rath::ErrorKind;
use rath::body::{QuestionKind, ToolFinished, ToolStarted, Verdict};
use rath::prelude::*;
use rath::store::{Post, PostContent, Scan};
use rath_testkit::{CrashPoint, CrashingStore};

#[allow(dead_code, unreachable_pub, reason = "the example's main is not run here")]
#[path = "../../../../examples/ledger_tool.rs"]
mod ledger_tool;

use ledger_tool::{Bank, clerk};

async fn run(store: &Arc<dyn Store>, bank: &Path) -> Result<Session> {
    let clerk = clerk(Bank::open(bank).unwrap());
    let input = async |session: &mut Session| session.user("Move it.").map(|_| ());
    store.run("monday", Actor::program("test"), &clerk, input).await
}

/// Resumes the run until it is done. Closing an account is approved, and recovery questions are answered truthfully.
async fn to_the_end(store: &Arc<dyn Store>, bank: &Path) -> Session {
    for _ in 0..5 {
        let error = match run(store, bank).await {
            Ok(session) => return session,
            Err(error) => error,
        };
        let ErrorKind::Waiting(id) = error.kind() else { panic!("{error}") };
        let id = *id;
        drop(error);
        let ask = View::of(store, id, None).await.unwrap().pending().asks[0].clone();
        let closed = cents(bank, "bob").is_none();
        let verdict = match (ask.about, closed) {
            (QuestionKind::OutcomeUnknown, true) => Verdict::Text("closed bob".into()),
            (QuestionKind::OutcomeUnknown, false) => Verdict::No,
            _ => Verdict::Yes,
        };
        let what = PostContent::Answer { asked: ask.record, shown_digest: ask.shown_digest, verdict, why: None };
        store.post(Post::new(id, Actor::person("ada"), what)).await.unwrap();
    }
    panic!("the run does not come to an end");
}

/// The balance of an account.
fn cents(bank: &Path, account: &str) -> Option<i64> {
    let database = rusqlite::Connection::open(bank).unwrap();
    database.query_row("SELECT cents FROM accounts WHERE name = ?1", [account], |row| row.get(0)).ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_between_effect_and_record_the_money_moves_once() {
    let (mut commits, mut twice) = (0, 0);
    loop {
        let mut died = false;
        for moment in [CrashPoint::Before, CrashPoint::After] {
            let dir = tempfile::tempdir().unwrap();
            let (store, bank) = (InMemory::new(), dir.path().join("bank.db"));
            let mortal = CrashingStore::new(store.clone(), commits, moment);
            let dying: Arc<dyn Store> = mortal.clone();
            drop(run(&dying, &bank).await);
            died |= mortal.is_dead();
            let moved = cents(&bank, "bob") == Some(2500);
            let session = to_the_end(&store, &bank).await;
            assert_eq!(cents(&bank, "ada"), Some(7500), "killed {moment:?} commit {commits}");
            let records = store.scan(Scan::session(session.id(), 0, u64::MAX - 1)).await.unwrap().records;
            let started = records.iter().filter_map(|record| record.body::<ToolStarted>().ok());
            let made = started.filter(|started| started.call == "call-1-0").count();
            assert!(made == 1 || made == 2, "{made}");
            assert_eq!(cents(&bank, "bob"), None, "closed, as ada allowed");
            // The money had moved before the crash, and the call was repeated.
            twice += u32::from(moved && made == 2);
            let ends = records.iter().filter_map(|record| record.body::<ToolFinished>().ok());
            let ends: Vec<_> = ends.filter(|end| end.call == "call-1-0").collect();
            assert_eq!(ends.len(), 1, "killed {moment:?} commit {commits}");
            assert_eq!(ends[0].effects.len(), 2, "what changed is on the record, also of a call that was made again");
            assert!(format!("{:?}", ends[0].output).contains("moved 2500 cents from ada to bob"), "{ends:?}");
        }
        if !died {
            break;
        }
        commits += 1;
    }
    assert!(twice > 0, "no kill fell between effect and record");
}
