//! Runs the fuzzers. The targets are in fuzz/ and need a nightly compiler and `cargo-fuzz`.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::run::{command, root};
use crate::tools;

/// The fuzz targets.
const TARGETS: &[&str] = &["record", "bundle", "import", "expression", "sse", "shell"];

/// The default duration of a target in seconds.
const SECONDS: u64 = 30;
/// The duration of a target in seconds when it runs as a part of the tests.
const SHORT: u64 = 4;

/// Runs one target, or all of them.
pub(crate) fn fuzz(words: &[&str]) -> Result<()> {
    let (target, seconds) = match words {
        [] => (None, SECONDS),
        ["--seconds", seconds] => (None, number(seconds)?),
        [target] => (Some(*target), SECONDS),
        [target, "--seconds", seconds] => (Some(*target), number(seconds)?),
        other => bail!("unknown: {}: `cargo xtask fuzz [TARGET] [--seconds N]`", other.join(" ")),
    };
    let targets = match target {
        None => TARGETS,
        Some(name) => {
            let at = TARGETS.iter().position(|target| *target == name);
            let at = at.with_context(|| format!("there is no target {name:?}: {}", TARGETS.join(", ")))?;
            &TARGETS[at..=at]
        }
    };
    if let Err(why) = tools::cargo_fuzz() {
        bail!("fuzzing needs a nightly compiler and cargo-fuzz: {why}");
    }
    targets.iter().try_for_each(|target| run(target, seconds))
}

/// Runs each target for a few seconds, if the required tools are installed.
pub(crate) fn short() -> Result<String> {
    match tools::cargo_fuzz() {
        Ok(()) => {
            TARGETS.iter().try_for_each(|target| run(target, SHORT))?;
            Ok(format!("fuzzing: {} for {SHORT} s each, nothing found", TARGETS.join(", ")))
        }
        Err(why) => {
            eprintln!("\nskipped: fuzzing: {why}");
            Ok(format!("fuzzing skipped: {why}"))
        }
    }
}

fn number(seconds: &str) -> Result<u64> {
    seconds.parse().with_context(|| format!("{seconds:?} is not a number of seconds"))
}

/// Runs one target. New inputs are kept in the target directory; the corpus in the source tree is only read.
fn run(target: &str, seconds: u64) -> Result<()> {
    let all = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let all = root().join(all).join("fuzz");
    let (found, crashes) = (all.join("corpus").join(target), all.join("crashes").join(target));
    for folder in [&found, &crashes] {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    let line = format!("cargo +nightly fuzz run --fuzz-dir fuzz --sanitizer none {target}");
    eprintln!("\n$ {line} ({seconds} s)");
    let mut fuzz = command(&line);
    fuzz.env("PATH", tools::path_with_tools()).arg("--target-dir").arg(&all).arg(&found);
    fuzz.arg(format!("fuzz/corpus/{target}")).arg("--").arg(format!("-max_total_time={seconds}"));
    fuzz.args(["-timeout=10", "-rss_limit_mb=2048", "-max_len=16384", "-print_final_stats=1"]);
    fuzz.arg(format!("-artifact_prefix={}/", crashes.display()));
    let done = fuzz.output().with_context(|| format!("starting `{line}`"))?;
    let output = String::from_utf8_lossy(&done.stderr);
    if !done.status.success() {
        eprintln!("{output}");
        bail!(
            "fuzzing {target} failed; an input that breaks it is in {}\n  help: `cargo +nightly fuzz run --fuzz-dir fuzz \
             --sanitizer none {target} FILE` runs it again",
            crashes.display()
        );
    }
    let tried = output.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    eprintln!("{target}: {} inputs, nothing found", tried.unwrap_or("some").trim());
    Ok(())
}
