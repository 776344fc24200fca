use std::path::Path;

use proptest::prelude::*;
use rath_core::body::{Grant, Scope};
use rath_core::{PathArguments, ToolSpec};
use serde_json::json;

use super::*;
use crate::tools;

fn shell(policy: &Policy, command: &str) -> PolicyAction {
    let arguments = json!({ "command": command }).to_string();
    let call = ProposedCall {
        tool: "shell",
        arguments: &arguments,
        effect: Effect::Irreversible,
        spec: tools::spec("shell"),
        root: None,
    };
    policy.decide(&call).action
}

fn on(policy: &Policy, tool: &str, path: &str) -> PolicyAction {
    let arguments = json!({ "path": path }).to_string();
    let root = Some(Path::new("/home/ada/space"));
    let spec = tools::spec(tool);
    policy.decide(&ProposedCall { tool, arguments: &arguments, effect: Effect::Workspace, spec, root }).action
}

fn allow() -> PolicyRule {
    PolicyRule::new(PolicyAction::Allow)
}

fn deny() -> PolicyRule {
    PolicyRule::new(PolicyAction::Deny)
}

#[test]
fn the_first_rule_that_matches_decides() {
    let deny_first = Policy::new(vec![deny().command("git push*"), allow().command("git *")]).unwrap();
    assert_eq!(shell(&deny_first, "git push origin"), PolicyAction::Deny);
    assert_eq!(shell(&deny_first, "git log"), PolicyAction::Allow);
    let allow_first = Policy::new(vec![allow().command("git *"), deny().command("git push*")]).unwrap();
    assert_eq!(shell(&allow_first, "git push origin"), PolicyAction::Allow);
    // All conditions must hold.
    let both =
        Policy::new(vec![deny().tool("write").path("src/**"), deny().tool("edit").effect(Effect::Pure)]).unwrap();
    assert_eq!(on(&both, "write", "src/a"), PolicyAction::Deny);
    assert_eq!(on(&both, "read", "src/a"), PolicyAction::Allow);
    assert_eq!(on(&both, "edit", "src/a"), PolicyAction::Allow);
}

#[test]
fn every_part_of_a_line_must_be_allowed() {
    let policy = Policy::new(vec![allow().command("cargo test *"), allow().command("tail *"), deny().command("curl")]);
    let policy = policy.unwrap();
    for line in ["cargo test", "cargo test --all 2>&1 | tail -5", "cargo test; cargo test"] {
        assert_eq!(shell(&policy, line), PolicyAction::Allow, "{line}");
    }
    for line in [
        "cargo build",
        "cargo test; rm -rf /",
        "cargo test && rm x",
        "cargo test | sh",
        "cargo test\nrm x",
        "cargo test & rm x",
        "cargo test $(rm x)",
        "cargo test `rm x`",
        "cargo test > /etc/passwd",
        "cargo test <(rm x)",
        "X=1 cargo test",
        "/tmp/cargo test",
        "cargo testify",
        "cargo 'test; rm x'",
        "cargo test # '\nrm x # '",
    ] {
        assert_ne!(shell(&policy, line), PolicyAction::Allow, "{line}");
    }
    // A deny rule matches any part of a parsed line, and any word of an unparsed one.
    for line in ["cargo test | curl x", "curl", "/usr/bin/curl -d x", "sudo curl x", "sh -c 'curl x'", "echo $(curl x)"]
    {
        assert_eq!(shell(&policy, line), PolicyAction::Deny, "{line}");
    }
    assert_eq!(shell(&policy, "tail curl"), PolicyAction::Allow);
}

#[test]
fn a_pattern_without_a_star_allows_exactly_these_words() {
    let policy = Policy::new(vec![allow().command("rm build"), deny().command("git push")]).unwrap();
    assert_eq!(shell(&policy, "rm build"), PolicyAction::Allow);
    assert_eq!(shell(&policy, "rm build -rf /"), PolicyAction::Ask);
    assert_eq!(shell(&policy, "git push --force"), PolicyAction::Deny);
}

