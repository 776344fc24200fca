//! Installs the tools that the tests need besides Rust. If a tool cannot be installed, the tests that need it report
//! that they are skipped.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::run::{root, works};

/// A mock server of the model providers' APIs.
const AIMOCK: &str = "@copilotkit/aimock@1.43.0";

/// Installs the tools that are not installed yet.
pub(crate) fn install() {
    if let Err(why) = aimock() {
        eprintln!("\nskipped: {AIMOCK} is not installed: {why}");
    }
    if let Err(why) = tiny_models() {
        eprintln!("\nskipped: the tiny models are not installed: {why}");
    }
}

/// The user's cache directory.
fn cache() -> Result<PathBuf, String> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home);
    cache.ok_or_else(|| "there is no home directory".into())
}

/// Installs `cargo-fuzz` in the cache directory, if there is a nightly compiler.
pub(crate) fn cargo_fuzz() -> Result<(), String> {
    if !works("cargo +nightly --version") {
        return Err("there is no nightly compiler (`rustup toolchain install nightly` gets one)".into());
    }
    from_cargo("cargo-fuzz", "cargo-fuzz fuzz --version")
}

/// Installs ripgrep, which search is compared with.
pub(crate) fn ripgrep() -> Result<(), String> {
    from_cargo("ripgrep", "rg --version")
}

/// Installs a program with cargo, unless the command `check` succeeds already.
fn from_cargo(name: &str, check: &str) -> Result<(), String> {
    let mut words = check.split(' ');
    let mut check = Command::new(words.next().unwrap_or_default());
    if check.args(words).env("PATH", path_with_tools()).output().is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    let folder = cache()?.join(format!("rath-{name}"));
    eprintln!("\n$ cargo install {name} (once)");
    let install = Command::new("cargo").args(["install", "--quiet", "--locked", name, "--root"]).arg(&folder).status();
    match install {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`cargo install {name}` ended with {status}")),
        Err(error) => Err(format!("cargo: {error}")),
    }
}

/// The search path, with the directories of our installed tools at the end.
pub(crate) fn path_with_tools() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let ours = ["rath-cargo-fuzz/bin", "rath-ripgrep/bin"].map(|bin| cache().map(|cache| cache.join(bin)).ok());
    let all = std::env::split_paths(&path).chain(ours.into_iter().flatten());
    std::env::join_paths(all).unwrap_or(path)
}

fn aimock() -> Result<(), String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let folder = root().join(target).join("tmp/aimock");
    if folder.join("node_modules/@copilotkit/aimock/package.json").is_file() {
        return Ok(());
    }
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    eprintln!("\n$ npm install {AIMOCK}");
    let npm = Command::new("npm")
        .args(["install", "--no-audit", "--no-fund", "--silent", "--prefix"])
        .arg(&folder)
        .arg(AIMOCK)
        .status();
    match npm {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("npm ended with {status}")),
        Err(error) => Err(format!("npm: {error}")),
    }
}

/// Installs two small models with real weights in the user's cache. Their server downloads them when it is first
/// started.
fn tiny_models() -> Result<(), String> {
    let program = root().join("../shared/tools/tiny-model/start");
    if !program.is_file() {
        return Err("there is no ../shared/tools/tiny-model".into());
    }
    let cache = cache()?.join("tiny-model");
    if cache.join("installed").is_file() {
        return Ok(());
    }
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let port = free.map_err(|error| error.to_string())?.port();
    eprintln!("\n$ {} (about 260 MB, once)", program.display());
    let started =
        Command::new(program).arg(port.to_string()).arg(&cache).process_group(0).stdout(Stdio::piped()).spawn();
    let mut server = started.map_err(|error| error.to_string())?;
    let lines = server.stdout.take().map(|out| BufReader::new(out).lines().map_while(Result::ok));
    let ready = lines.into_iter().flatten().any(|line| line == "ready");
    let _ = Command::new("kill").args(["--", &format!("-{}", server.id())]).status();
    let _ = server.wait();
    ready.then_some(()).ok_or_else(|| "the server of the models does not start".into())
}
