//! The built-in tools in a real directory.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pollster::block_on;
use rath::body::{CallOutcome, Effect, Exit};
use rath::sandbox::{Backend as _, Host, SandboxSpec};
use rath::session::Resources;
use rath::tool::{Call, FileAccess, FollowUp, Tool, ToolOutcome};
use rath::tools::{
    ToolWorkspace, apply_patch, ask_human, coding, edit, glob, grep, ls, read, reading, shell, todo, write,
};
use rath::{Cancel, Digest};
use serde_json::{Value, json};
use tempfile::TempDir;

struct Room {
    dir: TempDir,
    workspace: Arc<ToolWorkspace>,
}

impl Room {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let (files, state) = (dir.path().join("files"), dir.path().join("state"));
        fs::create_dir(&files).unwrap();
        fs::create_dir(&state).unwrap();
        let spec = SandboxSpec::new(&files, state).env("PATH", std::env::var_os("PATH").unwrap());
        let sandbox = block_on(Host::new().open(spec)).unwrap();
        Self { workspace: Arc::new(ToolWorkspace::new(sandbox, Some(files))), dir }
    }

    fn with(files: &[(&str, &str)]) -> Self {
        let room = Self::new();
        files.iter().for_each(|(path, content)| room.put(path, content));
        room
    }

    fn root(&self) -> &Path {
        self.workspace.mount_path().unwrap()
    }

    fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn file(&self, path: &str) -> String {
        fs::read_to_string(self.root().join(path)).unwrap()
    }

    fn call(&self, arguments: &Value) -> Call {
        Call {
            id: "call-1".into(),
            tool: "tool".into(),
            arguments: arguments.to_string(),
            key: Digest::of(b"call-1"),
            attempt: 1,
            cancel: Cancel::new(),
            resources: Resources::new().with(self.workspace.clone()),
        }
    }

    fn ask(&self, tool: impl Tool, arguments: Value) -> ToolOutcome {
        assert_eq!(tool.check(&arguments.to_string()), Ok(()));
        block_on(tool.call(&self.call(&arguments)))
    }

    fn done(&self, tool: impl Tool, arguments: Value) -> String {
        let reply = self.ask(tool, arguments);
        assert!(!reply.failed, "{}", reply.text());
        reply.text()
    }

    fn fails(&self, tool: impl Tool, arguments: Value) -> String {
        let reply = self.ask(tool, arguments);
        assert!(reply.failed, "{}", reply.text());
        reply.text()
    }
}

#[test]
fn the_groups_contain_these_tools() {
    let names = |tools: Vec<rath::tool::BoxTool>| tools.iter().map(|tool| tool.spec().name.clone()).collect::<Vec<_>>();
    assert_eq!(names(reading()), ["read", "ls", "glob", "grep"]);
    assert_eq!(names(coding())[4..], ["write", "edit", "apply_patch", "shell", "todo"]);
    assert!(
        reading().iter().all(|tool| tool.spec().file_access == FileAccess::Reads && tool.spec().effect == Effect::Pure)
    );
    let writing = &coding()[4..8];
    assert!(
        writing
            .iter()
            .all(|tool| (tool.spec().file_access, tool.spec().effect) == (FileAccess::Writes, Effect::Workspace))
    );
    assert_eq!((todo.spec().file_access, todo.spec().effect), (FileAccess::Nothing, Effect::Pure));
    assert_eq!(ask_human.spec().name, "ask_human");
    assert!(apply_patch.spec().description.contains("\n an unchanged line\n"), "{}", apply_patch.spec().description);
}

#[test]
fn without_a_workspace_tools_fail() {
    let room = Room::new();
    let call = Call { resources: Resources::new(), ..room.call(&json!({"path": "a"})) };
    let reply = block_on(read.call(&call));
    assert!(reply.failed && reply.text().contains("ToolWorkspace"), "{}", reply.text());
}

