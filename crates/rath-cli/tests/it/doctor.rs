//! What `rath doctor` reports about providers: working ones, and each kind of failure.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Output;

use serde_json::Value;

use crate::server::{Reply, Server};
use crate::workspace::{command, text};

const KEY: &str = "sk-test-0123456789";

/// Runs `rath doctor` with these providers.
fn doctor(config: &str, arguments: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("rath")).unwrap();
    // Local servers of the test machine must not be found.
    let nowhere = "base_url = \"http://127.0.0.1:1/v1\"";
    let here = ["ollama", "llama-cpp", "vllm"].map(|name| format!("[providers.{name}]\n{nowhere}\n")).concat();
    std::fs::write(dir.path().join("rath/config.toml"), here + config).unwrap();
    let mut command = command(dir.path(), &[&["doctor"], arguments].concat());
    command.env_clear().env("XDG_CONFIG_HOME", dir.path()).env("HOME", dir.path()).env("MY_KEY", KEY);
    command.env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere/bus").output().unwrap()
}

fn provider(name: &str, url: &str) -> String {
    format!("[providers.{name}]\napi = \"openai-chat\"\nbase_url = \"{url}\"\nkey_env = \"MY_KEY\"\n")
}

/// The report about one provider.
fn of(value: &Value, name: &str) -> Value {
    let all = value["providers"].as_array().unwrap_or_else(|| panic!("{value}"));
    all.iter().find(|asked| asked["provider"] == name).unwrap_or_else(|| panic!("{name} is not in {value}")).clone()
}

#[test]
fn a_provider_that_answers_is_reported_as_well() {
    let list = r#"{"object": "list", "data": [{"id": "small"}, {"id": "large"}]}"#;
    let server = Server::new(|_, _| Some((200, "application/json", list.into())));
    let config = provider("mine", &server.url());
    let out = doctor(&config, &[]);
    let said = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{said}{}", text(&out.stderr));
    assert!(said.contains("✓ mine: 2 models, key from $MY_KEY\n"), "{said}");
    assert!(said.contains("· anthropic: no key; set ANTHROPIC_API_KEY, or `rath auth set anthropic`\n"), "{said}");
    assert!(said.contains("· ollama: not running on this machine\n"), "{said}");
    assert!(!said.contains("no model is available") && !said.contains(KEY));
    let asked = server.requests();
    assert!(asked[0].head.starts_with("GET /models ") && asked[0].head.contains(&format!("Bearer {KEY}")));
    let value: Value = serde_json::from_slice(&doctor(&config, &["--json"]).stdout).unwrap();
    assert_eq!((&of(&value, "mine")["state"], &of(&value, "mine")["models"]), (&"answers".into(), &2.into()));
    assert_eq!(of(&value, "mine")["key"]["name"], "MY_KEY");
    let before = server.requests().len();
    let out = doctor(&config, &["--offline"]);
    assert!(!text(&out.stdout).contains("mine") && server.requests().len() == before);
}

#[test]
fn having_no_provider_is_reported_and_is_no_failure() {
    let out = doctor("", &[]);
    let said = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{said}");
    assert!(said.contains("! no model is available: store a key with `rath auth set anthropic`"), "{said}");
}

#[test]
fn each_problem_is_reported_with_its_fix() {
    let refusal = r#"{"error": {"message": "Incorrect API key provided: sk-test-0123456789"}}"#;
    let html = "<!doctype html><title>Welcome</title>";
    let answers: [(&str, Reply, &str, &str, &str); 7] = [
        ("refused", Some((401, "application/json", refusal.into())), "key_refused", "key refused", "set MY_KEY to"),
        ("barred", Some((403, "text/plain", "no".into())), "key_refused", "key refused", "set MY_KEY to"),
        ("lost", Some((404, "text/plain", "not found".into())), "wrong_address", "no API there", "`base_url` in"),
        ("page", Some((200, "text/html", html.into())), "wrong_address", "no API there", "`base_url` in"),
        (
            "noise",
            Some((200, "application/json", "\u{1b}[31m]".into())),
            "wrong_address",
            "no API there",
            "`base_url` in",
        ),
        ("broken", Some((500, "text/plain", "oh".into())), "provider_error", "returned an error", "try again later"),
        ("silent", None, "time_out", "timed out", "try again"),
    ];
    let mut config = String::new();
    for (name, answer, ..) in &answers {
        let answer = answer.clone();
        config += &provider(name, &Server::new(move |_, _| answer.clone()).url());
    }
    // A closed port, a server without TLS, and a host name that does not resolve.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    config += &provider("down", &format!("http://{free}"));
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    config += &provider("plain", &format!("https://{}", plain.local_addr().unwrap()));
    std::thread::spawn(move || {
        for mut stream in plain.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]).and_then(|_| stream.write_all(b"What do you say?\r\n"));
        }
    });
    config += &provider("nameless", "http://no-such-host.invalid");
    let out = doctor(&config, &["--json"]);
    assert_eq!(out.status.code(), Some(3));
    let value: Value = serde_json::from_slice(&out.stdout).unwrap();
    for (name, _, what, ..) in &answers {
        assert_eq!(
            (&of(&value, name)["state"], &of(&value, name)["what"]),
            (&"wrong".into(), &(*what).into()),
            "{value}"
        );
    }
    assert_eq!(of(&value, "down")["state"], "not_running");
    assert_eq!(of(&value, "nameless")["what"], "unreachable", "{value}");
    assert_eq!(of(&value, "plain")["what"], "tls", "{value}");
    let out = doctor(&config, &[]);
    let said = text(&out.stdout);
    assert_eq!(out.status.code(), Some(3), "{said}");
    for (name, _, _, told, help) in &answers {
        let at = said.find(&format!("✗ {name}: ")).unwrap_or_else(|| panic!("{name}: {said}"));
        let lines: Vec<&str> = said[at..].lines().take(3).collect();
        assert!(lines[0].contains(told) && lines[2].contains("help: ") && lines[2].contains(help), "{lines:?}");
    }
    assert!(said.contains("Incorrect API key provided: [key]"), "{said}");
    assert!(!said.contains(KEY) && !said.contains('\u{1b}'), "{said}");
}