#[test]
fn deny_rules_match_behind_options_wildcards_and_wrappers() {
    let policy =
        Policy::new(vec![deny().command("git push*"), allow().command("git *"), allow().command("*")]).unwrap();
    for line in [
        "git -C . push",
        "git --no-pager push",
        "git -c user.name=x -C /tmp push --force",
        "git log && git -C /x push",
        "git p?sh",
        "git [p]ush",
        "taskset 1 git push",
        "fish -c 'git push'",
        "npx git push",
        "/usr/bin/git -P push",
    ] {
        assert_eq!(shell(&policy, line), PolicyAction::Deny, "{line}");
    }
    for line in ["git log push", "git commit -m 'do not push'", "git add *.rs", "git -C . log", "git stash push"] {
        assert_eq!(shell(&policy, line), PolicyAction::Allow, "{line}");
    }
}

#[test]
fn a_long_line_needs_little_memory() {
    let policy = Policy::new(vec![deny().command("git push")]).unwrap();
    for word in ["a ", "git ", "git -a ", "env git -a ", "$x git "] {
        let line = word.repeat((64 << 10) / word.len());
        assert_ne!(shell(&policy, &line), PolicyAction::Deny, "{word}");
    }
}

#[test]
fn paths_are_resolved_before_they_are_matched() {
    let policy = Policy::new(vec![
        deny().path("private/"),
        allow().path("src/**"),
        PolicyRule::new(PolicyAction::Ask).tool("*"),
    ]);
    let policy = policy.unwrap();
    for path in
        ["private", "private/a/b", "./src/../private/a", "/home/ada/space/private/a", "../space/private/a", "x/private"]
    {
        assert_eq!(on(&policy, "read", path), PolicyAction::Deny, "{path}");
    }
    for path in ["src/a", "src/./x/../a", "/home/ada/space/src/a"] {
        assert_eq!(on(&policy, "read", path), PolicyAction::Allow, "{path}");
    }
    for path in ["src/../x", "../src/a", "/src/a", "/home/bob/src/a", "."] {
        assert_eq!(on(&policy, "read", path), PolicyAction::Ask, "{path}");
    }
}

/// The decision about a call of a tool with these path arguments.
fn of_tool(policy: &Policy, paths: &PathArguments, arguments: serde_json::Value) -> PolicyDecision {
    let properties = json!({ "from": {}, "to": {}, "edits": {}, "dir": {}, "name": {}, "text": {}, "n": {} });
    let schema = json!({ "type": "object", "properties": properties });
    let spec = ToolSpec { paths: paths.clone(), ..ToolSpec::new("move_file", "Moves a file.", schema) };
    let (arguments, root) = (arguments.to_string(), Some(Path::new("/home/ada/space")));
    let effect = Effect::Workspace;
    policy.decide(&ProposedCall { tool: "move_file", arguments: &arguments, effect, spec: Some(&spec), root })
}

#[test]
fn paths_are_found_in_all_declared_arguments() {
    let policy =
        Policy::new(vec![deny().path("private/"), allow().path("src/**"), PolicyRule::new(PolicyAction::Ask)]).unwrap();
    let moves = PathArguments::named("from, to");
    for (from, to, action) in [
        ("src/a", "src/b", PolicyAction::Allow),
        ("src/a", "b", PolicyAction::Ask),
        ("src/a", "private/b", PolicyAction::Deny),
        ("private/b", "src/a", PolicyAction::Deny),
        ("src/../private/b", "src/a", PolicyAction::Deny),
        ("/home/ada/space/private/b", "src/a", PolicyAction::Deny),
        ("../space/private/b", "src/a", PolicyAction::Deny),
        ("/home/ada/space/src/b", "src/a", PolicyAction::Allow),
        ("src/a", "../src/b", PolicyAction::Ask),
        ("~/src/a", "src/b", PolicyAction::Ask),
    ] {
        let arguments = json!({ "from": from, "to": to, "text": "private/x" });
        assert_eq!(of_tool(&policy, &moves, arguments).action, action, "{from} to {to}");
    }
    assert_eq!(
        of_tool(&policy, &moves, json!({ "from": ["src/a", "private/b"], "to": "src/c" })).action,
        PolicyAction::Deny
    );
    assert_eq!(of_tool(&policy, &moves, json!({ "from": "src/a" })).action, PolicyAction::Ask);
    let edits = PathArguments::named("edits[].path");
    let edit = |paths: [&str; 2]| json!({ "edits": paths.map(|path| json!({ "path": path, "new": "private" })) });
    assert_eq!(of_tool(&policy, &edits, edit(["src/a", "src/b"])).action, PolicyAction::Allow);
    assert_eq!(of_tool(&policy, &edits, edit(["src/a", "private/b"])).action, PolicyAction::Deny);
}

