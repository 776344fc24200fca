//! Policy rules of the configuration, their explanation, and permanent permissions.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::local::isolates;
use crate::workspace::{command, text};

/// A user with a home directory and a project.
struct TestHome {
    dir: tempfile::TempDir,
}

impl TestHome {
    fn new() -> Self {
        let home = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir_all(home.path("home/.config/rath")).unwrap();
        fs::create_dir_all(home.path("project/work")).unwrap();
        home.exits(0, &["init"]);
        home
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

    /// Checks the exit code, and returns the output.
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
    let home = TestHome::new();
    home.user(PUSHES);
    let said = home.on(3, "git log; git push");
    let expected = "git log:\n  deny shell \"git push*\" does not match  # /home/.config/rath/config.toml:2\n  \
        allow shell \"git *\" matches  # /home/.config/rath/config.toml:7\n\
        git push:\n  deny shell \"git push*\" matches  # /home/.config/rath/config.toml:2\n\
        deny: no pushes\n  by deny shell \"git push*\"  # /home/.config/rath/config.toml:2";
    assert_eq!(said, expected);
    home.on(0, "git log");
    for line in ["git log $(x)", "git log > x", "ls", "git log | sh", "git log\nls", ""] {
        home.on(5, line);
    }
    let json = home.exits(3, &["policy", "test", "shell", "{\"command\": \"git push\"}", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["decided"]["ruling"], "deny");
    assert_eq!((&json["looked_at"][0]["matched"], &json["effect"]), (&true.into(), &"workspace".into()));
    assert!(home.exits(0, &["policy", "list"]).starts_with("deny shell \"git push*\": no pushes  # "));
}

#[test]
fn the_defaults_are_safe_and_need_no_store() {
    let home = TestHome::new();
    fs::remove_dir_all(home.path("project/.rath")).unwrap();
    home.exits(0, &["policy", "test", "read", "--path", "src/main.rs"]);
    home.exits(0, &["policy", "test", "shell", "--command", "cargo test"]);
    home.exits(5, &["policy", "test", "shell", "--command", "cargo test", "--effect", "irreversible"]);
    home.exits(5, &["policy", "test", "read", "--path", "a/../.env"]);
    home.exits(5, &["policy", "test", "deploy"]);
    home.exits(2, &["policy", "test", "deploy", "[]"]);
    home.exits(2, &["policy", "test", "deploy", "--effect", "none"]);
}

#[test]
fn an_untrusted_project_can_only_make_the_policy_stricter() {
    let home = TestHome::new();
    home.user(PUSHES);
    home.project(
        "[[policy]]\ndecision = \"ask\"\ncommand = \"git commit*\"\n[[policy]]\ndecision = \"allow\"\ncommand = \"*\"\n\
         [[policy]]\ndecision = \"deny\"\ntool = \"grep\"\n",
    );
    let all = || (home.on(3, "git push"), home.on(0, "git log"));
    all();
    home.on(5, "git commit");
    home.on(5, "rm x");
    let said = home.exits(3, &["policy", "test", "grep"]);
    assert!(said.contains("/project/.rath/config.toml:7, can only make decisions stricter"), "{said}");
    home.exits(0, &["config", "trust"]);
    home.on(0, "git push");
    home.on(0, "rm x");
    home.on(5, "git commit");
}

#[test]
fn an_invalid_pattern_is_reported_with_its_line() {
    let home = TestHome::new();
    home.user("[[policy]]\ndecision = \"ask\"\n\n[[policy]]\ndecision = \"deny\"\npath = \"../x\"\n");
    let said = home.exits(1, &["policy", "list"]);
    assert!(said.contains("/home/.config/rath/config.toml:4: policy: path = \"../x\" is not a pattern"), "{said}");
    home.user("[[policy]]\ndecision = \"perhaps\"\n");
    let said = home.exits(1, &["policy", "list"]);
    assert!(said.contains("config.toml:2: policy.decision: unknown variant"), "{said}");
}

#[test]
fn always_is_recorded_and_not_asked_again() {
    if !isolates() {
        return;
    }
    let home = TestHome::new();
    let turn = "[[turn]]\ncall = [{ tool = \"shell\", arguments = { command = \"echo hi\" } }]\n";
    let file = format!(
        "task = \"Go.\"\n[agents.one]\ntools = [\"shell\"]\nask = [\"shell\"]\n{turn}{turn}[[turn]]\ntext = \"Done.\"\n"
    );
    fs::write(home.path("project/run.toml"), file).unwrap();
    home.exits(5, &["run", "-a", "run.toml", "--in", "work", "-q"]);
    let inbox = home.exits(0, &["inbox"]);
    assert!(
        inbox.contains("always: shell with exactly these arguments") && inbox.contains("yes | no | always"),
        "{inbox}"
    );
    let asked = crate::workspace::lines(&home.exits(0, &["inbox", "--json"])).remove(0);
    assert_eq!((&asked["rule"], &asked["always"]["tool"]), (&"ask shell".into(), &"shell".into()));
    let session = asked["session"].as_str().unwrap();
    home.exits(0, &["answer", &format!("{session}@{}", asked["at"]["seq"]), "always"]);
    let said = home.exits(0, &["resume", session, "-q"]);
    assert!(said.contains("Done."), "{said}");
    let shown = home.exits(0, &["show", session]);
    assert!(shown.contains("! person ada always allows shell with exactly these arguments"), "{shown}");
    assert_eq!(shown.matches("asks to approve this call").count(), 1);
    assert!(home.exits(0, &["state", session]).contains("allowed"));
    assert!(home.exits(0, &["log", session]).contains("granted: always: shell"));
    home.exits(0, &["verify"]);
}
