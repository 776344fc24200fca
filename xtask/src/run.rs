//! Runs other programs.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// The project's directory.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

/// Runs a command in the project's directory and shows its output. Fails if the command fails.
pub(crate) fn run(line: &str) -> Result<()> {
    eprintln!("\n$ {line}");
    let status = command(line).status().with_context(|| format!("starting `{line}`"))?;
    ensure!(status.success(), "`{line}` failed");
    Ok(())
}

/// The number of tests that passed, failed and were skipped.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Count {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
    /// Remarks to print at the end: the tests that this machine could not run.
    pub(crate) remarks: BTreeSet<String>,
    /// The seconds and names of the tests that took more than one second.
    pub(crate) slowest: Vec<(f32, String)>,
}

impl Count {
    /// Evaluates a line of a test binary's output.
    pub(crate) fn add(&mut self, line: &str) {
        let more = closing_line(line);
        self.passed += more.passed;
        self.failed += more.failed;
        self.ignored += more.ignored;
        if line.starts_with("escape suite") {
            self.remarks.insert(line.to_owned());
        }
        // A test that skips itself reports it at least once, and counts as passed in the test harness.
        if line.starts_with("skipped: ") && self.remarks.insert(line.to_owned()) {
            self.passed = self.passed.saturating_sub(1);
            self.ignored += 1;
        }
        if let Some(timed) = timed_line(line).filter(|(seconds, _)| *seconds > 1.0) {
            self.slowest.push(timed);
        }
    }
}

/// The seconds and the name in a line `test NAME ... ok <1.234s>`.
fn timed_line(text: &str) -> Option<(f32, String)> {
    let (name, rest) = text.strip_prefix("test ")?.split_once(" ... ")?;
    let seconds = rest.rsplit_once('<')?.1.strip_suffix("s>")?;
    Some((seconds.parse().ok()?, name.to_owned()))
}

/// Runs a test command, shows its output, and counts the results.
pub(crate) fn run_tests(line: &str, count: &mut Count) -> Result<()> {
    eprintln!("\n$ {line}");
    let mut child = command(line).stdout(Stdio::piped()).spawn().with_context(|| format!("starting `{line}`"))?;
    for text in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
        let text = text?;
        println!("{text}");
        count.add(&text);
    }
    ensure!(child.wait()?.success(), "`{line}` failed");
    Ok(())
}

/// The counts in a line `test result: ok. 3 passed; 0 failed; 0 ignored; …`.
fn closing_line(text: &str) -> Count {
    let Some(figures) = text.strip_prefix("test result: ") else { return Count::default() };
    let figure = |name: &str| {
        let before = figures.split(name).next().unwrap_or_default();
        before.trim().rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
    };
    Count { passed: figure("passed"), failed: figure("failed;"), ignored: figure("ignored"), ..Count::default() }
}

/// Whether a command succeeds. Its output is not shown.
pub(crate) fn works(line: &str) -> bool {
    let quiet = command(line).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

/// A command in the project's directory.
pub(crate) fn command(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("true"));
    command.args(words).current_dir(root());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_counted() {
        let line = "test result: FAILED. 31 passed; 2 failed; 4 ignored; 0 measured; 9 filtered out; finished in 1.20s";
        let counted = Count { passed: 31, failed: 2, ignored: 4, ..Count::default() };
        assert_eq!(closing_line(line), counted);
        assert_eq!(closing_line("test result is near"), Count::default());
        let mut count = Count::default();
        ["escape suite: root part skipped", line, "else"].iter().for_each(|line| count.add(line));
        assert_eq!((count.passed, count.remarks.len()), (31, 1));
        [
            "skipped: one: needs git: none",
            "skipped: one: needs git: none",
            "test two ... ok <1.500s>",
            "test three ... ok <0.500s>",
        ]
        .iter()
        .for_each(|line| count.add(line));
        assert_eq!((count.passed, count.ignored), (30, 5));
        assert_eq!(count.slowest, [(1.5, "two".to_owned())]);
    }
}
