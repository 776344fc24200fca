//! Layers of configuration: how they are merged, the origin of values, and what a project may not set.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;

use crate::workspace::{command, text};

/// A user with a home directory, and a directory for a project.
struct TestHome {
    dir: tempfile::TempDir,
}

impl TestHome {
    fn new() -> Self {
        let home = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(home.path("project")).unwrap();
        home
    }

    fn with_store() -> Self {
        let home = Self::new();
        home.ok(&["init"]);
        home
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn put(&self, path: &str, content: &str) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), content).unwrap();
    }

    fn user(&self, content: &str) {
        self.put("home/.config/rath/config.toml", content);
    }

    fn project(&self, content: &str) {
        self.put("project/.rath/config.toml", content);
    }

    fn run(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        let mut command = command(&self.path("project"), arguments);
        command.env_remove("XDG_CONFIG_HOME").env_remove("RATH_MODEL").env("HOME", self.path("home"));
        command.envs(environment.iter().copied()).output().unwrap()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let out = self.run(arguments, &[]);
        assert!(out.status.success(), "{arguments:?}: {}", text(&out.stderr));
        text(&out.stdout).trim_end().replace(&*self.dir.path().to_string_lossy(), "")
    }

    fn fails(&self, arguments: &[&str]) -> String {
        let out = self.run(arguments, &[]);
        assert!(!out.status.success(), "{arguments:?}: {}", text(&out.stdout));
        text(&out.stderr).replace(&*self.dir.path().to_string_lossy(), "")
    }
}

#[test]
fn the_environment_wins_over_the_project_and_the_project_over_the_user() {
    let home = TestHome::with_store();
    home.user("model = \"ollama/small\"\n\n[sandbox]\nhide = [\"a\"]\nseconds = 60\n\n[run]\ntools = [\"reading\"]\n");
    home.project("# ours\n[sandbox]\nhide = [\"b\"]\nseconds = 30\n[run]\ntools = [\"coding\"]\n");
    let listed = home.ok(&["config", "list", "--origin"]);
    let expected = "model = \"ollama/small\"  # /home/.config/rath/config.toml:1\n\
        run.tools = [\"coding\"]  # /project/.rath/config.toml:6\n\
        sandbox.hide = [\"a\"]  # /home/.config/rath/config.toml:4\n\
        sandbox.hide = [\"b\"]  # /project/.rath/config.toml:3\n\
        sandbox.seconds = 30  # /project/.rath/config.toml:4";
    assert_eq!(listed, expected);
    let out = home.run(&["config", "list", "--json"], &[("RATH_MODEL", "openai/other")]);
    let values: Value = serde_json::from_slice::<Value>(&out.stdout).unwrap()["items"].take();
    assert_eq!(values[0]["value"], "openai/other");
    assert_eq!(values[0]["origin"]["variable"], "RATH_MODEL");
    assert_eq!(values[1]["origin"]["layer"], "project");
    assert_eq!(values[1]["origin"]["line"], 6);
    assert_eq!(home.ok(&["config", "get", "model"]), "ollama/small");
    assert_eq!(home.run(&["config", "get", "workspace"], &[]).status.code(), Some(3));
    let elsewhere = home.path("elsewhere");
    fs::create_dir_all(elsewhere.join("rath")).unwrap();
    fs::write(elsewhere.join("rath/config.toml"), "model = \"ollama/xdg\"").unwrap();
    let out = home.run(&["config", "get", "model"], &[("XDG_CONFIG_HOME", elsewhere.to_str().unwrap())]);
    assert_eq!(text(&out.stdout), "ollama/xdg\n");
}

#[test]
fn the_users_file_is_read_without_a_store() {
    let home = TestHome::new();
    assert_eq!(home.ok(&["config", "list"]), "");
    home.user("model = \"ollama/small\"\n");
    assert_eq!(home.ok(&["config", "list"]), "model = \"ollama/small\"");
    assert_eq!(home.ok(&["config", "path"]), "user     /home/.config/rath/config.toml\nproject  none");
    assert!(home.fails(&["config", "set", "model", "x/y"]).contains("no store found"));
}

