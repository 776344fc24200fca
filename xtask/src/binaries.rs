//! Builds the project's test binaries and runs several at a time. Many tests wait for a disk, a process or a clock, so
//! one binary alone would leave the machine mostly idle.

use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::{Artifact, Message, MetadataCommand};

use crate::run::{Count, command, root};

/// The number of binaries that run in parallel.
const PARALLEL: usize = 4;
/// The packages whose binaries are started first, because they take longest.
const LONGEST: &[&str] = &["rath-store", "rath-sandbox", "rath", "rath-cli"];

/// The test target that runs the compiler.
const COMPILE_TESTS: &str = "compile_fail";

/// One test binary.
pub(crate) struct Binary {
    package: String,
    target: String,
    directory: PathBuf,
    executable: PathBuf,
}

/// The packages with tests. The benches have none; clippy checks them, but they are not compiled here.
pub(crate) const TESTED: &str = "--workspace --exclude rath-bench";

/// Compiles the test binaries of these targets, and lints all code.
pub(crate) fn build(targets: &str) -> Result<Vec<Binary>> {
    // `cargo clippy` is `cargo check` with a compiler wrapper. With the same wrapper for `cargo test`, lints and tests
    // share one compilation.
    lint("cargo build --package rath-bench --bins --quiet")?;
    let line = format!("cargo test {TESTED} {targets} --quiet --no-run --message-format=json-render-diagnostics");
    eprintln!("\n$ {line}");
    let mut build = with_lints(command(&line));
    let mut child = build.stdout(Stdio::piped()).spawn().with_context(|| format!("starting `{line}`"))?;
    let mut artifacts: Vec<Artifact> = Vec::new();
    for message in child.stdout.take().into_iter().flat_map(|out| Message::parse_stream(BufReader::new(out))) {
        if let Message::CompilerArtifact(artifact) = message?
            && artifact.profile.test
        {
            artifacts.push(artifact);
        }
    }
    ensure!(child.wait()?.success(), "`{line}` failed");
    let metadata = MetadataCommand::new().current_dir(root()).no_deps().exec()?;
    let binary = |artifact: Artifact| {
        let package = metadata.packages.iter().find(|package| package.id == artifact.package_id)?;
        Some(Binary {
            package: package.name.to_string(),
            target: artifact.target.name,
            directory: package.manifest_path.parent()?.into(),
            executable: artifact.executable?.into(),
        })
    };
    let mut binaries: Vec<_> = artifacts.into_iter().filter_map(binary).collect();
    binaries.sort_by_key(|binary| LONGEST.iter().position(|name| *name == binary.package).unwrap_or(LONGEST.len()));
    Ok(binaries)
}

fn lint(line: &str) -> Result<()> {
    eprintln!("\n$ {line}");
    let status = with_lints(command(line)).status().with_context(|| format!("starting `{line}`"))?;
    ensure!(status.success(), "`{line}` failed");
    Ok(())
}

/// Makes a cargo command compile the crates of the workspace with clippy, with warnings as errors.
fn with_lints(mut command: Command) -> Command {
    command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    command.env("CLIPPY_ARGS", "--deny__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    command
}

impl Binary {
    /// Runs the binary as cargo would, with the duration of each test.
    fn run(&self, arguments: &str, scale: Option<&str>) -> Result<Output> {
        let mut command = Command::new(&self.executable);
        command.args(arguments.split_whitespace()).current_dir(&self.directory).stdin(Stdio::null());
        if let Some(scale) = scale {
            command.env("RATH_SCALE", scale);
        }
        // The test harness reports durations only with this option, which requires this variable. It is not set for
        // tests that run the compiler, because it would make the compiler build everything again.
        if self.target != COMPILE_TESTS {
            command.env("RUSTC_BOOTSTRAP", "1").args(["-Zunstable-options", "--report-time"]);
        }
        command.env("CARGO_MANIFEST_DIR", &self.directory).env("CARGO_PKG_NAME", &self.package);
        command.output().with_context(|| format!("starting {}", self.executable.display()))
    }
}

/// Runs all binaries, also after a failure, and counts the results. The output of a binary is shown when it has ended:
/// one line if all tests passed, everything otherwise.
pub(crate) fn run(binaries: Vec<Binary>, arguments: &str, scale: Option<&str>, count: &mut Count) -> Result<()> {
    let scaled = scale.map(|scale| format!(", RATH_SCALE={scale}")).unwrap_or_default();
    eprintln!("\n{} test binaries, {PARALLEL} in parallel{scaled} {arguments}", binaries.len());
    let (waiting, ended) = (Mutex::new(binaries.into_iter()), Mutex::new((count, Vec::new())));
    let next = || locked(&waiting).next();
    let work = || -> Result<()> {
        while let Some(binary) = next() {
            let (name, start) = (format!("{} {}", binary.package, binary.target), Instant::now());
            let output = binary.run(arguments, scale)?;
            let text = String::from_utf8_lossy(&output.stdout);
            let (count, failed) = &mut *locked(&ended);
            let before = count.clone();
            text.lines().for_each(|line| count.add(line));
            if output.status.success() {
                let (passed, ignored) = (count.passed - before.passed, count.ignored - before.ignored);
                let took = start.elapsed().as_secs_f32();
                if passed + ignored > 0 {
                    println!("{name}: {passed} passed, {ignored} skipped, {took:.1} s");
                }
            } else {
                println!("\n{name}: {}\n{text}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
                failed.push(name);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..PARALLEL).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?)
    })?;
    let (_, failed) = ended.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    ensure!(failed.is_empty(), "tests failed in {}", failed.join(", "));
    Ok(())
}

fn locked<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_binaries_are_run_and_counted_even_if_one_fails() {
        let binary = |target: &str, executable: PathBuf| Binary {
            package: "package".into(),
            target: target.into(),
            directory: root(),
            executable,
        };
        let passing = std::env::current_exe().unwrap();
        let binaries = vec![binary("failing", "false".into()), binary("passing", passing)];
        let mut count = Count::default();
        let failed = run(binaries, "result_lines_are_counted", None, &mut count).unwrap_err();
        assert_eq!(failed.to_string(), "tests failed in package failing");
        assert_eq!(count.passed, 1);
    }
}