#[test]
fn deny_and_ask_rules_apply_to_a_tool_without_declared_paths() {
    let policy = Policy::new(vec![
        deny().path("private/keys"),
        PolicyRule::new(PolicyAction::Ask).path("*.toml"),
        allow().path("src/**"),
        deny().tool("move_file").effect(Effect::Workspace).why("the end of the list"),
    ]);
    let policy = policy.unwrap();
    let unknown = PathArguments::Unknown;
    for (arguments, by) in [
        (json!({ "from": "private/keys" }), "private/keys"),
        (json!({ "edits": [{ "at": { "x": "private/keys/a" } }] }), "private/keys"),
        (json!({ "edits": { "private/keys": "x" } }), "private/keys"),
        (json!({ "text": "mv src/a private/keys" }), "private/keys"),
        (json!({ "text": "file:///home/ada/space/private/keys" }), "private/keys"),
        (json!({ "dir": "private", "name": "keys" }), "private/keys"),
        (json!({ "dir": "src", "name": "../private/keys" }), "private/keys"),
        // The paths in these arguments are unknown.
        (json!({ "n": 3 }), "private/keys"),
        (json!({}), "private/keys"),
        (json!({ "from": "a/b.toml" }), "*.toml"),
        (json!({ "dir": "a", "name": "b.toml" }), "*.toml"),
        // A rule that allows a path never matches.
        (json!({ "from": "src/a" }), "with workspace effects"),
    ] {
        let decided = of_tool(&policy, &unknown, arguments.clone());
        assert!(decided.by.contains(by), "{arguments}: {decided:?}");
        let is_ask = by == "*.toml";
        assert_eq!(decided.action, if is_ask { PolicyAction::Ask } else { PolicyAction::Deny }, "{arguments}");
        assert_eq!(
            decided.by.contains("move_file does not say which of its arguments are paths"),
            by.contains('.') || by.contains('/')
        );
    }
    // A tool can declare that no argument is a path, or compute its paths.
    for known in [PathArguments::named(""), PathArguments::named("to")] {
        let decided = of_tool(&policy, &known, json!({ "text": "private/keys", "to": "x" }));
        assert_eq!(decided.why.as_deref(), Some("the end of the list"), "{known:?}");
    }
    // A missing argument, or a value of another type.
    for arguments in [json!({ "to": "x", "target": "private/keys" }), json!({ "to": { "path": "private/keys" } })] {
        let decided = of_tool(&policy, &PathArguments::named("to"), arguments);
        assert!(decided.by.contains("private/keys"), "{decided:?}");
    }
}

