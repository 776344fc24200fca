//! Workflows without Rust: the run files in examples/workflows, `--best-of`, and `rath workflow`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::local::isolates;
use crate::person::Person;
use crate::workspace::{TestProject, lines, text};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/workflows").join(name)
}

/// Runs a file of examples/workflows to its end. Returns the answer.
fn run_example(project: &TestProject, name: &str) -> String {
    project.ok(&["run", "-q", "-a", example(name).to_str().unwrap()])
}

/// The reasons why branches of the newest session were rejected.
fn rejections(project: &TestProject) -> Vec<String> {
    let log = lines(&project.ok(&["log", "--json", "@"]));
    let rejected = log.iter().filter(|record| record["header"]["kind"] == "rejected");
    rejected.map(|record| record["body"]["why"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_shipped_workflow_is_valid() {
    let project = TestProject::new();
    let mut count = 0;
    for entry in std::fs::read_dir(example(".")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let checked = project.json(&["workflow", "check", path.to_str().unwrap()]);
            assert_eq!(checked["valid"], true, "{checked}");
            count += 1;
        }
    }
    assert_eq!(count, 5);
}

#[test]
fn the_best_of_three_fixes_is_kept() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    assert!(run_example(&project, "best-of-three.toml").contains("compares numbers now"));
    assert!(project.ok(&["file", "cat", "@:version.sh"]).contains("-gt"), "the fix of `careful`");
    let rejections = rejections(&project);
    assert_eq!(rejections.len(), 2);
    for why in rejections {
        assert!(why.contains("FAILED: version.sh"), "the output of the test is the reason: {why}");
    }
    let steps = project.ok(&["show", "--steps", "@"]);
    for name in ["careful", "quick", "bold", "validate: sh test.sh"] {
        assert!(steps.contains(name), "no {name:?} in\n{steps}");
    }
    project.sound();
}

#[test]
fn a_plan_is_executed_again_after_a_rejection() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    assert!(run_example(&project, "plan-execute.toml").contains("greets the world"));
    assert_eq!(project.ok(&["file", "cat", "@:hello.sh"]), "echo \"Hello, ${1:-world}!\"");
    assert!(project.ok(&["show", "@"]).contains("did not accept the work"));
}

#[test]
fn a_text_is_written_until_the_critic_accepts_it() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    assert!(run_example(&project, "writer-critic.toml").starts_with("ACCEPTED"));
    assert!(project.ok(&["file", "cat", "@:README.txt"]).contains("with their files"));
    let steps = project.ok(&["show", "--steps", "@"]);
    assert!(steps.contains("round 2") && !steps.contains("round 3"), "{steps}");
}

#[test]
fn files_are_mapped_and_reduced() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    assert!(run_example(&project, "map-reduce.toml").contains("send Ada the report"));
    assert!(project.ok(&["file", "cat", "@:SUMMARY.txt"]).contains("before Friday"));
    let shown = project.ok(&["show", "@"]);
    for answer in ["Ada needs the report by Friday.", "A new printer is ordered.", "not sent yet"] {
        assert!(shown.contains(answer), "no {answer:?} in\n{shown}");
    }
}

/// The question, as `rath inbox` shows it.
fn question(project: &TestProject) -> String {
    let asks = lines(&project.ok(&["inbox", "--json"]));
    assert_eq!(asks.len(), 1, "{asks:?}");
    let at = &asks[0]["at"];
    format!("{}@{}", at["session"].as_str().unwrap(), at["seq"])
}

#[test]
fn a_review_gate_waits_for_a_person_and_resumes_without_its_file() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    let file = std::fs::read_to_string(example("review-gate.toml")).unwrap();
    project.put("gate.toml", file);
    project.put("review-gate/prices.txt", "Prices\n\nTea    2.00\nCoffee 3.00\n");
    let waiting = project.fails(5, &["run", "-q", "-a", "gate.toml"]);
    assert!(waiting.contains("rath resume"), "{waiting}");
    // The run records its workflow.
    std::fs::remove_file(project.path("gate.toml")).unwrap();
    let question = question(&project);
    project.ok(&["answer", &question, "yes"]);
    let session = question.split('@').next().unwrap();
    assert_eq!(project.ok(&["resume", "-q", session]), "The announcement is in announcement.txt.");
    assert!(project.ok(&["file", "cat", "@:announcement.txt"]).contains("3.50"));
    project.ok(&["apply", "@"]);
    assert!(project.read("review-gate/prices.txt").contains("Coffee 3.50"));
    project.sound();
}

#[test]
fn a_review_gate_fails_if_the_person_says_no() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    project.fails(5, &["run", "-q", "-a", example("review-gate.toml").to_str().unwrap()]);
    let question = question(&project);
    project.ok(&["answer", &question, "no"]);
    let session = question.split('@').next().unwrap();
    let failed = project.fails(1, &["resume", session]);
    assert!(failed.contains("a person said no"), "{failed}");
    assert!(project.ok(&["file", "ls", "@"]).contains("prices.txt"));
    assert!(!project.ok(&["file", "ls", "@"]).contains("announcement"));
}

