//! What a run file's workflow becomes, and where problems are found.

use crate::agent_file::{Error, Resolver, RunFile};
use rath_core::{BoxModel, Workflow as _};
use rath_model::Scripted;
use std::sync::Arc;

struct Offline;

impl Resolver for Offline {
    type Error = Error;

    fn model(&self, name: &str, _: &[String]) -> Result<BoxModel, Error> {
        Ok(Arc::new(Scripted::new(name)))
    }
}

const AGENTS: &str = "[agents.plan]\n[agents.fix]\n[agents.test]\n";

fn outline(workflow: &str) -> String {
    let file = RunFile::parse(&format!("{workflow}\n{AGENTS}")).unwrap();
    let workflow = file.workflow(&Offline).unwrap();
    assert_eq!(RunFile::check(&format!("{workflow:?}\n"), &Offline).len(), 1, "a workflow is no run file");
    workflow.outline().to_string().replace(", model=scripted, tools=[]", "")
}

/// The positions and texts of the problems.
fn problems(text: &str) -> Vec<String> {
    let problems = RunFile::check(&format!("{text}\n{AGENTS}"), &Offline);
    problems.iter().map(|problem| problem.to_string().replace("\n  help: ", " / ")).collect()
}

#[test]
fn names_refer_to_agents_and_steps() {
    let shown = outline(
        r#"
        [workflow]
        kind = "gate"
        work = "fixers"
        validators = [{ command = "cargo test" }, { paths = ["src/**"] }]
        on_reject = { retry = 2 }
        [workflow.steps.fixers]
        kind = "parallel"
        branches = ["fix", "fix", { kind = "retry", name = "again", work = "test", backoff = "2s" }]
        join = { best = { command = "cargo test" } }
        "#,
    );
    let expected = "\
gate(workflow, validators=[cargo test, only paths src/**]
  (work): parallel(fixers, join=best by cargo test
    (fix 1): Agent(fix)
    (fix 2): Agent(fix)
    (again): retry(again, attempts=3
      (attempt): Agent(test)
    )
  )
)";
    assert_eq!(shown, expected);
}

#[test]
fn every_kind_is_built() {
    let shown = outline(
        r#"
        [workflow]
        kind = "chain"
        name = "everything"
        run = ["plan", { task = "Now:\n{answer}" }, "map", "choose", "race", "repeat", "timeout", "judged", "sleep", "wait", "scope"]
        [workflow.steps]
        map = { kind = "map", each = "fix", items = { files = "src/*" }, task = "Look at {item}.", at_most = 2 }
        choose = { kind = "choose", cases = [{ when = { answer = "x" }, then = "fix" }, { when = { label = "a=b" }, then = "fix" }], otherwise = "test" }
        race = { kind = "race", branches = ["fix", "test"], budget = "1usd" }
        repeat = { kind = "repeat", work = "fix", until = { person = "Good?" }, rounds = 2, budget = "2usd, 5k tokens" }
        timeout = { kind = "timeout", work = "fix", limit = "10 min" }
        judged = { kind = "gate", work = "fix", validators = [{ judge = "It is short.", agent = "test", votes = 3 }, { schema = { type = "array" } }] }
        sleep = { kind = "sleep", until = 2027-01-31T08:00:00+01:00 }
        wait = { kind = "wait_for", event = "paid" }
        scope = { kind = "compensate", run = [{ work = "plan", undo = "test" }, "fix"] }
        "#,
    );
    for part in [
        "chain(everything",
        "(2): task(Now:)",
        "map(map, join=answers",
        "(when answer contains \"x\"): Agent(fix)",
        "(when label a=b)",
        "race(race, join=winner",
        "repeat(repeat, rounds=2, until=person",
        "timeout(timeout, 600.0 s",
        "gate(judged, validators=[test: It is short., JSON schema]",
        "until 2027-01-31T07:00:00",
        "event paid",
        "(undo plan): Agent(test)",
    ] {
        assert!(shown.contains(part), "no {part:?} in\n{shown}");
    }
}