#[test]
fn secrets_are_found_in_any_argument() {
    let policy = Policy::default();
    for arguments in [
        json!({ "from": ".env" }),
        json!({ "edits": [{ "at": "deploy/server.key" }] }),
        json!({ "text": "cp .env x" }),
        json!({ "edits": { ".npmrc": "" } }),
        json!({ "dir": "credentials", "name": "a" }),
    ] {
        let decided = of_tool(&policy, &PathArguments::Unknown, arguments.clone());
        assert!(
            decided.action == PolicyAction::Ask && decided.by.contains("looks like a secret"),
            "{arguments}: {decided:?}"
        );
    }
    let moves = PathArguments::named("from, to");
    assert_eq!(of_tool(&policy, &moves, json!({ "from": "a", "to": "b/.env" })).action, PolicyAction::Ask);
    assert_eq!(of_tool(&policy, &moves, json!({ "from": "a", "to": "b", "text": ".env" })).action, PolicyAction::Allow);
    // The suggested grant is not wider because of it.
    let offered = |paths: &PathArguments, arguments: serde_json::Value| {
        let schema = json!({ "type": "object", "properties": { "path": {} } });
        let spec = ToolSpec { paths: paths.clone(), ..ToolSpec::new("store", "Stores.", schema) };
        let (arguments, effect) = (arguments.to_string(), Effect::Workspace);
        suggest_grant(&ProposedCall { tool: "store", arguments: &arguments, effect, spec: Some(&spec), root: None })
            .scope
    };
    let below = offered(&PathArguments::named("path"), json!({ "path": "docs/a" }));
    assert_eq!(below, Scope::Below { directory: "docs".into() });
    assert!(matches!(offered(&PathArguments::Unknown, json!({ "path": "docs/a" })), Scope::Same { .. }));
}

#[test]
fn every_built_in_tool_declares_its_paths() {
    let policy = Policy::new(vec![deny().path("private/"), allow()]).unwrap();
    let decide = |tool: &str, arguments: serde_json::Value| {
        let (arguments, effect) = (arguments.to_string(), Effect::Workspace);
        let spec = tools::spec(tool);
        assert_ne!(spec.unwrap().paths, PathArguments::Unknown, "{tool}");
        policy
            .decide(&ProposedCall { tool, arguments: &arguments, effect, spec, root: Some(Path::new("/space")) })
            .action
    };
    let patch = |path: &str| format!("*** Begin Patch\n*** Delete File: {path}\n*** End Patch\n");
    for private in ["private/a", "./x/../private/a", "/space/private/a", "../space/private/a", "private"] {
        for (tool, arguments) in [
            ("read", json!({ "path": private, "offset": 1 })),
            ("ls", json!({ "path": private })),
            ("glob", json!({ "path": private, "pattern": "*" })),
            ("glob", json!({ "pattern": format!("{private}/*.rs") })),
            ("grep", json!({ "path": private, "pattern": "x" })),
            ("write", json!({ "path": private, "content": "" })),
            ("edit", json!({ "path": private, "old": "a", "new": "b" })),
            ("apply_patch", json!({ "patch": patch(private) })),
        ] {
            assert_eq!(decide(tool, arguments), PolicyAction::Deny, "{tool} {private}");
        }
    }
    for (tool, arguments) in [
        ("read", json!({ "path": "src/private.rs" })),
        ("ls", json!({})),
        ("glob", json!({ "pattern": "*.rs" })),
        ("grep", json!({ "pattern": "private" })),
        ("write", json!({ "path": "a", "content": "private/a" })),
        ("edit", json!({ "path": "a", "old": "private/a", "new": "" })),
        ("apply_patch", json!({ "patch": patch("src/a") })),
        ("todo", json!({ "items": [{ "text": "private/a", "progress": "open" }] })),
        ("ask_human", json!({ "question": "private/a?" })),
        // Path rules do not apply to files that a command reads.
        ("shell", json!({ "command": "cat private/a" })),
        ("shell", json!({ "poll": "bg-1" })),
    ] {
        assert_eq!(decide(tool, arguments.clone()), PolicyAction::Allow, "{tool} {arguments}");
    }
}

#[test]
fn path_arguments_are_not_in_an_agent_s_fingerprint() {
    let names = ["read", "ls", "glob", "grep", "write", "edit", "apply_patch", "shell", "todo", "ask_human"];
    for name in names {
        let stored = serde_json::to_value(tools::spec(name).unwrap()).unwrap();
        let fields: Vec<&String> = stored.as_object().unwrap().keys().collect();
        assert_eq!(fields, ["description", "effect", "name", "schema", "touches"], "{name}");
    }
}