#[test]
fn paths_stay_in_the_workspace() {
    let room = Room::with(&[("src/a", "x\n")]);
    let inside = room.root().join("src/a").display().to_string();
    for path in ["src/a", "./src/a", "src/../src//a", " src/a ", &inside] {
        assert_eq!(room.done(read, json!({"path": path})), "     1\tx\n", "{path}");
    }
    let outside = room.fails(read, json!({"path": "/etc/passwd"}));
    let root = room.root().display();
    assert_eq!(outside, format!("/etc/passwd is outside the workspace, which is {root}: give a path relative to it"));
    let up = room.fails(write, json!({"path": "src/../../x", "content": ""}));
    assert_eq!(up, "src/../../x leads out of the workspace: use a path inside it");
    assert_eq!(room.fails(read, json!({"path": "."})), "this is the workspace itself: name a file in it");
    let nowhere = ToolWorkspace::new(room.workspace.sandbox().clone(), None);
    assert_eq!(nowhere.path("/etc").unwrap_err(), "/etc is absolute: give a path relative to the workspace");
}

#[test]
fn read_shows_numbered_lines() {
    let room = Room::with(&[("a", "one\ntwo\r\nthree"), ("empty", ""), ("ü/ñ", "grüße 🦀\n")]);
    assert_eq!(
        room.done(read, json!({"path": "a"})),
        "     1\tone\n     2\ttwo\n     3\tthree\n[no newline at the end of the file]"
    );
    assert_eq!(
        room.done(read, json!({"path": "a", "offset": 2, "limit": 1})),
        "     2\ttwo\n[lines 2 to 2 of 3; read on with offset 3]"
    );
    assert_eq!(room.done(read, json!({"path": "empty"})), "empty is empty.");
    assert_eq!(room.done(read, json!({"path": "ü/ñ"})), "     1\tgrüße 🦀\n");
    assert_eq!(room.fails(read, json!({"path": "a", "offset": 4})), "a has 3 lines: there is no line 4");
}

#[test]
fn read_reports_what_it_cannot_show() {
    let room = Room::with(&[("src/main.rs", "fn main() {}\n"), ("lib/tool.rs", "")]);
    room.put("image", b"\x89PNG\0\0");
    room.put("latin", b"caf\xe9\n");
    room.put("large", vec![b'x'; (10 << 20) + 1]);
    room.put("wide", "é".repeat(5_000));
    room.put("long", "0123456789\n".repeat(10_000));
    assert_eq!(room.fails(read, json!({"path": "image"})), "image is not text: a binary file of 6 bytes");
    assert_eq!(room.fails(read, json!({"path": "src"})), "src is a directory: use `ls` to list it");
    assert_eq!(
        room.fails(read, json!({"path": "src/mian.rs"})),
        "src/mian.rs does not exist. Did you mean src/main.rs?"
    );
    assert_eq!(room.fails(read, json!({"path": "tool.rs"})), "tool.rs does not exist. Did you mean lib/tool.rs?");
    assert_eq!(
        room.fails(read, json!({"path": "zzzzzzzz"})),
        "zzzzzzzz does not exist: list the files with `ls` or `glob`"
    );
    assert!(room.fails(read, json!({"path": "large"})).starts_with("large has 10485761 bytes"));
    assert_eq!(room.done(read, json!({"path": "latin"})), "     1\tcaf\u{fffd}\n");
    let wide = room.done(read, json!({"path": "wide"}));
    assert!(wide.contains("éé [… line of 5000 characters]"), "{wide}");
    let long = room.done(read, json!({"path": "long"}));
    assert!(long.ends_with("[lines 1 to 2000 of 10000; read on with offset 2001]"), "{}", &long[long.len() - 80..]);
    let long = room.done(read, json!({"path": "long", "limit": 10_000}));
    assert!(long.len() < 70_000 && long.contains("read on with offset"), "{}", long.len());
}

#[test]
fn write_creates_and_replaces() {
    let room = Room::new();
    let arguments = json!({"path": "new/dir/a", "content": "one\ntwo\n"});
    assert_eq!(room.done(write, arguments), "new/dir/a: new, 2 lines, 8 bytes");
    assert_eq!(room.done(write, json!({"path": "new/dir/a", "content": ""})), "new/dir/a: replaced, 0 lines, 0 bytes");
    assert_eq!(room.file("new/dir/a"), "");
    assert!(room.fails(write, json!({"path": "new/dir", "content": ""})).starts_with("new/dir is a directory"));
}

