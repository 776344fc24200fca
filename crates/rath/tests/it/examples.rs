//! The programs in `examples/`. Those that need a provider are only compiled.

#[allow(dead_code, reason = "its main is not called")]
#[path = "../../../../examples/approvals.rs"]
mod approvals;
#[allow(dead_code, reason = "its main is not called")]
#[path = "../../../../examples/best_of_three.rs"]
mod best_of_three;
#[allow(dead_code, reason = "its main is not called")]
#[path = "../../../../examples/sub_agents.rs"]
mod sub_agents;

use rath::Kind;
use rath::body::Rejected;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invoice_is_paid_once_it_is_approved() {
    let told = approvals::pay_with_approval().await.unwrap();
    assert_eq!(told.matches("is paid").count(), 1, "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_best_of_three_fixes_is_merged() {
    if !crate::support::isolates() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let session = best_of_three::fix_the_test(dir.path()).await.unwrap();
    let files = crate::support::tree_of(session.store(), session.state().workspace.as_ref().unwrap()).await;
    assert_eq!(files["double.sh"], "echo $(($1 + $1))\n");
    let rejected = session.own_records(&[Kind::Rejected]).await.unwrap();
    let mut reasons: Vec<String> = rejected.iter().map(|record| record.body::<Rejected>().unwrap().why).collect();
    reasons.sort();
    assert_eq!(reasons.len(), 2);
    assert!(reasons[0].contains("double 2 is 4") || reasons[0].contains("double 3 is 4"), "{reasons:?}");
    assert!(reasons[1].contains("double 3 is 9"), "{reasons:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sub_agents_work_at_the_same_time() {
    let session = sub_agents::compare_cities().await.unwrap();
    assert_eq!(session.text().await.unwrap().as_deref(), Some("They are equally wet."));
    let records = session.view().await.unwrap().own_records().await.unwrap();
    let first = |kind: Kind| records.iter().position(|record| *record.kind() == kind).unwrap();
    let started = records.iter().rposition(|record| *record.kind() == Kind::ToolStarted).unwrap();
    assert!(started < first(Kind::ToolFinished), "the third call starts before the first one ends");
}

/// One process aborts during a call, and another finishes its run.
#[test]
#[allow(clippy::disallowed_methods, reason = "the example is two processes")]
fn a_run_that_was_killed_is_resumed() {
    let Some(program) = example("killed_run") else { return };
    let home = tempfile::tempdir().unwrap();
    let run = || std::process::Command::new(&program).env("TMPDIR", home.path()).output().unwrap();
    let killed = run();
    assert!(!killed.status.success(), "{killed:?}");
    let resumed = run();
    let text = String::from_utf8_lossy(&resumed.stdout);
    assert!(resumed.status.success() && text.contains("Here is your ticket."), "{resumed:?}");
    assert!(String::from_utf8_lossy(&killed.stdout).contains("reserving a seat"));
    assert!(!text.contains("reserving a seat"), "the first call is not made again: {text}");
}

/// The example's binary. It is built with all tests of the crate, but not with a single test binary.
fn example(name: &str) -> Option<std::path::PathBuf> {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent()?.parent()?.join("examples").join(name);
    program.exists().then_some(program)
}
