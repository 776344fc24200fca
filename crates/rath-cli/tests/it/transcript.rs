//! Runs transcripts in Markdown and compares the output.
//!
//! A block marked `console` holds commands (`$ …`) and what they print; a command that fails ends with `[exit N]`.
//! A block marked `toml NAME` or `json NAME` is a file of that name. All blocks of a file share one directory. Ids, times and process numbers differ from run to run: a written id
//! must stand for the same real id throughout, and later commands may use it. `RATH_UPDATE_TRANSCRIPTS=1` writes
//! the actual output into the file.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;

/// Runs the transcript in `file`.
pub(crate) fn check(file: &Path) {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let dir = tempfile::tempdir().unwrap();
    let mut run = Run { dir: dir.path().canonicalize().unwrap(), real: HashMap::new(), commands: 0 };
    let update = std::env::var_os("RATH_UPDATE_TRANSCRIPTS").is_some();
    let mut out = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        writeln!(out, "{line}").unwrap();
        if let Some(name) = ["```toml ", "```json "].iter().find_map(|mark| line.trim_end().strip_prefix(mark)) {
            let mut content = String::new();
            for line in lines.by_ref().take_while(|line| !line.starts_with("```")) {
                writeln!(content, "{line}").unwrap();
            }
            std::fs::write(run.dir.join(name), &content).unwrap();
            out.push_str(&content);
            out.push_str("```\n");
            continue;
        }
        if line.trim_end() != "```console" {
            continue;
        }
        let mut block = Vec::new();
        for line in lines.by_ref().take_while(|line| !line.starts_with("```")) {
            block.push(line);
        }
        out.push_str(&run.block(file, &block, update));
        out.push_str("```\n");
    }
    assert!(run.commands > 0, "{} has no commands", file.display());
    if update && out != text {
        std::fs::write(file, out).unwrap();
    }
}

struct Run {
    dir: PathBuf,
    /// Real ids by written ones.
    real: HashMap<String, String>,
    commands: usize,
}

impl Run {
    fn block(&mut self, file: &Path, block: &[&str], update: bool) -> String {
        let mut out = String::new();
        let mut at = 0;
        while at < block.len() {
            let command = block[at].strip_prefix("$ ").unwrap_or_else(|| panic!("{}: {:?}", file.display(), block[at]));
            let end =
                block[at + 1..].iter().position(|line| line.starts_with("$ ")).map_or(block.len(), |n| at + 1 + n);
            let expected = block[at + 1..end].join("\n");
            if command.starts_with("python3") && Command::new("python3").arg("--version").output().is_err() {
                rath_testkit::Requirement::Python.skip(format_args!("`{command}` in {}", file.display()));
                at = end;
                continue;
            }
            let (shown, actual) = self.command(command);
            if update {
                writeln!(out, "$ {shown}").unwrap();
                if !actual.is_empty() {
                    writeln!(out, "{actual}").unwrap();
                }
                // From here on the file names the real ids.
                ids(&actual).into_iter().for_each(|id| drop(self.real.insert(id.clone(), id)));
            }
            if !update || ids(&expected).len() == ids(&actual).len() {
                self.learn(file, command, &expected, &actual, update);
            }
            self.commands += 1;
            at = end;
        }
        out
    }

    /// Runs one command line; returns it as it was run, and what it printed.
    fn command(&self, written: &str) -> (String, String) {
        let word = Regex::new(r"[0-9a-f]{4,64}").unwrap();
        let line = word.replace_all(written, |found: &regex::Captures<'_>| {
            let word = &found[0];
            let known = self.real.iter().find(|(id, _)| id.starts_with(word));
            known.map_or(word.to_owned(), |(_, real)| real[..word.len().min(real.len())].to_owned())
        });
        let bin = Path::new(env!("CARGO_BIN_EXE_rath")).parent().unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let out = Command::new("sh")
            .args(["-c", &format!("exec 2>&1; {line}")])
            .current_dir(&self.dir)
            .env_clear()
            .envs([("PATH", path.as_str()), ("USER", "ada"), ("TZ", "UTC"), ("LANG", "C.UTF-8"), ("COLUMNS", "100")])
            .env("HOME", &self.dir)
            .env("TMPDIR", &self.dir)
            .output()
            .unwrap();
        let mut text = String::from_utf8_lossy(&out.stdout).replace(&*self.dir.to_string_lossy(), "/home/ada");
        while text.ends_with('\n') {
            text.pop();
        }
        let text: Vec<_> = text.lines().map(str::trim_end).collect();
        let mut text = text.join("\n");
        if let Some(code) = out.status.code().filter(|code| *code != 0) {
            if !text.is_empty() {
                text.push('\n');
            }
            write!(text, "[exit {code}]").unwrap();
        }
        (line.into_owned(), text)
    }

    /// Compares the output, and remembers which written id stands for which real one.
    fn learn(&mut self, file: &Path, command: &str, expected: &str, actual: &str, update: bool) {
        let (left, right) = (plain(expected), plain(actual));
        assert!(
            update || left == right,
            "{}: `{command}`\n--- written\n{expected}\n--- came out\n{actual}\n",
            file.display()
        );
        for (written, real) in ids(expected).into_iter().zip(ids(actual)) {
            let known = self.real.entry(written.clone()).or_insert_with(|| real.clone());
            assert!(
                update || *known == real,
                "{}: `{command}`: {written} stood for {known}, now for {real}",
                file.display()
            );
        }
    }
}

/// Sessions, records and whole ids, in the order they appear.
fn ids(text: &str) -> Vec<String> {
    let id = Regex::new(
        r"\b([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{64}|[0-9a-f]{12}|[0-9a-f]{8})\b",
    );
    id.unwrap().find_iter(text).map(|found| found.as_str().to_owned()).collect()
}

/// The text without values that differ from run to run.
fn plain(text: &str) -> String {
    let mut text = text.to_owned();
    for (pattern, name) in [
        (
            r"\b([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{64}|[0-9a-f]{12}|[0-9a-f]{8})\b",
            "ID",
        ),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "TIME"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", "TIME"),
        (r"\b\d\d:\d\d:\d\d\b", "CLOCK"),
        (r"just now   |just now|\d+ (s|min|h) ago *", "AGO"),
        (r#""(time|born)":\d+"#, r#""TIME""#),
        (r"process \d+", "process N"),
        (r"rath-demo-\w+", "rath-demo-X"),
        (r"\b(in|for) (\d+ ms|\d+\.\d s|\d+ min \d+ s)", "in N ms"),
        (r"out, (\d+ ms|\d+\.\d s)", "out, N ms"),
        (r"\b[0-9a-f]{32}\b", "ID"),
        (r"SQLite [\d.]+", "SQLite V"),
    ] {
        text = Regex::new(pattern).unwrap().replace_all(&text, name).into_owned();
    }
    text
}