#[test]
fn edit_replaces_exactly_one() {
    let room = Room::with(&[("a", "one\ntwo\nthree\ntwo\n")]);
    assert_eq!(room.done(edit, json!({"path": "a", "old": "one\n", "new": "1\nü\n"})), "a: replaced at line 1");
    assert_eq!(room.file("a"), "1\nü\ntwo\nthree\ntwo\n");
    assert_eq!(
        room.fails(edit, json!({"path": "a", "old": "two", "new": "2"})),
        "a: `old` occurs 2 times, at lines 3, 5: give more lines around the one you mean, or set `all` to replace all \
         of them"
    );
    assert_eq!(room.done(edit, json!({"path": "a", "old": "two", "new": "2", "all": true})), "a: replaced 2 times");
    assert_eq!(room.done(edit, json!({"path": "a", "old": "three\n", "new": ""})), "a: replaced at line 4");
    assert_eq!(room.file("a"), "1\nü\n2\n2\n");
    assert!(room.fails(edit, json!({"path": "a", "old": "", "new": "x"})).starts_with("`old` is empty"));
    assert!(room.fails(edit, json!({"path": "a", "old": "x", "new": "x"})).starts_with("`old` and `new` are the same"));
    assert!(room.fails(edit, json!({"path": "b", "old": "x", "new": "y"})).starts_with("b does not exist"));
}

#[test]
fn edit_keeps_line_ends_bytes_and_modes() {
    use std::os::unix::fs::PermissionsExt as _;
    let room = Room::with(&[("crlf", "one\r\ntwo\r\nthree\r\n")]);
    room.done(edit, json!({"path": "crlf", "old": "one\ntwo", "new": "1\n2\n2b"}));
    assert_eq!(room.file("crlf"), "1\r\n2\r\n2b\r\nthree\r\n");
    let mixed = "one\r\ntwo\nthree\r\nfour";
    // `read` shows LF line endings only, so the arguments of `edit` match both kinds.
    for (old, new, then) in [
        ("one\ntwo\nthree", "1\n2\n3", "1\r\n2\n3\r\nfour"),
        ("two\nthree", "2", "one\r\n2\r\nfour"),
        ("one", "1\n1b", "1\r\n1b\r\ntwo\nthree\r\nfour"),
        ("two", "2\n2b", "one\r\n2\n2b\nthree\r\nfour"),
        ("four", "4\n5", "one\r\ntwo\nthree\r\n4\r\n5"),
        ("one\n", "", "two\nthree\r\nfour"),
        ("\n", "\n\n", "one\r\n\r\ntwo\n\nthree\r\n\r\nfour"),
        // Arguments with CR match exactly.
        ("one\r\n", "one\n", "one\ntwo\nthree\r\nfour"),
    ] {
        room.put("mixed", mixed.as_bytes());
        room.done(edit, json!({"path": "mixed", "old": old, "new": new, "all": true}));
        assert_eq!(room.file("mixed"), then, "{old:?} to {new:?}");
    }
    room.put("mixed", mixed.as_bytes());
    assert!(room.fails(edit, json!({"path": "mixed", "old": "two\r\n", "new": "2"})).contains("different white space"));
    room.put("latin", b"caf\xe9\nbar\n");
    fs::set_permissions(room.root().join("latin"), fs::Permissions::from_mode(0o755)).unwrap();
    room.done(edit, json!({"path": "latin", "old": "bar", "new": "tea"}));
    assert_eq!(fs::read(room.root().join("latin")).unwrap(), b"caf\xe9\ntea\n");
    assert_eq!(fs::metadata(room.root().join("latin")).unwrap().permissions().mode() & 0o777, 0o755);
}

