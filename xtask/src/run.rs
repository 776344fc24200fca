//! Running other programs.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// The project's directory.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

/// Runs a command in the project's directory, its output shown; fails if it does.
pub(crate) fn run(line: &str) -> Result<()> {
    eprintln!("\n$ {line}");
    let status = command(line).status().with_context(|| format!("starting `{line}`"))?;
    ensure!(status.success(), "`{line}` failed");
    Ok(())
}

/// How many tests passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, more: Self) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.ignored += more.ignored;
    }
}

/// Runs a test command, its output shown, and counts what its closing lines say.
pub(crate) fn run_tests(line: &str, count: &mut Count) -> Result<()> {
    run_tests_with(line, "", &[], count)
}

/// As [`run_tests`], with one more word and in this environment.
pub(crate) fn run_tests_with(line: &str, more: &str, env: &[(&str, &str)], count: &mut Count) -> Result<()> {
    let line = format!("{line} {more}");
    eprintln!("\n$ {line}");
    let mut command = command(&line);
    command.envs(env.iter().copied()).stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("starting `{line}`"))?;
    for text in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
        let text = text?;
        println!("{text}");
        *count += closing_line(&text);
    }
    ensure!(child.wait()?.success(), "`{line}` failed");
    Ok(())
}

/// The figures of `test result: ok. 3 passed; 0 failed; 0 ignored; …`.
fn closing_line(text: &str) -> Count {
    let Some(figures) = text.strip_prefix("test result: ") else { return Count::default() };
    let figure = |name: &str| {
        let before = figures.split(name).next().unwrap_or_default();
        before.trim().rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
    };
    Count { passed: figure("passed"), failed: figure("failed;"), ignored: figure("ignored") }
}

/// Whether a command succeeds; its output is not shown.
pub(crate) fn works(line: &str) -> bool {
    let quiet = command(line).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

fn command(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("true"));
    command.args(words).current_dir(root());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_counted() {
        let line = "test result: FAILED. 31 passed; 2 failed; 4 ignored; 0 measured; 9 filtered out; finished in 1.20s";
        assert_eq!(closing_line(line), Count { passed: 31, failed: 2, ignored: 4 });
        assert_eq!(closing_line("test result is near"), Count::default());
    }
}
