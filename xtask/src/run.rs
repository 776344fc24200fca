//! Running other programs.

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