#[test]
fn edit_shows_the_most_similar_lines() {
    let room = Room::with(&[("a.rs", "fn main() {\n\tlet x = 1;\n\tprint(x);\n}\n"), ("empty", "")]);
    assert_eq!(
        room.fails(edit, json!({"path": "a.rs", "old": "    let x = 1;\n    print(x);", "new": ""})),
        "a.rs: `old` was found only with different white space. The exact lines:\n     2\t\tlet x = 1;\n     3\t\tprint(x);\n"
    );
    assert_eq!(
        room.fails(edit, json!({"path": "a.rs", "old": "\tlet x = 1;\n\tprint(y);", "new": ""})),
        "a.rs: `old` was not found. The most similar lines:\n     2\t\tlet x = 1;\n     3\t\tprint(x);\n"
    );
    assert_eq!(
        room.fails(edit, json!({"path": "a.rs", "old": "\tlet y = 1;", "new": ""})),
        "a.rs: `old` was not found. The most similar lines:\n     2\t\tlet x = 1;\n"
    );
    let nothing = "`old` was not found, and nothing similar either: read the file again";
    let arguments = |path| json!({"path": path, "old": "zebra zebra zebra", "new": ""});
    assert_eq!(room.fails(edit, arguments("a.rs")), format!("a.rs: {nothing}"));
    assert_eq!(room.fails(edit, arguments("empty")), format!("empty: {nothing}"));
}

fn patch(body: &str) -> Value {
    json!({"patch": format!("*** Begin Patch\n{body}*** End Patch\n")})
}

#[test]
fn a_patch_adds_changes_moves_and_deletes() {
    let room = Room::with(&[("a", "one\ntwo\nthree\nfour\n"), ("b", "b\n"), ("c", "c1\nc2")]);
    let text = "\
*** Update File: a
@@
 one
-two
+2
 three
@@
-four
+4
+5
*** Delete File: b
*** Add File: new/d
+first
+
*** Update File: c
*** Move to: e/f
@@ c1
-c2
+C2
*** End of File
";
    assert_eq!(room.done(apply_patch, patch(text)), "M a\nD b\nA new/d\nR c -> e/f");
    assert_eq!(room.file("a"), "one\n2\nthree\n4\n5\n");
    assert_eq!(room.file("new/d"), "first\n\n");
    assert_eq!(room.file("e/f"), "c1\nC2");
    assert!(!room.root().join("b").exists() && !room.root().join("c").exists());
}

#[test]
fn a_patch_that_does_not_fit_changes_nothing() {
    let room = Room::with(&[("a", "one\n"), ("b", "x\ny\nz\n")]);
    let text = "*** Update File: a\n-one\n+1\n*** Update File: b\n@@\n x\n-Y\n+y2\n";
    assert_eq!(
        room.fails(apply_patch, patch(text)),
        "nothing was changed: b: hunk 1 of 1: its lines are not in the file. The first 1 are at line 1; then the patch \
         has `Y` and the file `y`"
    );
    assert_eq!(room.file("a"), "one\n");
    for (text, why) in [
        ("*** Update File: b\n@@\n-q\n", "b: hunk 1 of 1: its lines are not in the file:\nq"),
        ("*** Update File: b\n@@ w\n-x\n", "b: hunk 1 of 1: there is no line `w` from line 1 on"),
        (
            "*** Update File: b\n-z\n@@\n-x\n",
            "b: hunk 2 of 2: its lines are at line 1, before the hunk above it or not at the end; hunks are applied from \
             line 3 on",
        ),
        ("*** Update File: b\n?x\n", "b: `?x` begins with neither ` `, `-`, `+` nor `@@`"),
        ("*** Update File: b\n", "b: the update changes nothing"),
        ("*** Add File: a\n+x\n", "a exists already: use `*** Update File: `"),
        ("*** Delete File: none\n", "none does not exist: list the files with `ls` or `glob`"),
        ("*** Update File: a\n*** Move to: b\n", "a cannot move to b: that file exists already"),
        ("*** Delete File: ../a\n", "../a leads out of the workspace: use a path inside it"),
        ("", "the patch is empty"),
    ] {
        assert_eq!(room.fails(apply_patch, patch(text)), format!("nothing was changed: {why}"));
    }
    let bare = room.fails(apply_patch, json!({"patch": "-x\n+y\n"}));
    assert_eq!(bare, "nothing was changed: the patch does not begin with `*** Begin Patch`");
    assert_eq!((room.file("a"), room.file("b")), ("one\n".into(), "x\ny\nz\n".into()));
}