#[test]
fn a_patch_names_every_path_in_it() {
    let policy =
        Policy::new(vec![deny().path("secret"), allow().path("src/**"), PolicyRule::new(PolicyAction::Ask)]).unwrap();
    let patch = |text: &str| {
        let arguments = json!({ "patch": format!("*** Begin Patch\n{text}*** End Patch\n") }).to_string();
        let spec = tools::spec("apply_patch");
        policy
            .decide(&ProposedCall {
                tool: "apply_patch",
                arguments: &arguments,
                effect: Effect::Workspace,
                spec,
                root: None,
            })
            .action
    };
    assert_eq!(patch("*** Add File: src/a\n+x\n"), PolicyAction::Allow);
    assert_eq!(patch("*** Add File: src/a\n+x\n*** Delete File: b\n"), PolicyAction::Ask);
    assert_eq!(patch("*** Add File: src/a\n+x\n*** Delete File: ./x/../secret\n"), PolicyAction::Deny);
    assert_eq!(patch("*** Update File: src/a\n*** Move to: secret\n@@\n-x\n+y\n"), PolicyAction::Deny);
    assert_eq!(patch("nonsense"), PolicyAction::Ask);
}

#[test]
fn the_defaults_are_safe() {
    let policy = Policy::default();
    assert_eq!(shell(&policy, "ls"), PolicyAction::Ask);
    assert_eq!(on(&policy, "read", "src/a"), PolicyAction::Allow);
    assert_eq!(on(&policy, "read", "a/../.env"), PolicyAction::Ask);
    let command = |command: &str| {
        let arguments = json!({ "command": command }).to_string();
        let spec = tools::spec("shell");
        policy
            .decide(&ProposedCall { tool: "shell", arguments: &arguments, effect: Effect::Workspace, spec, root: None })
            .action
    };
    assert_eq!(command("cargo test"), PolicyAction::Allow);
    assert_eq!(command("cat config/.env"), PolicyAction::Ask);
}

#[test]
fn restrictions_only_make_decisions_stricter() {
    let users = || {
        vec![deny().command("git push*"), allow().command("git *"), PolicyRule::new(PolicyAction::Ask).tool("shell")]
    };
    let restrictions = vec![
        allow().command("git push*"),
        PolicyRule::new(PolicyAction::Ask).command("git commit*"),
        deny().command("git gc"),
    ];
    let policy = Policy::new(users()).unwrap().with_restrictions(restrictions).unwrap();
    assert_eq!(shell(&policy, "git push"), PolicyAction::Deny);
    assert_eq!(shell(&policy, "git commit"), PolicyAction::Ask);
    assert_eq!(shell(&policy, "git gc"), PolicyAction::Deny);
    assert_eq!(shell(&policy, "git log"), PolicyAction::Allow);
    let open = Policy::new(users()).unwrap().with_restrictions(vec![allow()]).unwrap();
    assert_eq!(shell(&open, "rm x"), PolicyAction::Ask);
}

#[test]
fn an_explanation_ends_with_the_deciding_rule() {
    let policy = Policy::new(vec![deny().command("git push*").why("no pushes"), allow().command("git *")]).unwrap();
    let arguments = json!({ "command": "git log; git push" }).to_string();
    let spec = tools::spec("shell");
    let call = ProposedCall { tool: "shell", arguments: &arguments, effect: Effect::Workspace, spec, root: None };
    let (looked, decided) = policy.explain(&call);
    let facts: Vec<_> = looked.iter().map(|look| (look.rule.as_str(), look.matched, look.command.as_deref())).collect();
    assert_eq!(
        facts,
        [
            ("deny shell \"git push*\"", false, Some("git log")),
            ("allow shell \"git *\"", true, Some("git log")),
            ("deny shell \"git push*\"", true, Some("git push")),
        ]
    );
    assert_eq!((decided.action, decided.why.as_deref()), (PolicyAction::Deny, Some("no pushes")));
}

#[test]
fn invalid_patterns_are_refused() {
    for (rule, key) in [
        (allow().tool("["), "tool"),
        (allow().path("../x"), "path"),
        (allow().path(""), "path"),
        (allow().command(" "), "command"),
        (allow().command("git {"), "command"),
    ] {
        let error = Policy::new(vec![allow(), rule]).unwrap_err();
        assert_eq!((error.index, error.key), (1, key));
    }
}

