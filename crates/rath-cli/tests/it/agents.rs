//! `rath run` with agents in Markdown: on a copy, in a pipe, at a terminal, interrupted, continued, over HTTP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::local::isolates;
use crate::person::Person;
use crate::runs::question;
use crate::workspace::{TestProject, command, lines, text};

const EDITOR: &str = "---\nname: editor\ntools: [coding, ask_human]\n---\nYou edit.\n";

const SCRIPT: &str = r#"
[[turn]]
matches = 'slowly$'
text = "one two three four five six seven"
chunks = 40
chunk_delay_ms = 100
[[turn]]
matches = '^edit'
text = "I edit."
call = [{ tool = "edit", arguments = { path = "notes", old = "one", new = "two" } }, { tool = "fly" }]
[[turn]]
matches = '^push'
call = [{ tool = "shell", arguments = { command = "git push" } }]
[[turn]]
otherwise = true
text = "That is all."
usage = { input_tokens = 10, output_tokens = 5 }
"#;

/// A store, an agent, a script, and notes to work on.
fn project() -> TestProject {
    let project = TestProject::new();
    project.put("editor.md", EDITOR);
    project.put("script.toml", SCRIPT);
    project.put("work/notes", "one\n");
    project
}

const MODEL: &str = "scripted/script.toml";

fn run<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["run", "-a", "editor.md", "-m", MODEL, "--in", "work"], more].concat()
}