#[test]
fn a_patch_that_cannot_be_written_is_rolled_back() {
    let room = Room::with(&[("a", "one\n"), ("dir", "a file\n")]);
    let text = "*** Update File: a\n-one\n+1\n*** Add File: dir2\n+x\n*** Update File: dir\n*** Move to: dir2/x\n";
    let why = room.fails(apply_patch, patch(text));
    assert!(why.starts_with("nothing was changed: "), "{why}");
    assert_eq!((room.file("a"), room.file("dir")), ("one\n".into(), "a file\n".into()));
    assert!(!room.root().join("dir2").exists());
}

#[test]
fn patches_may_differ_in_white_space() {
    let room = Room::with(&[("crlf", "one\r\ntwo\r\n"), ("tab", "\tone  \n\ttwo\n"), ("ends", "x\ny\nx\n")]);
    room.done(apply_patch, patch("*** Update File: crlf\n one\n-two\n+2\n+3\n"));
    assert_eq!(room.file("crlf"), "one\r\n2\r\n3\r\n");
    room.done(apply_patch, patch("*** Update File: tab\n-    one\n+\tONE\n"));
    assert_eq!(room.file("tab"), "\tONE\n\ttwo\n");
    room.done(apply_patch, patch("*** Update File: ends\n-x\n+last\n*** End of File\n"));
    assert_eq!(room.file("ends"), "x\ny\nlast\n");
    room.done(apply_patch, patch("*** Update File: ends\n@@ x\n-y\n*** Update File: ends\n+more\n"));
    assert_eq!(room.file("ends"), "x\nlast\nmore\n");
}

#[test]
fn ls_lists_a_directory() {
    let room = Room::with(&[("b", "12345"), ("a/x", "")]);
    std::os::unix::fs::symlink("b", room.root().join("link")).unwrap();
    assert_eq!(room.done(ls, json!({})), "a/\nb 5\nlink@");
    assert_eq!(room.done(ls, json!({"path": "a"})), "x 0");
    fs::create_dir(room.root().join("none")).unwrap();
    assert_eq!(room.done(ls, json!({"path": "none"})), "The directory is empty.");
    assert_eq!(room.fails(ls, json!({"path": "b"})), "b is not a directory: use `read` for a file");
    assert!(room.fails(ls, json!({"path": "nowhere"})).starts_with("nowhere does not exist"));
}

#[test]
fn glob_finds_names() {
    let room = Room::with(&[
        ("a.rs", ""),
        ("src/b.rs", ""),
        ("src/deep/c.rs", ""),
        ("src/d.txt", ""),
        ("target/e.rs", ""),
        (".git/f.rs", ""),
        (".gitignore", "/target\n"),
        ("src/.gitignore", "*.txt\n"),
    ]);
    assert_eq!(room.done(glob, json!({"pattern": "*.rs"})), "a.rs\nsrc/b.rs\nsrc/deep/c.rs");
    assert_eq!(room.done(glob, json!({"pattern": "src/*.rs"})), "src/b.rs");
    assert_eq!(room.done(glob, json!({"pattern": "**/{b,c}.rs", "path": "src"})), "src/b.rs\nsrc/deep/c.rs");
    assert_eq!(room.done(glob, json!({"pattern": "*.txt", "path": "src/deep"})), "No file matches *.txt.");
    assert_eq!(room.done(glob, json!({"pattern": "d.txt"})), "No file matches d.txt.");
    assert!(room.fails(glob, json!({"pattern": "a{"})).starts_with("`a{` is not a pattern"));
    assert!(room.fails(glob, json!({"pattern": "*", "path": "none"})).contains("none"));
}

