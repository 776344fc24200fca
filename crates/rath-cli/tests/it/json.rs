//! What `--json` prints is what docs/reference/json.md documents.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::workspace::{TestProject, lines, text};

fn crate_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The documented fields of each schema: the first column of the tables in its section.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let page = std::fs::read_to_string(crate_file("../../docs/reference/json.md")).unwrap();
    let mut schemas: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut current = None;
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            let schema = heading.trim_matches('`').to_owned();
            schemas.entry(schema.clone()).or_default();
            current = Some(schema);
        } else if let (Some(schema), Some(row)) = (&current, line.strip_prefix("| `")) {
            let fields = row.split('|').next().unwrap_or_default();
            let fields = fields.split('`').map(|name| name.trim_matches([',', ' '])).filter(|name| !name.is_empty());
            schemas.get_mut(schema).unwrap().extend(fields.map(str::to_owned));
        }
    }
    schemas
}

/// The schemas in the source of the command line.
fn in_source(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            in_source(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(&path).unwrap();
            let literals = source.split('"').filter(|text| text.starts_with("rath.") && text.ends_with("/1"));
            found.extend(literals.map(str::to_owned));
        }
    }
}

#[test]
fn every_schema_is_documented_and_every_documented_schema_exists() {
    let mut found = BTreeSet::new();
    in_source(&crate_file("src"), &mut found);
    assert_eq!(found, documented().into_keys().collect());
}

#[test]
fn every_command_prints_its_documented_fields() {
    let project = TestProject::new();
    project.put("work/a", "one\n");
    project.put(
        "run.toml",
        "task = \"Go.\"\n[agents.a]\ntools = [\"ask_human\"]\n[[turn]]\n\
         call = [{ tool = \"ask_human\", arguments = { question = \"Well?\" } }]\n[[turn]]\ntext = \"Done.\"\n",
    );
    project.put("talk.jsonl", "{\"role\": \"user\", \"content\": \"hi\"}\n");
    let session = project.ok(&["new", "a try", "--message", "needle"]);
    let fork = project.ok(&["fork", &session]);
    let at = |seq: u64| format!("{session}@{seq}");
    let of = |path: &str| format!("{session}:{path}");
    let commands: &[&[&str]] = &[
        &["ls"],
        &["status", &session],
        &["show", &session],
        &["show", &at(2)],
        &["show", &session, "--state"],
        &["show", &session, "--steps"],
        &["log", &session],
        &["log", "--graph"],
        &["grep", "needle"],
        &["grep", "needle", "--count"],
        &["tail", "--no-follow", &session],
        &["diff", &session, &fork],
        &["new", "another"],
        &["fork", &session],
        &["add", &session, "more"],
        &["session", "label", &session, "urgent"],
        &["session", "label", &session],
        &["session", "unlock", &session],
        &["workspace", "set", &session, "--on", "host", "--in", "work"],
        &["exec", &session, "sh", "-c", "echo two >> a"],
        &["show", &session, "--stat"],
        &["file", "ls", &session],
        &["file", "cat", &of("a")],
        &["file", "blame", &of("a")],
        &["workspace", "ls"],
        &["workspace", "path", &session],
        &["workspace", "save", &session],
        &["apply", &session],
        &["undo", &session, "--force"],
        &["restore", &at(2), "--force"],
        &["resolve", "--list", &session],
        &["workspace", "prune", "--dry-run"],
        &["send", &session, "hello"],
        &["merge", &session, &fork],
        &["cancel", &session],
        &["run", "-a", "run.toml", "-q", "--key", "k"],
        &["inbox"],
        &["show", "@", "--context"],
        &["show", "@", "--request"],
        &["export", &session, "--bundle", "bundle"],
        &["import", "bundle", "bundle"],
        &["import", "jsonl", "talk.jsonl"],
        &["checkpoint"],
        &["checkpoint", "list"],
        &["checkpoint", "key", "show"],
        &["verify"],
        &["doctor", "--offline"],
        &["doctor", "--reindex"],
        &["init", "other"],
        &["config", "list"],
        &["config", "get", "sandbox"],
        &["config", "path"],
        &["auth", "list"],
        &["policy", "list"],
        &["policy", "test", "shell", "--command", "ls"],
        &["store", "stats"],
        &["store", "gc", "--dry-run"],
        &["store", "hold", &session, "--why", "case 17"],
        &["store", "hold"],
        &["store", "hold", "--end", &session, "--why", "closed"],
        &["store", "erase", &at(2), "--why", "ticket 12", "--yes"],
        &["help", "addressing"],
        &["help", "error"],
        &["help", "error", "session-held"],
        // Errors.
        &["show", "nosuch"],
        &["frobnicate"],
        &["add", "operator", "x"],
    ];
    project.put(".rath/config.toml", "[sandbox]\nseconds = 30\n[[policy]]\neffect = \"ask\"\ntool = \"write\"\n");
    let documented = documented();
    let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for command in commands {
        let out = project.run(&[&["--json"], *command].concat());
        let printed = text(if out.stdout.is_empty() { &out.stderr } else { &out.stdout });
        let printed = printed.lines().filter(|line| line.starts_with('{'));
        let mut any = false;
        for line in printed {
            let value: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{command:?}: {line}"));
            let schema = value["schema"].as_str().unwrap_or_else(|| panic!("{command:?} has no schema: {line}"));
            let fields = seen.entry(schema.to_owned()).or_default();
            for item in lines(line) {
                let object = item.as_object().unwrap_or_else(|| panic!("{command:?}: {item}"));
                fields.extend(object.keys().filter(|name| *name != "schema" && *name != "items").cloned());
            }
            any = true;
        }
        assert!(any, "{command:?} printed no JSON: {}", text(&out.stderr));
    }
    let mut wrong = String::new();
    for (schema, fields) in &seen {
        let known = documented.get(schema).cloned().unwrap_or_default();
        let missing: Vec<_> = fields.difference(&known).collect();
        if !missing.is_empty() {
            wrong.push_str(&format!("{schema}: {missing:?}\n"));
        }
    }
    assert!(wrong.is_empty(), "docs/reference/json.md lacks fields:\n{wrong}");
}
