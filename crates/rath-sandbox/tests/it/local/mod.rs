//! Tests of the isolated backend.

mod helper;
mod input;
mod killed;
mod leaks;
mod life;
mod limits;
mod many;
mod overlay;
mod plain_user;
mod sockets;
mod terminal;
mod view;

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pollster::block_on;
use rath_sandbox::{
    Backend as _, ByteRange, Command, CommandEvent, Error, Finished, IsolationLevel, Local, Running, Sandbox,
    SandboxSpec, SandboxStatus, WriteOutcome,
};
use rustix::fs::{Mode, OFlags};
use tempfile::TempDir;

/// Creates two tests from each function, one for each isolation level.
macro_rules! on_each_level {
    ($($test:ident),* $(,)?) => {
        mod ns {
            $(#[test]
            fn $test() {
                crate::local::on_level(rath_sandbox::IsolationLevel::Ns, super::$test);
            })*
        }
        mod landlock {
            $(#[test]
            fn $test() {
                crate::local::on_level(rath_sandbox::IsolationLevel::Landlock, super::$test);
            })*
        }
    };
}
use on_each_level;

/// Runs a test on an isolation level, if this machine supports it.
fn on_level(level: IsolationLevel, test: fn(IsolationLevel)) {
    if has(level) {
        test(level);
    }
}

/// The highest isolation level of this machine, for tests that do not depend on the level.
fn best() -> Option<IsolationLevel> {
    [IsolationLevel::Ns, IsolationLevel::Landlock].into_iter().find(|level| has(*level))
}

/// Whether this machine supports an isolation level. Prints that the test is skipped if not.
fn has(level: IsolationLevel) -> bool {
    static REFUSED: [OnceLock<Option<String>>; 2] = [const { OnceLock::new() }; 2];
    let refused = REFUSED[level as usize].get_or_init(|| {
        let local = Local::only(level);
        let diagnosis = local.diagnose();
        let why = || diagnosis.refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        diagnosis.level.is_none().then(why)
    });
    if let Some(why) = refused {
        rath_testkit::Requirement::Sandbox.skip(format_args!("isolation level {level}: {why}"));
    }
    refused.is_none()
}

/// An open sandbox with its directories.
struct SandboxFixture {
    sandbox: Arc<dyn Sandbox>,
    local: Local,
    spec: SandboxSpec,
    base: TempDir,
}

impl SandboxFixture {
    fn open(level: IsolationLevel) -> Self {
        Self::with(level, |_, _| {})
    }

    /// Opens a sandbox with a changed spec. `change` also gets the path of a temporary directory.
    fn with(level: IsolationLevel, change: impl FnOnce(&mut SandboxSpec, &Path)) -> Self {
        let base = tempfile::tempdir().unwrap();
        let spec = spec_in(base.path());
        Self::over(level, base, spec, change)
    }

    fn over(
        level: IsolationLevel,
        base: TempDir,
        mut spec: SandboxSpec,
        change: impl FnOnce(&mut SandboxSpec, &Path),
    ) -> Self {
        change(&mut spec, base.path());
        let local = Local::only(level);
        let sandbox = block_on(local.open(spec.clone())).unwrap();
        Self { sandbox, local, spec, base }
    }

    /// Another handle of the same sandbox.
    fn reopen(&self) -> Arc<dyn Sandbox> {
        block_on(self.local.reopen(self.sandbox.identity().clone(), self.spec.clone())).unwrap()
    }

    fn start(&self, command: Command) -> Running {
        block_on(self.sandbox.exec(command)).unwrap()
    }

    /// The error of a command that cannot be started.
    fn start_error(&self, command: Command) -> Error {
        block_on(self.sandbox.exec(command)).unwrap_err()
    }

    fn run(&self, command: Command) -> Finished {
        block_on(self.start(command).finish()).unwrap()
    }

    fn shell(&self, line: &str) -> Finished {
        self.run(Command::shell(line))
    }

