//! Keys: where they are found, and what happens on a machine without a keyring.
//!
//! The unit tests cover the keyring itself, with one in memory.

use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::workspace::{command, text};

/// A user with an empty home directory. There is no keyring, unless a bus is named.
struct Person {
    dir: tempfile::TempDir,
}

impl Person {
    fn new(config: &str) -> Self {
        let person = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir_all(person.dir.path().join("home/rath")).unwrap();
        std::fs::write(person.dir.path().join("home/rath/config.toml"), config).unwrap();
        person
    }

    fn run(&self, arguments: &[&str], environment: &[(&str, &str)], input: &str) -> Output {
        let mut command = command(self.dir.path(), arguments);
        command.env_clear().env("XDG_CONFIG_HOME", self.dir.path().join("home")).env("HOME", self.dir.path());
        let nowhere = format!("unix:path={}/no-bus", self.dir.path().display());
        command.env("DBUS_SESSION_BUS_ADDRESS", nowhere).envs(environment.iter().copied());
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        // The command may exit before it reads the input.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }
}

#[test]
fn without_a_keyring_the_alternatives_are_named() {
    let person = Person::new("");
    let out = person.run(&["auth", "set", "anthropic"], &[], "sk-secret-0123456789\n");
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("the system keyring is unavailable"), "{said}");
    assert!(said.contains("set ANTHROPIC_API_KEY") && said.contains("rath config set --user providers.anthropic.key"));
    assert!(!(said + &text(&out.stdout)).contains("sk-secret"));
    assert_eq!(person.run(&["auth", "remove", "anthropic"], &[], "").status.code(), Some(1));
}

#[test]
fn an_invalid_key_is_refused_before_the_keyring_is_used() {
    let person = Person::new("");
    for (input, why) in
        [("", "no key given"), (" \n\n", "no key given"), ("sk-1\nsk-2\n", "one line"), ("s k", "spaces")]
    {
        let said = text(&person.run(&["auth", "set", "openai"], &[], input).stderr);
        assert!(said.contains(why) && !said.contains("system keyring") && !said.contains("sk-"), "{said}");
    }
    let said = text(&person.run(&["auth", "set", "nobody"], &[], "sk-1").stderr);
    assert!(said.contains("unknown provider \"nobody\""), "{said}");
}

#[test]
fn the_list_shows_the_origin_of_each_key_and_never_the_key() {
    let person = Person::new("[providers.openai]\nkey = \"sk-file-0123456789\"\n");
    let environment = [("ANTHROPIC_API_KEY", "sk-variable-0123456789")];
    let out = person.run(&["auth", "list"], &environment, "");
    let listed = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(listed.contains("anthropic    $ANTHROPIC_API_KEY\n"), "{listed}");
    assert!(listed.contains("home/rath/config.toml:2\n"), "{listed}");
    assert!(listed.contains("deepseek     no key; $DEEPSEEK_API_KEY is not set\n"), "{listed}");
    assert!(listed.contains("ollama       needs no key\n"), "{listed}");
    assert!(text(&out.stderr).contains("the system keyring is unavailable"));
    let json = person.run(&["auth", "list", "--json"], &environment, "");
    let rows = crate::workspace::lines(&text(&json.stdout));
    assert_eq!(rows[0]["key"], serde_json::json!({"in": "variable", "name": "ANTHROPIC_API_KEY"}));
    assert_eq!((&rows[1]["key"]["in"], &rows[3]["key"]), (&"configuration".into(), &Value::Null));
    for out in [out, json] {
        assert!(!(text(&out.stdout) + &text(&out.stderr)).contains("0123456789"));
    }
}

#[test]
fn an_unresponsive_keyring_times_out() {
    let person = Person::new("");
    let socket = person.dir.path().join("bus");
    let _listener = UnixListener::bind(&socket).unwrap();
    let bus = format!("unix:path={}", socket.display());
    let out = person.run(&["auth", "list"], &[("DBUS_SESSION_BUS_ADDRESS", &bus)], "");
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{said}");
    assert!(said.contains("no answer within 2 s"), "{said}");
}

#[test]
fn a_key_in_a_file_causes_a_warning() {
    let person = Person::new("");
    let out = person.run(&["config", "set", "--user", "providers.openai.key", "sk-0123456789"], &[], "");
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{said}");
    assert!(
        said.contains("`rath auth set openai` stores it in the system keyring") && !said.contains("sk-0"),
        "{said}"
    );
    let said = text(&person.run(&["config", "set", "--user", "providers.openai.key_env", "MINE"], &[], "").stderr);
    assert!(!said.contains("rath auth"), "{said}");
}