#[test]
fn an_error_names_file_line_and_key_and_shows_no_key() {
    let home = TestHome::with_store();
    for (content, expected) in [
        ("[workspace]\nignored = []\n", ":2: workspace.ignored: unknown field"),
        ("model = 7\n", ":1: model: invalid type"),
        ("\n[providers.mine]\napi = \"smoke\"\n", ":3: providers.mine.api: unknown variant"),
        ("[providers.mine]\nbase_url = \"http://x/\"\n", ":2: providers.mine.api: missing"),
        (
            "[providers.openai]\nbase_url = \"http://sk-42@x/\"\n",
            ":2: providers.openai.base_url: the URL must not contain a key",
        ),
        ("[providers.openai]\nkey = \"a\"\nkey_env = \"B\"\n", ":3: providers.openai.key_env: a provider has either"),
        ("[providers.openai]\nkey = sk-42\n", ":2: "),
        ("[providers.openai]\nkey = 42\n", ":2: providers.openai.key: "),
    ] {
        home.user(content);
        let said = home.fails(&["config", "list"]);
        assert!(said.contains(&format!("/home/.config/rath/config.toml{expected}")), "{content:?}: {said}");
        assert!(!said.contains("sk-42"), "{said}");
    }
}

#[test]
fn keys_are_hidden_and_files_with_keys_cause_a_warning() {
    let home = TestHome::with_store();
    home.user("[providers.openai]\nkey = \"sk-42\"\nheaders = { x-team = \"sk-43\" }\n");
    for arguments in
        [&["config", "list"][..], &["config", "list", "--json"], &["config", "get", "providers.openai.key"]]
    {
        let out = home.run(arguments, &[]);
        assert!(out.status.success());
        let said = text(&out.stdout) + &text(&out.stderr);
        assert!(!said.contains("sk-42") && !said.contains("sk-43"), "{said}");
        assert!(
            said.contains("hidden") && said.contains("other users of this machine can read this API key"),
            "{said}"
        );
    }
    home.ok(&["config", "set", "--user", "providers.openai.key", "sk-44"]);
    let file = home.path("home/.config/rath/config.toml");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&file).unwrap().contains("key = \"sk-44\""));
    assert!(text(&home.run(&["config", "list"], &[]).stderr).is_empty());
    home.project("[providers.here]\napi = \"openai-chat\"\nbase_url = \"http://localhost:1/v1\"\nkey = \"sk-45\"\n");
    let said = text(&home.run(&["config", "list"], &[]).stderr);
    assert!(said.contains("may get committed"), "{said}");
}

#[test]
fn setting_keeps_comments_and_order() {
    let home = TestHome::with_store();
    home.project("# why\n[workspace]   # files\nmax_files = 10 # few\nignore = [\"*.tmp\"]\n");
    home.ok(&["config", "set", "workspace.max_files", "20"]);
    home.ok(&["config", "set", "model", "anthropic/claude-sonnet-4-5"]);
    home.ok(&["config", "set", "run.tools", "[\"coding\"]"]);
    let content = fs::read_to_string(home.path("project/.rath/config.toml")).unwrap();
    let expected = "model = \"anthropic/claude-sonnet-4-5\"\n# why\n[workspace]   # files\nmax_files = 20 # few\n\
        ignore = [\"*.tmp\"]\n\n[run]\ntools = [\"coding\"]\n";
    assert_eq!(content, expected);
    home.ok(&["config", "set", "--user", "providers.\"my own\".api", "openai-chat"]);
    assert_eq!(home.ok(&["config", "get", "providers"]), "providers.\"my own\".api = \"openai-chat\"");
}