fn newest(project: &TestProject) -> String {
    let listed = lines(&project.ok(&["ls", "-n", "1", "--json"]));
    listed.first().map_or_else(String::new, |row| row["id"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn an_agent_works_on_a_copy_and_its_changes_are_applied_if_approved() {
    if !isolates() {
        return;
    }
    let project = project();
    let out = project.run(&run(&["edit the notes"]));
    let (answer, told) = (text(&out.stdout), text(&out.stderr));
    assert!(out.status.success(), "{told}");
    assert_eq!(answer.trim_end(), "That is all.", "only the answer is data");
    for words in
        ["● edit notes", "-one", "+two", "● fly denied", "Unknown tool \"fly\"", "1 file changed", "rath apply"]
    {
        assert!(told.contains(words), "no {words:?} in\n{told}");
    }
    assert_eq!(project.read("work/notes"), "one\n", "the directory itself is left alone");
    let changed = project.run(&["diff", "@"]);
    assert_eq!(changed.status.code(), Some(3));
    assert!(text(&changed.stdout).contains("+two"));
    let told = text(&project.run(&run(&["-y", "edit the notes"])).stderr);
    assert!(told.contains("applied to"), "{told}");
    assert_eq!(project.read("work/notes"), "two\n");
    project.put("work/notes", "one\n");
    project.ok(&run(&["--in-place", "edit the notes", "-q"]));
    assert_eq!(project.read("work/notes"), "two\n");
    project.sound();
}

/// A reading call sees the user's edit; the next writing call records it.
#[test]
fn an_edit_of_the_user_survives_if_the_agent_reads_it_first() {
    if !isolates() {
        return;
    }
    let project = project();
    let more = r#"model = "other"
[[turn]]
call = [{ tool = "read", arguments = { path = "notes" } }]
[[turn]]
call = [{ tool = "write", arguments = { path = "mine", content = "x" } }]
[[turn]]
text = "Done.""#;
    project.put("other.toml", more);
    project.ok(&run(&["--in-place", "edit the notes", "-q"]));
    let session = newest(&project);
    for path in ["work/notes", "work/new"] {
        project.put(path, "a person's\n");
    }
    project.ok(&["run", "--continue", &session, "-m", "scripted/other.toml", "-q", "And?"]);
    for path in ["work/notes", "work/new"] {
        assert_eq!(project.read(path), "a person's\n");
    }
    let started = project.last(&session, "tool_started").unwrap();
    assert_eq!(started["outside"]["total"], 2, "{started}");
    let finished = project.last(&session, "tool_finished").unwrap();
    assert_eq!(finished["changed"]["total"], 1, "{finished}");
    project.sound();
}

#[test]
fn a_run_continues_with_another_model() {
    if !isolates() {
        return;
    }
    let project = project();
    project.put("other.toml", "model = \"other\"\n[[turn]]\ntext = \"Something else.\"");
    project.ok(&run(&["edit the notes", "-q"]));
    let session = newest(&project);
    let more = ["run", "--continue", &session, "-m", "scripted/other.toml", "-q", "And?"];
    assert_eq!(project.ok(&more), "Something else.");
    assert_eq!(project.ok(&["run", "--continue", "@", "-q", "And now?"]), "Something else.", "the model stays");
    assert_eq!(project.ok(&["resume", "@", "-q"]), "Something else.", "it is over, and stays so");
    let shown = project.ok(&["show", &session]);
    assert!(shown.contains("You edit.") || shown.contains("editor (agent, other)"), "{shown}");
    let words = shown.find("edit the notes").zip(shown.find("And?")).zip(shown.find("And now?"));
    assert!(words.is_some_and(|((first, second), third)| first < second && second < third), "{shown}");
    assert_eq!(lines(&project.ok(&["ls", "--json", "--all"])).len(), 1, "it is one session");
    project.sound();
}

#[test]
fn json_records_are_printed_while_a_run_works() {
    if !isolates() {
        return;
    }
    let project = project();
    let out = project.ok(&run(&["--json", "say slowly"]));
    let lines = lines(&out);
    let (last, records) = lines.split_last().unwrap();
    assert_eq!((&last["outcome"], &last["text"]), (&"done".into(), &"one two three four five six seven".into()));
    let seqs: Vec<_> = records.iter().filter_map(|record| record["header"]["seq"].as_u64()).collect();
    assert_eq!(seqs, (0..records.len() as u64).collect::<Vec<_>>(), "every record, once, in order");
    let session = last["session"].as_str().unwrap();
    let more = project.ok(&["run", "--json", "--continue", session, "And?"]);
    let first: Value = serde_json::from_str(more.lines().next().unwrap()).unwrap();
    assert_eq!((&first["header"]["kind"], &first["body"]["text"]), (&"user".into(), &"And?".into()), "what is new");
}

#[test]
fn a_run_that_cannot_start_reports_why_and_stores_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let fails = |code: i32, arguments: &[&str], words: &str| {
        let out = command(dir.path(), arguments).env("HOME", dir.path()).output().unwrap();
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: no {words:?} in {said}");
        assert!(!dir.path().join(".rath").exists(), "{arguments:?} made a store");
    };
    let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    put("a.md", EDITOR);
    put("b.md", "---\nname: b\ntools: [fly]\n---\n");
    put("s.toml", SCRIPT);
    // An Ollama server may run on the test machine, so its address is changed.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let out = command(dir.path(), &["run", "x"]).env("OLLAMA_HOST", nobody.to_string()).output().unwrap();
    if out.status.code() == Some(4) {
        let said = text(&out.stderr);
        assert!(said.contains("ANTHROPIC_API_KEY") && said.contains("ollama") && said.contains("rath demo"), "{said}");
        assert!(!dir.path().join(".rath").exists());
    }
    fails(4, &["run", "-m", "anthropic/claude-sonnet-4-5", "x"], "ANTHROPIC_API_KEY");
    fails(4, &["run", "-m", "claude-sonnet-4-5", "x"], "no API key for anthropic");
    fails(2, &["run", "-m", "nobody/x", "x"], "unknown provider \"nobody\"");
    fails(2, &["run", "-m", "qwen3:4b", "x"], "PROVIDER/MODEL");
    fails(2, &["run", "-m", "ollama/", "x"], "without a model");
    fails(1, &["run", "-m", "scripted/nowhere.toml", "x"], "nowhere.toml");
    fails(2, &["run", "-m", "scripted/s.toml", "--budget", "plenty", "x"], "a budget looks like");
    fails(2, &["run", "-m", "scripted/s.toml", "--budget", "0.5 turns", "x"], "turns and tokens must be whole");
    put("bare.md", "You edit.\n");
    fails(1, &["run", "-a", "bare.md", "-m", "scripted/s.toml", "x"], "neither an agent file (Markdown that starts");
    put("c.md", "---\nname: c\ntools: [coding\nmodel: x\n---\n");
    fails(1, &["run", "-a", "c.md", "x"], "line 4");
    fails(2, &["run", "-m", "scripted/s.toml", ""], "the task is empty");
    fails(2, &["run", "-m", "scripted/s.toml"], "no task");
    fails(2, &["run", "a.md"], "rath run -a a.md");
    fails(1, &["run", "-a", "b.md", "-m", "scripted/s.toml", "x"], "unknown tool or agent \"fly\"");
    fails(1, &["run", "-a", "nowhere.md", "x"], "nowhere.md");
    fails(1, &["run", "--continue", "@", "x"], "no store found");
}

#[test]
fn a_run_key_belongs_to_one_task() {
    if !isolates() {
        return;
    }
    let project = project();
    let key = ["--key", "nightly", "-q"];
    assert_eq!(project.ok(&run(&[&key[..], &["edit the notes"]].concat())), "That is all.");
    assert_eq!(project.ok(&run(&[&key[..], &["edit the notes"]].concat())), "That is all.", "the same again");
    let said = project.fails(2, &run(&[&key[..], &["something else"]].concat()));
    assert!(said.contains("\"nightly\" was started with another task: edit the notes"), "{said}");
    assert!(said.contains("rath run -c"), "{said}");
}

#[test]
fn a_run_stops_when_its_output_pipe_is_closed() {
    if !isolates() {
        return;
    }
    let project = project();
    let slowly = "text = \"one two three four five six seven\"\nchunks = 20\nchunk_delay_ms = 100\n";
    let call = "call = [{ tool = \"edit\", arguments = { path = \"notes\", old = \"one\", new = \"two\" } }]";
    project.put("script.toml", format!("[[turn]]\n{slowly}{call}\n[[turn]]\n{slowly}"));
    let mut child = command(project.root(), &run(&["--json", "edit the notes"]))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    drop(out);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let session = newest(&project);
    let shown = project.ok(&["show", &session]);
    // The pipe is closed during the first or second answer.
    assert!(shown.contains("interrupted") && shown.matches("seven").count() <= 1, "{shown}");
    project.sound();
}

#[test]
fn a_question_at_the_terminal_can_be_postponed_or_answered_by_another_process() {
    if !isolates() {
        return;
    }
    let project = project();
    project
        .put("config/rath/config.toml", "[[policy]]\ntool = \"shell\"\ncommand = \"git push*\"\ndecision = \"ask\"\n");
    let mut person = Person::begins(&project, &run(&["push it"]));
    person.waits_for("[a]lways");
    let pid = rustix::process::Pid::from_child(&person.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    person.waits_for("stopped");
    assert_eq!(person.child.wait().unwrap().code(), Some(1));
    assert!(person.is_left_in_order());

    let mut person = Person::begins(&project, &run(&[]));
    person.waits_for("/help lists the commands");
    person.types("push it\r");
    person.waits_for("[a]lways");
    project.ok(&["answer", &question(&project), "no"]);
    person.waits_for("That is all.");
    person.types("say slowly\r");
    person.waits_for("seven");
    person.types("/quit\r");
    assert!(person.child.wait().unwrap().success());
    assert!(person.is_left_in_order());
    project.sound();
}

#[test]
fn a_conversation_without_messages_is_closed() {
    if !isolates() {
        return;
    }
    let project = project();
    let mut person = Person::begins(&project, &run(&[]));
    person.waits_for("/help lists the commands");
    person.types("\u{4}");
    assert!(person.child.wait().unwrap().success());
    assert!(project.ok(&["log", &newest(&project)]).contains("no message was sent"));
}

#[test]
fn a_run_reports_that_its_budget_is_spent() {
    if !isolates() {
        return;
    }
    let project = project();
    let said = project.fails(1, &run(&["--budget", "1 turn", "edit the notes", "-q"]));
    assert!(said.contains("1 turns of 1"), "{said}");
}

#[test]
fn an_interrupt_keeps_the_partial_answer_and_the_session_continues() {
    if !isolates() {
        return;
    }
    let project = project();
    let mut person = Person::begins(&project, &run(&["say slowly"]));
    person.waits_for("two");
    // Keys cause signals only on a controlling terminal, and this one is not.
    let pid = rustix::process::Pid::from_child(&person.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    person.waits_for("stopped");
    assert_eq!(person.child.wait().unwrap().code(), Some(1));
    let session = newest(&project);
    let shown = project.ok(&["show", &session]);
    assert!(shown.contains("stopped") && shown.contains("one two") && shown.contains("interrupted"), "{shown}");
    assert_eq!(project.ok(&["run", "--continue", &session, "-q", "And?"]), "That is all.");
    // The model is shown its partial answer.
    let seen = project.ok(&["show", &session, "--context"]);
    assert!(seen.contains("one two") && !seen.contains("seven"), "{seen}");
    project.sound();
}

#[test]
fn a_run_killed_during_an_answer_is_resumed_without_its_agent_file() {
    if !isolates() {
        return;
    }
    let project = project();
    project.ok(&run(&["edit the notes", "-q"]));
    let session = newest(&project);
    let words = ["run", "--continue", &session, "-q", "say slowly"];
    let mut child = command(project.root(), &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while project.json(&["show", &session])["run"]["is"] == "done" {
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::remove_file(project.path("editor.md")).unwrap();
    assert_eq!(project.json(&["show", &session])["run"]["is"], "interrupted");
    let said = project.fails(1, &["run", "--continue", &session, "And?"]);
    assert!(said.contains("is not over") && said.contains("rath resume"), "{said}");
    assert_eq!(project.ok(&["resume", &session, "-q"]), "one two three four five six seven");
    assert_eq!(project.ok(&["run", "--continue", &session, "-q", "And?"]), "That is all.");
    project.sound();
}

#[test]
fn a_conversation_at_a_terminal() {
    if !isolates() {
        return;
    }
    let project = project();
    project
        .put("config/rath/config.toml", "[[policy]]\ntool = \"shell\"\ncommand = \"git push*\"\ndecision = \"ask\"\n");
    let mut person = Person::begins(&project, &run(&[]));
    person.waits_for("/help lists the commands");
    person.types("/nothing\r");
    person.waits_for("unknown command /nothing");
    person.types("edit the notes\r");
    person.waits_for("That is all.");
    person.waits_for("2 turns");
    person.types("push it\r");
    person.waits_for("[a]lways");
    person.types("perhaps\r");
    person.types("n\r");
    person.waits_for("did not allow this call");
    person.types("/cost\r");
    person.waits_for("20 in");
    person.types("/diff\r");
    person.waits_for("+two");
    person.types("/quit\r");
    person.waits_for("Apply them?");
    person.types("y\r");
    assert!(person.child.wait().unwrap().success());
    person.waits_for("applied to");
    assert!(person.is_left_in_order());
    assert_eq!(project.read("work/notes"), "two\n");
    let history = project.path("state/rath/history");
    assert!(std::fs::read_to_string(&history).unwrap().contains("edit the notes"));
    assert_eq!(std::fs::metadata(history.parent().unwrap()).unwrap().permissions().mode() & 0o077, 0);
    let session = newest(&project);
    let shown = project.ok(&["show", &session]);
    assert!(shown.contains("git push") && shown.contains("no"), "{shown}");
    project.sound();
}

/// A Chat Completions server that stores the requests.
struct Server {
    address: String,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Answers each request with the next chunk; then repeats the last one.
    fn new(answers: Vec<Vec<Value>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = heard.clone();
        std::thread::spawn(move || {
            let mut answers = answers.into_iter().peekable();
            for stream in listener.incoming().flatten() {
                let Some(request) = read_request(&stream) else { continue };
                let is_chat = request.contains("/chat/completions");
                kept.lock().unwrap().push(request);
                let chunks = match answers.peek().cloned() {
                    Some(_) if is_chat => answers.next(),
                    _ => None,
                };
                answer(stream, chunks);
            }
        });
        Self { address, heard }
    }
}

fn read_request(stream: &TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
        head.push_str(&line);
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(head + &text(&body))
}

fn answer(mut stream: TcpStream, chunks: Option<Vec<Value>>) {
    let body = match chunks {
        Some(chunks) => {
            let events: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
            format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{events}data: [DONE]\n\n"
            )
        }
        None => {
            let body = json!({ "object": "list", "data": [{ "id": "small" }, { "id": "large" }] }).to_string();
            let length = body.len();
            format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            )
        }
    };
    let _ = stream.write_all(body.as_bytes());
}

fn said(text: &str) -> Vec<Value> {
    let delta = |content: &str| json!({ "choices": [{ "index": 0, "delta": { "content": content } }] });
    let stop = json!({
        "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 7, "completion_tokens": 3 },
    });
    text.split_inclusive(' ').map(delta).chain([stop]).collect()
}

fn calls(tool: &str, arguments: &Value) -> Vec<Value> {
    let call = json!({ "index": 0, "id": "call_1", "function": { "name": tool, "arguments": arguments.to_string() } });
    vec![json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] }, "finish_reason": "tool_calls" }] })]
}