const SCRIPT: &str = r#"
[[turn]]
text = "I edit."
call = [{ tool = "edit", arguments = { path = "notes", old = "one", new = "two" } }]
[[turn]]
otherwise = true
text = "Edited."
"#;

#[test]
fn best_of_needs_no_file() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    project.put("script.toml", SCRIPT);
    project.put("work/notes", "one\n");
    let run = ["run", "-q", "-m", "scripted/script.toml", "--in", "work", "--best-of", "3"];
    let answer = project.ok(&[&run[..], &["--test", "grep two notes", "edit the notes"]].concat());
    assert_eq!(answer, "Edited.");
    assert_eq!(project.ok(&["file", "cat", "@:notes"]), "two");
    assert_eq!(rejections(&project).len(), 2);
    assert_eq!(project.ok(&["resume", "-q", "@"]), "Edited.", "the same workflow is built again");
    let refused = project.run(&[&["--json"], &run[..], &["--test", "grep three notes", "edit the notes"]].concat());
    assert_eq!(refused.status.code(), Some(1));
    let error: Value = serde_json::from_str(text(&refused.stderr).lines().last().unwrap()).unwrap();
    assert_eq!(error["code"], "no-branch-accepted", "{error}");
    project.fails(2, &["run", "--best-of", "3", "x"]);
    project.fails(2, &["run", "--best-of", "1", "--test", "true", "x"]);
}

const TEAM: &str = r#"task = "Go."
[workflow]
kind = "parallel"
branches = ["one", "two"]
join = "answers"
[agents.one]
[agents.two]
model = "nobody/x"
"#;

#[test]
fn a_model_on_the_command_line_is_used_by_all_agents_of_a_run_file() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    project.put("team.toml", TEAM);
    project.put("script.toml", "[[turn]]\ntext = \"Here.\"");
    project.ok(&["run", "-q", "-a", "team.toml", "-m", "scripted/script.toml", "--in", "work"]);
    let shown = project.ok(&["show", "@"]);
    assert!(shown.contains("## one") && shown.contains("## two"), "{shown}");
    project.fails(2, &["run", "-a", "team.toml", "-m", "scripted/script.toml", "--best-of", "2", "--test", "true"]);
}

#[test]
fn errors_of_a_workflow_have_a_file_and_a_line() {
    let project = TestProject::new();
    project.put("bad.toml", TEAM.replace("\"two\"]", "\"too\"]").replace("join", "joni"));
    let checked = project.run(&["workflow", "check", "bad.toml"]);
    assert_eq!(checked.status.code(), Some(3));
    let expected = "bad.toml:4:20: unknown agent or step \"too\"\n  help: did you mean \"two\"?\n\
                    bad.toml:5:1: unknown key of parallel: \"joni\"\n  help: did you mean \"join\"?\n";
    assert_eq!(text(&checked.stdout), expected);
    let checked = project.json(&["workflow", "check", "bad.toml"]);
    assert_eq!((&checked["valid"], &checked["problems"][0]["line"]), (&false.into(), &4.into()), "{checked}");
    let refused = project.fails(1, &["run", "-a", "bad.toml", "x"]);
    assert!(refused.contains("bad.toml:4:20: unknown agent or step"), "{refused}");
    assert!(refused.contains("`rath workflow check bad.toml` lists all 2 problems"), "{refused}");
    project.fails(1, &["workflow", "show", "bad.toml"]);

    project.put("team.toml", TEAM);
    let shown = project.ok(&["workflow", "show", "team.toml"]);
    assert_eq!(
        shown,
        "parallel workflow, join=answers\n  one: agent one, model=scripted, tools=[]\n  two: agent two, model=nobody/x, tools=[]"
    );
    let shown = project.json(&["workflow", "show", "team.toml"]);
    assert_eq!(shown["workflow"]["children"][1]["role"], "two", "{shown}");
    project.put("agent.md", "---\nname: a\n---\nHello.");
    assert_eq!(project.json(&["workflow", "check", "agent.md"])["valid"], true);
}

#[test]
fn a_review_gate_asks_at_the_terminal() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    let file = example("review-gate.toml");
    let mut person = Person::begins(&project, &["run", "-a", file.to_str().unwrap()]);
    person.waits_for("Publish the new prices?");
    person.waits_for("› ");
    person.types("yes\r");
    person.waits_for("Apply them?");
    person.types("n\r");
    assert!(person.child.wait().unwrap().success(), "{}", person.sees());
    assert!(project.ok(&["file", "cat", "@:announcement.txt"]).contains("3.50"));
}
