//! Rules from the configuration, explained; and answers that hold for good.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::local::isolates;
use crate::workspace::{command, text};

/// A person with a home and a project.
struct Desk {
    dir: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        let desk = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir_all(desk.path("home/.config/rath")).unwrap();
        fs::create_dir_all(desk.path("project/work")).unwrap();
        desk.exits(0, &["init"]);
        desk
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn user(&self, content: &str) {
        fs::write(self.path("home/.config/rath/config.toml"), content).unwrap();
    }

    fn project(&self, content: &str) {
        fs::write(self.path("project/.rath/config.toml"), content).unwrap();
    }

    /// Ends with this exit code. Returns what it says.
    fn exits(&self, code: i32, arguments: &[&str]) -> String {
        let mut command = command(&self.path("project"), arguments);
        command.env_remove("XDG_CONFIG_HOME").env("HOME", self.path("home"));
        let out = command.output().unwrap();
        let said = text(&out.stdout) + &text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
        said.replace(&*self.dir.path().to_string_lossy(), "").trim_end().to_owned()
    }

    fn on(&self, code: i32, line: &str) -> String {
        self.exits(code, &["policy", "test", "shell", "--command", line])
    }
}

const PUSHES: &str = "# mine\n[[policy]]\ndecision = \"deny\"\nwhy = \"no pushes\"\ncommand = \"git push*\"\n\n\
    [[policy]]\ndecision = \"allow\"\ncommand = \"git *\"\n\n[[policy]]\ndecision = \"ask\"\ntool = \"shell\"\n";

#[test]
fn a_decision_is_explained_with_file_and_line() {
    let desk = Desk::new();
    desk.user(PUSHES);
    let said = desk.on(3, "git log; git push");
    let expected = "git log:\n  deny shell \"git push*\" does not match  # /home/.config/rath/config.toml:2\n  \
        allow shell \"git *\" matches  # /home/.config/rath/config.toml:7\n\
        git push:\n  deny shell \"git push*\" matches  # /home/.config/rath/config.toml:2\n\
        deny: no pushes\n  by deny shell \"git push*\"  # /home/.config/rath/config.toml:2";
    assert_eq!(said, expected);
    desk.on(0, "git log");
    for line in ["git log $(x)", "git log > x", "ls", "git log | sh", "git log\nls", ""] {
        desk.on(5, line);
    }
    let json = desk.exits(3, &["policy", "test", "shell", "{\"command\": \"git push\"}", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["decided"]["ruling"], "deny");
    assert_eq!((&json["looked_at"][0]["matched"], &json["effect"]), (&true.into(), &"workspace".into()));
    assert!(desk.exits(0, &["policy", "list"]).starts_with("deny shell \"git push*\": no pushes  # "));
}

#[test]
fn the_defaults_are_safe_and_need_no_store() {
    let desk = Desk::new();
    fs::remove_dir_all(desk.path("project/.rath")).unwrap();
    desk.exits(0, &["policy", "test", "read", "--path", "src/main.rs"]);
    desk.exits(0, &["policy", "test", "shell", "--command", "cargo test"]);
    desk.exits(5, &["policy", "test", "shell", "--command", "cargo test", "--effect", "irreversible"]);
    desk.exits(5, &["policy", "test", "read", "--path", "a/../.env"]);
    desk.exits(5, &["policy", "test", "deploy"]);
    desk.exits(2, &["policy", "test", "deploy", "[]"]);
    desk.exits(2, &["policy", "test", "deploy", "--effect", "none"]);
}

#[test]
fn a_project_tightens_and_loosens_only_where_it_is_trusted() {
    let desk = Desk::new();
    desk.user(PUSHES);
    desk.project(
        "[[policy]]\ndecision = \"ask\"\ncommand = \"git commit*\"\n[[policy]]\ndecision = \"allow\"\ncommand = \"*\"\n\
         [[policy]]\ndecision = \"deny\"\ntool = \"grep\"\n",
    );
    let all = || (desk.on(3, "git push"), desk.on(0, "git log"));
    all();
    desk.on(5, "git commit");
    desk.on(5, "rm x");
    let said = desk.exits(3, &["policy", "test", "grep"]);
    assert!(said.contains("/project/.rath/config.toml:7, can only make it stricter"), "{said}");
    desk.exits(0, &["config", "trust"]);
    desk.on(0, "git push");
    desk.on(0, "rm x");
    desk.on(5, "git commit");
}

#[test]
fn a_pattern_that_means_nothing_is_named_with_its_line() {
    let desk = Desk::new();
    desk.user("[[policy]]\ndecision = \"ask\"\n\n[[policy]]\ndecision = \"deny\"\npath = \"../x\"\n");
    let said = desk.exits(1, &["policy", "list"]);
    assert!(said.contains("/home/.config/rath/config.toml:4: policy: path = \"../x\" is not a pattern"), "{said}");
    desk.user("[[policy]]\ndecision = \"perhaps\"\n");
    let said = desk.exits(1, &["policy", "list"]);
    assert!(said.contains("config.toml:2: policy.decision: unknown variant"), "{said}");
}

#[test]
fn always_is_on_the_record_and_not_asked_again() {
    if !isolates() {
        return;
    }
    let desk = Desk::new();
    let turn = "[[turn]]\ncall = [{ tool = \"shell\", arguments = { command = \"echo hi\" } }]\n";
    let file = format!(
        "task = \"Go.\"\n[agents.one]\ntools = [\"shell\"]\nask = [\"shell\"]\n{turn}{turn}[[turn]]\ntext = \"Done.\"\n"
    );
    fs::write(desk.path("project/run.toml"), file).unwrap();
    desk.exits(5, &["run", "-a", "run.toml", "--in", "work", "-q"]);
    let inbox = desk.exits(0, &["inbox"]);
    assert!(
        inbox.contains("always: shell with exactly these arguments") && inbox.contains("yes | no | always"),
        "{inbox}"
    );
    let asked: Value = serde_json::from_str(desk.exits(0, &["inbox", "--json"]).lines().next().unwrap()).unwrap();
    assert_eq!((&asked["rule"], &asked["always"]["tool"]), (&"ask shell".into(), &"shell".into()));
    let session = asked["session"].as_str().unwrap();
    desk.exits(0, &["answer", &format!("{session}@{}", asked["at"]["seq"]), "always"]);
    let said = desk.exits(0, &["resume", session, "-q"]);
    assert!(said.contains("Done."), "{said}");
    let shown = desk.exits(0, &["show", session]);
    assert!(shown.contains("! person ada always allows shell with exactly these arguments"), "{shown}");
    assert_eq!(shown.matches("asks to allow this call").count(), 1);
    assert!(desk.exits(0, &["state", session]).contains("always"));
    assert!(desk.exits(0, &["log", session]).contains("granted: always: shell"));
    desk.exits(0, &["verify"]);
}