const KEY: &str = "sk-a-key-that-nobody-may-see-0123456789";

#[test]
fn a_configured_provider_gets_its_key_and_nothing_else_shows_it() {
    if !isolates() {
        return;
    }
    let project = project();
    let server = Server::new(vec![calls("read", &json!({ "path": "notes" })), said("The notes say one.")]);
    let config = format!(
        "model = \"house/small\"\n[providers.house]\napi = \"openai-chat\"\nbase_url = \"http://{}/v1\"\nkey_env = \"HOUSE_KEY\"\n",
        server.address
    );
    project.put("config/rath/config.toml", config);
    let with_key = |arguments: &[&str]| {
        let mut command = command(project.root(), arguments);
        command.env("HOUSE_KEY", KEY).stdin(Stdio::null()).output().unwrap()
    };
    let models = text(&with_key(&["models"]).stdout);
    assert!(models.contains("house/small (default)") && models.contains("house/large"), "{models}");
    let out = with_key(&["run", "--in", "work", "what do the notes say?"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_eq!(text(&out.stdout).trim_end(), "The notes say one.");
    let heard = server.heard.lock().unwrap().clone();
    let asked: Vec<_> = heard.iter().filter(|request| request.contains("/chat/completions")).collect();
    assert_eq!(asked.len(), 2, "{heard:?}");
    assert!(asked.iter().all(|request| request.contains(&format!("Bearer {KEY}"))));
    assert!(asked[1].contains("one\\n") || asked[1].contains("1\\tone"), "the result was sent: {}", asked[1]);
    let (shown, log) = (project.ok(&["show", "@"]), project.ok(&["log", "--json", "@"]));
    for seen in [&text(&out.stderr), &shown, &log, &project.ok(&["show", "@", "--json"])] {
        assert!(!seen.contains(KEY), "{seen}");
    }
    assert!(shown.contains("14 in, 6 out") || shown.contains("7 in, 3 out"), "{shown}");
    assert_eq!(with_key(&["resume", "@", "-q"]).status.code(), Some(0));
    project.fails(4, &["run", "--continue", "@", "And?"]);
    project.sound();
}

#[test]
fn a_truncated_answer_is_reported() {
    if !isolates() {
        return;
    }
    let project = project();
    let mut cut = said("Once upon a");
    cut.pop();
    cut.push(json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "length" }] }));
    let server = Server::new(vec![cut, said("And then it ended.")]);
    let config = format!("[providers.house]\napi = \"openai-chat\"\nbase_url = \"http://{}/v1\"\n", server.address);
    project.put("config/rath/config.toml", config);
    let out = project.run(&["run", "-m", "house/small", "--in", "work", "tell me a story"]);
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(0), "Once upon a\n".into()));
    assert!(text(&out.stderr).contains("! truncated: the token limit"), "{}", text(&out.stderr));
    assert!(project.ok(&["show", "@"]).contains(", stopped: length"));
    let whole = project.run(&["run", "--continue", "@", "go on"]);
    assert!(!text(&whole.stderr).contains("truncated"), "{}", text(&whole.stderr));
}

