//! Loading scripts from files.

use std::fs;

use rath_core::Model as _;
use rath_model::scripted::Scripted;

use crate::support::Step;

const TOML: &str = r#"
model = "filed"

[[turn]]
reasoning = "hmm"
text = "Let me look."
call = [{ tool = "read", arguments = { path = "a.txt" } }, { tool = "list", id = "mine" }]

[[turn]]
fails = [{ times = 1, why = "overloaded", after_ms = 5 }]
text = "It says hello."

[[turn]]
when = "weather"
text = "Sunny."

[[turn]]
matches = '^\d+$'
call = [{ tool = "count", arguments = "{ broken" }]

[[turn]]
otherwise = true
text = "That is all."
"#;

const JSONL: &str = r#"{"model": "filed"}
{"reasoning": "hmm", "text": "Let me look.", "call": [{"tool": "read", "arguments": {"path": "a.txt"}}, {"tool": "list", "id": "mine"}]}

{"fails": [{"times": 1, "why": "overloaded", "after_ms": 5}], "text": "It says hello."}
{"when": "weather", "text": "Sunny."}
{"matches": "^\\d+$", "call": [{"tool": "count", "arguments": "{ broken"}]}
{"otherwise": true, "text": "That is all."}
"#;

#[test]
fn toml_and_jsonl_scripts_behave_the_same() {
    let dir = tempfile::tempdir().unwrap();
    for (name, script) in [("script.toml", TOML), ("script.jsonl", JSONL)] {
        let path = dir.path().join(name);
        fs::write(&path, script).unwrap();
        let model = Scripted::from_file(&path).unwrap();
        assert_eq!(model.name(), "filed");
        let mut step = Step::new();
        assert_eq!(step.turn(&model), r#"(hmm) Let me look. read({"path":"a.txt"}) [call-0-0] list({}) [mine]"#);
        assert_eq!(step.turn(&model), "failed: overloaded");
        assert_eq!(step.turn(&model), "It says hello.");
        for (asked, answer) in
            [("The weather?", "Sunny."), ("17", "count({ broken) [call-3-0]"), ("What else?", "That is all.")]
        {
            step.session.user(asked).unwrap();
            assert_eq!(step.turn(&model), answer);
        }
    }
}

#[test]
fn errors_in_toml_scripts_name_line_and_reason() {
    let cases = [
        ("[[turn]\n", "line 1 of the script, `[[turn]`: "),
        (
            "\n[[turn]]\ntxt = 'a'\n",
            "line 3 of the script, `txt = 'a'`: unknown field `txt`, expected one of `model`, ",
        ),
        (
            "[[turn]]\ntext = 'a'\ndelay_ms = 'soon'\n",
            "line 3 of the script, `delay_ms = 'soon'`: invalid type: string \"soon\", expected u64",
        ),
        (
            "[[turn]]\ncall = [{ name = 'a' }]\n",
            "line 2 of the script, `call = [{ name = 'a' }]`: unknown field `name`",
        ),
        ("[[turn]]\ncall = [{ id = 'a' }]\n", "line 2 of the script, `call = [{ id = 'a' }]`: missing field `tool`"),
        ("text = 'a'\n", "line 1 of the script, `text = 'a'`: unknown field `text`, expected `model` or `turn`"),
        (
            "[[turn]]\ntext = 'a'\n\n[[turn]]\nmatches = '('\ntext = 'b'\n",
            "line 4 of the script, field `matches` of the turn: expected a regular expression: ",
        ),
        (
            "[[turn]]\ntext = 'a'\nwhen = 'b'\notherwise = true\n",
            "line 1 of the script, field `when` of the turn: expected one of `when`, `matches` and `otherwise`, or none",
        ),
        (
            "[[turn]]\ntext = 'a'\nchunks = 0\n",
            "line 1 of the script, field `chunks` of the turn: found 0, expected at",
        ),
        ("[[turn]]\nagent = 'a'\n", "line 1 of the script, field `text` of the turn: expected `text`, `reasoning`, "),
        (
            "[[turn]]\nmodel = 'a'\ntext = 'a'\n",
            "line 1 of the script, field `model` of the turn: it names the model of",
        ),
    ];
    for (script, expected) in cases {
        let error = Scripted::from_toml(script).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{script:?}: {error}");
    }
}

#[test]
fn errors_in_jsonl_scripts_name_line_and_reason() {
    let cases = [
        ("{\"text\": \"a\"}\n{", "line 2 of the script, the turn: EOF while parsing an object (column 1)"),
        (
            r#"{"text": "a", "delay_ms": "soon"}"#,
            "line 1 of the script, field `delay_ms`: invalid type: string \"soon\", expected u64 (column 32)",
        ),
        (
            r#"{"call": [{"tool": "a"}, {"tool": 1}]}"#,
            "line 1 of the script, field `call[1].tool`: invalid type: integer",
        ),
        (r#"{"txt": "a"}"#, "line 1 of the script, field `txt`: unknown field `txt`, expected one of "),
        (r#"{"text": "a"} {"text": "b"}"#, "line 1 of the script, after the turn: trailing characters (column 15)"),
        (r#"{"text": "a", "chunks": 0}"#, "line 1 of the script, field `chunks`: found 0, expected at least 1"),
        (
            r#"{"model": "a", "text": "b"}"#,
            "line 1 of the script, field `model`: it names the model and must be the only",
        ),
    ];
    for (script, expected) in cases {
        let error = Scripted::from_jsonl(script).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{script:?}: {error}");
    }
}

#[test]
fn errors_about_script_files_name_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let error = |name: &str| Scripted::from_file(dir.path().join(name)).unwrap_err().to_string();
    assert!(error("a.yaml").ends_with("a.yaml is not a script: the file name must end in .toml or .jsonl"));
    assert!(error("a.toml").contains("a.toml: "));
    fs::write(dir.path().join("b.toml"), "model = 1").unwrap();
    assert!(error("b.toml").contains("b.toml: line 1 of the script, `model = 1`: invalid type: integer `1`"));
}