#[test]
fn grep_finds_lines() {
    let room = Room::with(&[
        ("a.rs", "one\ntwo fish\nthree\nfour fish\nfive\nsix\nseven\neight fish\n"),
        ("b.txt", "Fish\r\n"),
        ("src/c.rs", "fish"),
    ]);
    room.put("binary", b"fish\0");
    assert_eq!(
        room.done(grep, json!({"pattern": "fish$"})),
        "a.rs:2:two fish\na.rs:4:four fish\na.rs:8:eight fish\nsrc/c.rs:1:fish\n"
    );
    assert_eq!(room.done(grep, json!({"pattern": "(?i)^fish$", "glob": "*.txt"})), "b.txt:1:Fish\n");
    assert_eq!(room.done(grep, json!({"pattern": "fish", "path": "src/c.rs"})), "src/c.rs:1:fish\n");
    assert_eq!(
        room.done(grep, json!({"pattern": "fish", "path": "a.rs", "context": 1})),
        "a.rs-1-one\na.rs:2:two fish\na.rs-3-three\na.rs:4:four fish\na.rs-5-five\n--\na.rs-7-seven\na.rs:8:eight fish\n"
    );
    assert_eq!(
        room.done(grep, json!({"pattern": "fish", "max_results": 1})),
        "a.rs:2:two fish\n[more matches were omitted; use a narrower pattern, a path or a glob]\n"
    );
    assert_eq!(room.done(grep, json!({"pattern": "bird"})), "Nothing matches bird.");
    assert!(room.fails(grep, json!({"pattern": "("})).starts_with("`(` is not a regular expression"));
    assert!(room.fails(grep, json!({"pattern": "x", "path": "none"})).starts_with("none does not exist"));
}

#[test]
fn shell_keeps_the_whole_output() {
    let room = Room::new();
    let reply = room.ask(shell, json!({"command": "echo out; sleep 0.2; echo err >&2; exit 3"}));
    assert_eq!((&*reply.text(), reply.failed), ("out\nerr\nexit code 3", true));
    let evidence = reply.evidence.unwrap();
    assert_eq!((evidence.exit, evidence.outcome), (Some(Exit::Code(3)), None));
    let streams: Vec<_> = evidence.streams.iter().map(|stream| (&*stream.stream, &*stream.bytes)).collect();
    assert_eq!(streams, [("stdout", &b"out\n"[..]), ("stderr", b"err\n")]);
    let order: Vec<_> = evidence.order.iter().map(|stretch| (&*stretch.stream, stretch.bytes)).collect();
    assert_eq!(order, [("stdout", 4), ("stderr", 4)]);
    assert_eq!(room.done(shell, json!({"command": "true"})), "Exit code 0, no output.");
    assert_eq!(room.done(shell, json!({"command": "pwd"})).trim_end(), room.root().to_str().unwrap());
    assert_eq!(room.fails(shell, json!({"command": "kill -9 $$"})), "killed by signal 9");
    for arguments in [json!({}), json!({"command": "true", "poll": "bg-1"})] {
        assert_eq!(room.fails(shell, arguments), "give exactly one of `command`, `poll` and `kill`");
    }
}

#[test]
fn shell_truncates_long_output_in_the_middle() {
    let room = Room::new();
    let reply = room.ask(shell, json!({"command": "seq 1 20000"}));
    let text = reply.text();
    let whole = reply.evidence.unwrap().streams[0].bytes.len();
    assert_eq!(whole, 108_894);
    assert!(text.starts_with("1\n2\n") && text.ends_with("19999\n20000\n"));
    assert!(text.contains("[… 78894 characters omitted. To see them, poll \"out-1\"]"));
    assert!(text.chars().count() < 30_300);
    // The omitted text can be read part by part.
    let (head, tail) = text.split_once("\n[…").unwrap();
    let mut all = head.to_owned();
    for more in ["[… 48894 characters more", "[… 18894 characters more", "[end of the omitted output"] {
        let text = room.done(shell, json!({"poll": "out-1"}));
        let (part, said) = text.rsplit_once("\n[").unwrap();
        assert!(format!("[{said}").starts_with(more), "{said}");
        all.push_str(part);
    }
    all.push_str(tail.split_once("]\n").unwrap().1);
    assert_eq!(
        all.lines().map(|line| line.parse::<u32>().unwrap()).collect::<Vec<_>>(),
        (1..=20000).collect::<Vec<_>>()
    );
    assert!(room.fails(shell, json!({"poll": "out-1"})).starts_with("out-1 was read to its end"));
}

#[test]
fn grep_reads_files_of_any_length() {
    let room = Room::new();
    room.done(shell, json!({"command": "seq 1 3000000 > big; printf 'x%.0s' $(seq 1 10) >> big"}));
    assert_eq!(room.done(grep, json!({"pattern": "^2999999$", "path": "big"})), "big:2999999:2999999\n");
    assert_eq!(room.done(grep, json!({"pattern": "^x+$"})), "big:3000001:xxxxxxxxxx\n");
    let around = room.done(grep, json!({"pattern": "^2000000$", "context": 1}));
    assert_eq!(around, "big-1999999-1999999\nbig:2000000:2000000\nbig-2000001-2000001\n");
}

