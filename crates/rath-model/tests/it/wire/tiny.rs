//! An agent with the built-in tools and two small models with real weights, end to end.

#![allow(clippy::disallowed_methods, reason = "the server is a process, and its location is the user's choice")]

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use rath::body::{Assistant, ModelResponded, ToolResult};
use rath::prelude::*;
use rath::sandbox::{Host, Registry};
use rath::tools::reading;
use rath::workspaces::PlacementSpec;
use rath_core::{BoxModel, Kind};
use rath_model::{Anthropic, Chat};

use super::agent::bodies;

/// The running model server, stopped on drop with all its child processes.
struct Tiny {
    child: Child,
    port: u16,
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["--", &format!("-{}", self.child.id())]).status();
        let _ = self.child.wait();
    }
}

/// Where `cargo xtask test` installs the models. `None` if they are not installed.
fn cache() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home)?.join("tiny-model");
    cache.join("installed").is_file().then_some(cache)
}

impl Tiny {
    fn start() -> Option<Self> {
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let program = project.join("../shared/tools/tiny-model/start");
        let (true, Some(cache)) = (program.is_file(), cache()) else {
            rath_testkit::Requirement::Models
                .skip("the models are not installed; `cargo xtask test` installs them if ../shared exists");
            return None;
        };
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut child = Command::new(program)
            .arg(port.to_string())
            .arg(cache)
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let ready = lines.any(|line| line == "ready");
        let tiny = Self { child, port };
        if !ready {
            rath_testkit::Requirement::Models.skip("the server does not start");
            return None;
        }
        Some(tiny)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_models_use_the_built_in_tools() {
    let Some(tiny) = Tiny::start() else { return };
    let url = format!("http://127.0.0.1:{}", tiny.port);
    let models: [(&str, BoxModel); 2] = [
        ("chat", Arc::new(Chat::openai_compatible("tiny", format!("{url}/v1")))),
        ("messages", Arc::new(Anthropic::new("tiny").base_url(&url))),
    ];
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("files");
    std::fs::create_dir(&files).unwrap();
    std::fs::write(files.join("notes.txt"), "The code word is marmalade.\n").unwrap();
    let store = rath_core::InMemory::new();
    let backends = Registry::new().with(Arc::new(Host::new()));
    let workspaces = Arc::new(Workspaces::new(store.clone(), dir.path().join("workspaces"), backends));
    for (api, model) in models {
        let mut session = store.create(Actor::person("ada"));
        workspaces.assign(&mut session, PlacementSpec::copy_of("host", &files)).await.unwrap();
        session.provide_shared(workspaces.clone());
        session.user("Read the file notes.txt").unwrap();
        let session = Agent::new("reader").shared_model(model).tools(reading()).forward(session).await.unwrap();
        let turns: Vec<Assistant> = bodies(&session, Kind::Assistant).await;
        let called: Vec<&str> = turns.iter().flat_map(Assistant::calls).map(|(_, tool)| tool).collect();
        assert_eq!(called, ["read"], "{api}");
        let results: Vec<ToolResult> = bodies(&session, Kind::ToolResult).await;
        assert!(results.iter().all(|result| !result.failed), "{api}: {results:?}");
        let text = session.text().await.unwrap().unwrap();
        assert!(text.contains("marmalade"), "{api}: {text}");
        let answers: Vec<ModelResponded> = bodies(&session, Kind::ModelResponded).await;
        assert!(answers.iter().all(|answer| answer.usage.input_tokens > 0 && answer.prices.is_none()), "{answers:?}");
    }
}