#[test]
fn a_key_echoed_in_pieces_is_neither_shown_nor_stored() {
    if !isolates() {
        return;
    }
    let project = project();
    let delta = |content: &str| json!({ "choices": [{ "index": 0, "delta": { "content": content } }] });
    let stop = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
    let server = Server::new(vec![vec![delta("It is "), delta(&KEY[..9]), delta(&KEY[9..]), stop]]);
    let config = format!(
        "[providers.house]\napi = \"openai-chat\"\nbase_url = \"http://{}/v1\"\nkey = \"{KEY}\"\n",
        server.address
    );
    project.put("config/rath/config.toml", config);
    let out = project.run(&["run", "-m", "house/small", "--in", "work", "what is the key?"]);
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("contains the API key"), "{said}");
    assert!(!said.contains(KEY) && !text(&out.stdout).contains(KEY), "{said}");
    for seen in [project.ok(&["show", "@"]), project.ok(&["log", "--json", "@"])] {
        assert!(!seen.contains(KEY) && !seen.contains(&KEY[9..]), "{seen}");
    }
}

#[test]
fn a_run_whose_workspace_cannot_be_set_leaves_no_store() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("script.toml"), SCRIPT).unwrap();
    let run = command(dir.path(), &["run", "-m", MODEL, "x"]).env("HOME", dir.path()).output().unwrap();
    assert_eq!(run.status.code(), Some(1), "{}", text(&run.stderr));
    assert!(text(&run.stderr).contains("home"), "{}", text(&run.stderr));
    assert!(!dir.path().join(".rath").exists());
}