#[test]
fn suggested_grants_are_narrow() {
    let grant = |tool: &str, arguments: serde_json::Value, effect| {
        suggest_grant(&ProposedCall {
            tool,
            arguments: &arguments.to_string(),
            effect,
            spec: tools::spec(tool),
            root: None,
        })
    };
    let covers = |grant: &Grant, tool: &str, arguments: serde_json::Value, effect| {
        covers(
            grant,
            &ProposedCall { tool, arguments: &arguments.to_string(), effect, spec: tools::spec(tool), root: None },
        )
    };
    let last = Effect::Irreversible;
    let test = grant("shell", json!({ "command": "cargo test --all" }), Effect::Workspace);
    assert_eq!(test.scope, Scope::Command { words: vec!["cargo".into(), "test".into()] });
    assert!(covers(&test, "shell", json!({ "command": "cargo test x" }), Effect::Workspace));
    assert!(!covers(&test, "shell", json!({ "command": "cargo test x" }), last));
    for line in ["cargo run", "cargo test; rm x", "cargo test > x", "cargo test $(x)", "cargo test | sh", "cargo"] {
        assert!(!covers(&test, "shell", json!({ "command": line }), Effect::Workspace), "{line}");
    }
    for line in ["rm build", "cargo run x", "npm run deploy", "cargo test; ls", "ls $(x)", "git -c x y"] {
        let exact = grant("shell", json!({ "command": line }), last);
        assert!(matches!(exact.scope, Scope::Same { .. }), "{line}");
        assert!(covers(&exact, "shell", json!({ "command": line }), last));
        assert!(!covers(&exact, "shell", json!({ "command": format!("{line} x") }), last));
    }
    let write = grant("write", json!({ "path": "docs/x/a.md", "content": "1" }), Effect::Workspace);
    assert_eq!(write.scope, Scope::Below { directory: "docs/x".into() });
    assert!(covers(&write, "write", json!({ "path": "docs/x/y/b.md", "content": "2" }), Effect::Workspace));
    for path in ["docs/xy", "docs/x", "docs/x/../a", "docs/x/.env", "/docs/x/a", "../docs/x/a"] {
        assert!(!covers(&write, "write", json!({ "path": path, "content": "2" }), Effect::Workspace), "{path}");
    }
    assert!(!covers(&write, "edit", json!({ "path": "docs/x/a.md" }), Effect::Workspace));
    for path in ["a.md", "docs/.env", "../a/b"] {
        assert!(matches!(grant("write", json!({ "path": path }), last).scope, Scope::Same { .. }), "{path}");
    }
    let deploy = grant("deploy", json!({ "to": "test" }), last);
    assert!(covers(&deploy, "deploy", json!({ "to": "test" }), last));
    assert!(!covers(&deploy, "deploy", json!({ "to": "production" }), last));
}

#[test]
fn a_rule_with_an_unknown_effect_is_refused() {
    let error = serde_json::from_str::<PolicyRule>(r#"{"decision": "deny", "effect": "irreversable"}"#).unwrap_err();
    assert!(error.to_string().contains("irreversable\" is not one of pure, idempotent"), "{error}");
    assert!(serde_json::from_str::<PolicyRule>(r#"{"decision": "deny", "effect": "irreversible"}"#).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// A rule that allows `ls` allows only plain `ls` commands.
    #[test]
    fn no_line_with_more_than_ls_is_allowed(text in "[ ls;&|\n'\"\\\\$()<>#{}`=r*/-]{0,24}") {
        let policy = Policy::new(vec![allow().command("ls *")]).unwrap();
        let line = format!("ls {text}");
        if shell(&policy, &line) == PolicyAction::Allow {
            let parsed = command::CommandLine::parse(&line);
            prop_assert!(parsed.parsed && parsed.parts.iter().all(|part| part[0] == "ls"), "{line:?}");
        }
    }
}