#[test]
fn shell_stops_at_the_timeout_or_when_cancelled() {
    let room = Room::new();
    let reply = room.ask(shell, json!({"command": "echo begun; sleep 60", "timeout_s": 1}));
    assert!(reply.failed);
    assert_eq!(reply.text(), "begun\nstopped: it took longer than 1 s; give a longer timeout_s");
    assert_eq!(reply.evidence.unwrap().outcome, Some(CallOutcome::TimedOut));
    let call = room.call(&json!({"command": "sleep 60"}));
    let cancel = call.cancel.clone();
    let stopping = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        cancel.cancel("enough");
    });
    let reply = block_on(shell.call(&call));
    stopping.join().unwrap();
    assert_eq!(reply.evidence.unwrap().outcome, Some(CallOutcome::Cancelled));
}

/// Polls until the output contains `wanted`.
fn poll_until(room: &Room, id: &str, wanted: &str) -> String {
    let mut all = String::new();
    for _ in 0..100 {
        all += &room.done(shell, json!({"poll": id}));
        if all.contains(wanted) {
            return all;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{id} never said {wanted}: {all}");
}

#[test]
fn commands_run_on_in_the_background() {
    let room = Room::new();
    let started = room.done(shell, json!({"command": "echo ready; sleep 60", "background": true}));
    assert_eq!(started, "Running as bg-1. Show its output with poll \"bg-1\", stop it with kill \"bg-1\".");
    assert_eq!(room.workspace.live(), ["call-1"]);
    assert!(poll_until(&room, "bg-1", "ready").ends_with("ready\nbg-1 is still running."));
    assert_eq!(room.done(shell, json!({"poll": "bg-1"})), "bg-1 is still running, with no new output.");
    assert_eq!(room.done(shell, json!({"kill": "bg-1"})), "bg-1 has ended: killed by signal 15.");
    assert!(room.workspace.live().is_empty());
    assert_eq!(room.fails(shell, json!({"poll": "bg-1"})), "unknown id bg-1: no command is in the background");
    room.done(shell, json!({"command": "echo bye; exit 4", "background": true}));
    let all = poll_until(&room, "bg-2", "ended");
    assert!(all.contains("bye\n") && all.ends_with("bg-2 has ended: exit code 4."), "{all}");
    room.done(shell, json!({"command": "sleep 60", "background": true}));
    assert_eq!(room.fails(shell, json!({"kill": "bg-9"})), "unknown id bg-9: the background commands are bg-3");
    assert_eq!(block_on(room.workspace.stop_all()), ["bg-3"]);
    assert!(block_on(room.workspace.stop_all()).is_empty());
    assert!(room.dir.path().exists());
}

#[test]
fn todo_returns_the_list() {
    let room = Room::new();
    let items = json!([
        {"text": "look", "progress": "done"},
        {"text": "write", "progress": "doing"},
        {"text": "test", "progress": "open"},
    ]);
    assert_eq!(room.done(todo, json!({"items": items})), "[x] look\n[>] write\n[ ] test\n1 of 3 done.");
    assert_eq!(room.done(todo, json!({"items": []})), "The list is empty.");
    let empty = json!({"items": [{"text": " ", "progress": "open"}]});
    assert_eq!(room.fails(todo, empty), "`items[0].text` is empty: describe the task");
    let two = json!({"items": [{"text": "a", "progress": "doing"}, {"text": "b", "progress": "doing"}]});
    assert_eq!(room.fails(todo, two), "two items are in progress, \"a\" and \"b\": leave one `doing`");
    let why = todo.check(r#"{"items": [{"text": "a", "progress": "later"}]}"#).unwrap_err();
    assert!(why.contains("`items[0].progress`: unknown variant `later`, expected one of"), "{why}");
}

#[test]
fn ask_human_asks_a_question() {
    let room = Room::new();
    let outcome = room.ask(ask_human, json!({"question": "Which?"}));
    assert_eq!((&*outcome.text(), outcome.then), ("Which?", FollowUp::Ask));
}