#[test]
fn problems_have_a_position_and_help() {
    for (text, expected) in [
        (
            "[workflow]\nkind = \"gate\"\nwork = \"fixx\"\nvalidators = [{ comand = \"x\" }]",
            vec![
                "line 3, column 8: unknown agent or step \"fixx\" / did you mean \"fix\"?",
                "line 4, column 17: unknown key of a validator: \"comand\" / did you mean \"command\"?",
            ],
        ),
        (
            "[workflow]\nkind = \"paralel\"",
            vec!["line 2, column 8: unknown kind \"paralel\" / did you mean \"parallel\"?"],
        ),
        (
            "[workflow]\nkind = \"chain\"\nrun = [\"a\"]\n[workflow.steps.a]\nkind = \"retry\"\nwork = \"b\"\n\
             [workflow.steps.b]\nkind = \"timeout\"\nlimit = 5\nwork = \"a\"",
            vec![
                "line 9, column 9: expected a time / a time is a number and a unit: \"90s\", \"10 min\", \"2h\", \"3d\"",
                "line 10, column 8: steps refer to each other in a circle: a → b → a",
            ],
        ),
        (
            "[workflow]\nkind = \"parallel\"\nbranches = \"fix\"",
            vec!["line 3, column 12: expected a list of agents and steps, found a value of type string"],
        ),
        ("[workflow]\nkind = \"sleep\"", vec!["line 1, column 2: expected either `for` or `until`"]),
        (
            "[workflow]\nkind = \"race\"\nbranches = [\"fix\"]\n[workflow.steps.fix]\nkind = \"sleep\"\nfor = \"1s\"",
            vec!["line 4, column 17: \"fix\" is the name of an agent and of a step / rename one of them"],
        ),
        ("workflow = 3", vec!["line 1, column 12: expected a table [workflow], found a value of type integer"]),
        ("[workflow", vec!["line 1, column 10: "]),
        ("[agents.x]\ntols = []", vec!["line 2, column 1: unknown field `tols`"]),
        (
            "[agents.a]\ntools = [\"fly\"]\n[workflow]\nkind = \"race\"\nbranches = [\"a\"]",
            vec!["line 1, column 9: unknown tool or agent \"fly\""],
        ),
    ] {
        let found = problems(text);
        assert_eq!(found.len(), expected.len(), "{text}: {found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{text}\n{found}\n{expected}");
        }
    }
}

#[test]
fn a_tree_that_grows_without_limit_is_refused() {
    let mut text = String::from("[workflow]\nkind = \"chain\"\nrun = [\"s0\"]\n");
    for at in 0..30 {
        let next = if at == 29 { "fix".to_owned() } else { format!("s{}", at + 1) };
        text.push_str(&format!("[workflow.steps.s{at}]\nkind = \"chain\"\nrun = [\"{next}\", \"{next}\"]\n"));
    }
    assert!(problems(&text).iter().any(|problem| problem.contains("too large")), "{:?}", problems(&text));
}

#[test]
fn the_workflows_in_the_docs_are_valid() {
    let pages = [
        include_str!("../../../../../docs/reference/agent-files.md"),
        include_str!("../../../../../docs/guides/compose-agents.md"),
    ];
    for page in pages {
        let blocks = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        let blocks: Vec<_> = blocks.filter(|block| block.contains("[workflow]")).collect();
        assert_eq!(blocks.len(), 1);
        assert_eq!(RunFile::check(blocks[0], &Offline), []);
    }
}

#[test]
fn an_agent_with_an_output_is_built() {
    let text = "[agents.a]\noutput = { type = \"array\", items = { type = \"string\" } }";
    assert_eq!(RunFile::check(text, &Offline), []);
    let found = RunFile::check("[agents.a]\noutput = { type = 7 }", &Offline);
    assert!(found[0].problem.contains("`output`: "), "{found:?}");
    assert_eq!(found[0].line, 1);
}
