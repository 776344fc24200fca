//! Three agents fix a failing test at the same time, each in its own copy of the files. The test judges every fix. The best
//! one is merged, and the others are recorded as rejected, with the output of the test as the reason.
//!
//! cargo run --example best_of_three --package rath

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use rath::body::Rejected;
use rath::prelude::*;
use rath::sandbox::{Local, Registry};
use rath::workflow::validator::command;
use rath::workflow::{Join, parallel};
use rath::workspaces::PlacementSpec;
use serde_json::json;

const TEST: &str = r#"for n in 2 3; do test "$(sh double.sh $n)" = $((n + n)) || { echo "double $n is $(sh double.sh $n)"; exit 1; }; done"#;

fn fixer(name: &str, fix: &str) -> Agent {
    // A real agent would have `.prompt("Fix the test.")` and a model of a provider.
    let script = Scripted::new("scripted").call("write", json!({ "path": "double.sh", "content": fix })).say("Fixed.");
    Agent::new(name).model(script).tools(tools::coding())
}

pub(crate) async fn fix_the_test(dir: &Path) -> Result<Session, Box<dyn Error>> {
    let project = dir.join("project");
    std::fs::create_dir(&project)?;
    std::fs::write(project.join("double.sh"), "echo $1\n")?;
    std::fs::write(project.join("test.sh"), TEST)?;

    let store = Embedded::create(dir.join("store"))?;
    let backends = Registry::new().with(Arc::new(Local::new()));
    let env = vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())];
    let workspaces = Workspaces::new(store.clone(), dir.join("workspaces"), backends).with_env(env);
    let mut session = store.create(Actor::person("ada"));
    workspaces.assign(&mut session, PlacementSpec::copy_of("local", &project)).await?;
    session.provide(workspaces);
    session.user("Fix the failing test.")?;

    let best_of_three = parallel("best of three")
        .branch("square", fixer("square", "echo $(($1 * $1))\n"))
        .branch("sum", fixer("sum", "echo $(($1 + $1))\n"))
        .branch("constant", fixer("constant", "echo 4\n"))
        .join(Join::best(command("sh test.sh")));
    Ok(best_of_three.forward(session).await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let session = fix_the_test(dir.path()).await?;
    println!("{session}");
    for record in session.own_records(&[rath::Kind::Rejected]).await? {
        println!("rejected: {}", record.body::<Rejected>()?.why);
    }
    Ok(())
}