#[test]
fn a_project_that_is_not_trusted_narrows_and_never_widens() {
    let refused = [
        ("trust = [\"/\"]\n", "trust: `trust` is allowed only"),
        ("[providers.anthropic]\nbase_url = \"http://localhost:1\"\n", "providers.anthropic: "),
        ("[providers.team]\nheaders = { x = \"y\" }\n", "providers.team: "),
        ("[providers.new]\napi = \"anthropic\"\nbase_url = \"https://example.com\"\n", "providers.new.base_url: "),
        ("[providers.new]\napi = \"anthropic\"\n", "providers.new.base_url: "),
        (
            "[providers.new]\napi = \"anthropic\"\nbase_url = \"http://localhost\"\nkey_env = \"ANTHROPIC_API_KEY\"\n",
            "providers.new.key_env: ",
        ),
        ("[sandbox]\nread = [\"~/.ssh\"]\n", "sandbox.read: "),
        ("[sandbox]\nenv = [\"AWS_SECRET_ACCESS_KEY\"]\n", "sandbox.env: "),
        ("[sandbox]\nmemory = 0\n", "sandbox.memory: "),
        ("[sandbox]\nseconds = 61\n", "sandbox.seconds: "),
        ("[run]\nbudget = \"100usd\"\n", "run.budget: "),
        ("[workspace]\nmax_files = 1_000_000_000\n", "workspace.max_files: "),
        ("[workspace]\nmax_bytes = 1_000_000_000_000_000\n", "workspace.max_bytes: "),
    ];
    let narrow = [
        "[sandbox]\nread = [\"~/models\"]\nhide = [\"x\"]\nseconds = 59\n",
        "model = \"team/large\"\n[run]\ntools = [\"reading\"]\n",
        "[providers.new]\napi = \"anthropic\"\nbase_url = \"http://127.0.0.1:8099/v1\"\n",
    ];
    let user = "[sandbox]\nread = [\"~/models\"]\nseconds = 60\n[run]\nbudget = \"2usd\"\n\
        [providers.team]\napi = \"openai-chat\"\nbase_url = \"https://example.org\"\nkey_env = \"TEAM\"\n";
    let home = TestHome::with_store();
    home.user(user);
    for (content, expected) in refused {
        home.project(content);
        let said = home.fails(&["config", "list"]);
        assert!(said.contains(&format!("/project/.rath/config.toml:{}", line_of(expected, content))), "{said}");
        assert!(said.contains(expected), "{content:?}: {said}");
        // Commands that would run something are refused too.
        assert!(home.fails(&["new", "a try", "--in", "."]).contains(expected));
    }
    for content in narrow {
        home.project(content);
        home.ok(&["config", "list"]);
    }
    home.ok(&["config", "trust"]);
    assert!(home.ok(&["config", "get", "trust"]).contains("/project"));
    for (content, _) in &refused[1..] {
        home.project(content);
        home.ok(&["config", "list"]);
    }
    home.project(refused[0].0);
    assert!(home.fails(&["config", "list"]).contains(refused[0].1));
}

/// The expected line of an error: that of the last key, or of the first value in its table.
fn line_of(expected: &str, content: &str) -> usize {
    let key = expected.split(':').next().unwrap().rsplit('.').next().unwrap();
    content.lines().position(|line| line.starts_with(key)).map_or(2, |line| line + 1)
}

#[test]
fn an_invalid_value_is_not_written() {
    let home = TestHome::with_store();
    home.project("# mine\n");
    for (key, value) in
        [("sandbox.read", "[\"/root\"]"), ("no.such.key", "1"), ("workspace", "3"), ("trust", "[\"/\"]")]
    {
        home.fails(&["config", "set", key, value]);
        assert_eq!(fs::read_to_string(home.path("project/.rath/config.toml")).unwrap(), "# mine\n");
    }
    assert_eq!(home.run(&["config", "set", "a..b", "1"], &[]).status.code(), Some(2));
}