    /// Runs a shell line that must succeed, and returns its output.
    fn output(&self, line: &str) -> String {
        output(&self.sandbox, line)
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, Error> {
        block_on(self.sandbox.read(Path::new(path), ByteRange::ALL)).map(|contents| contents.bytes)
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<WriteOutcome, Error> {
        block_on(self.sandbox.write(Path::new(path), bytes, None))
    }

    fn remove(&self, path: &str) -> Result<(), Error> {
        block_on(self.sandbox.remove(Path::new(path)))
    }

    fn status(&self) -> SandboxStatus {
        block_on(self.sandbox.status()).unwrap()
    }

    fn suspend(&self) {
        block_on(self.sandbox.suspend()).unwrap();
    }

    /// The process id of the supervisor.
    fn supervisor(&self) -> i32 {
        fs::read_to_string(self.spec.state.join("anchor.lock")).unwrap().parse().unwrap()
    }
}

/// A workspace and a state directory below `base`.
fn spec_in(base: &Path) -> SandboxSpec {
    let spec = SandboxSpec::new(base.join("files"), base.join("state"));
    fs::create_dir_all(&spec.directory).unwrap();
    fs::create_dir_all(&spec.state).unwrap();
    spec
}

fn output(sandbox: &Arc<dyn Sandbox>, line: &str) -> String {
    let finished = block_on(block_on(sandbox.exec(Command::shell(line))).unwrap().finish()).unwrap();
    assert!(finished.ended.success(), "{line}: {finished:?}");
    String::from_utf8(finished.stdout.bytes).unwrap().trim_end().to_owned()
}

/// Waits for output that contains `text`.
fn wait_for(running: &mut Running, text: &str) {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(text) {
        match block_on(running.next()) {
            Some(CommandEvent::Output { bytes, .. }) => seen.extend(bytes),
            other => panic!("{other:?} after {}", String::from_utf8_lossy(&seen)),
        }
    }
}

/// Waits until a condition is true.
fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A unique argument for `sleep`, by which a process is found from outside even without its environment.
fn long_time() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("7777.{:07}{:04}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Processes of this machine with `word` in their command line.
fn processes_with(word: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let pids = pids.filter(|name| name.parse::<u32>().is_ok());
    let has_word = |pid: &String| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).split('\0').any(|part| part.split(' ').any(|part| part == word))
    };
    pids.filter(has_word).collect()
}

/// Whether any process of this machine has a mount below `path`.
fn is_mounted(path: &Path) -> bool {
    let path = path.to_str().unwrap();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok()));
    pids.map(|entry| fs::read_to_string(entry.path().join("mountinfo")).unwrap_or_default())
        .any(|mounts| mounts.lines().any(|line| line.split(' ').any(|part| part.starts_with(path))))
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// This test binary, running one test.
fn this_binary(test: &str) -> std::process::Command {
    binary(&std::env::current_exe().unwrap(), test)
}

fn binary(path: &Path, test: &str) -> std::process::Command {
    let mut command = std::process::Command::new(path);
    command.args(["--exact", &format!("local::{test}"), "--nocapture", "--test-threads=1"]);
    command.stdin(Stdio::null());
    command
}

/// Returns `true` in a process that runs only `test`. Otherwise starts such a process, waits for it, and returns
/// `false`.
fn run_alone(test: &str) -> bool {
    const ALONE: &str = "RATH_TEST_ALONE";
    if std::env::var(ALONE).is_ok_and(|name| name == test) {
        return true;
    }
    let output = this_binary(test).env(ALONE, test).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{test}: {out}{err}");
    eprint!("{err}");
    false
}

/// Creates a tree that is deeper than the limits for path length, open files and stack size. Returns the file at its
/// bottom.
fn deep_tree(at: &Path) -> OwnedFd {
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut here = rustix::fs::open(at, directory, Mode::empty()).unwrap();
    for _ in 0..3000 {
        rustix::fs::mkdirat(&here, "d", Mode::RWXU).unwrap();
        here = rustix::fs::openat(&here, "d", directory, Mode::empty()).unwrap();
    }
    rustix::fs::openat(&here, "file", OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC, Mode::RWXU).unwrap()
}

/// Everything below a directory: contents of files, targets of links, and modification times.
fn everything_below(directory: &Path) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let bytes = match () {
            () if meta.is_symlink() => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
            () if meta.is_dir() => {
                left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                Vec::new()
            }
            () => fs::read(&path).unwrap(),
        };
        found.push((path, bytes, meta.modified().unwrap()));
    }
    found.sort();
    found
}
