//! The isolated backend, treated badly.

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
    Backend as _, Command, Error, Event, Finished, Local, Part, Running, Sandbox, Spec, Status, Tier, Written,
};
use rustix::fs::{Mode, OFlags};
use tempfile::TempDir;

/// Makes two tests of each function, one a tier.
macro_rules! on_each_tier {
    ($($test:ident),* $(,)?) => {
        mod ns {
            $(#[test]
            fn $test() {
                crate::local::on(rath_sandbox::Tier::Ns, super::$test);
            })*
        }
        mod landlock {
            $(#[test]
            fn $test() {
                crate::local::on(rath_sandbox::Tier::Landlock, super::$test);
            })*
        }
    };
}
use on_each_tier;

/// Runs a test on a tier, if this machine has it.
fn on(tier: Tier, test: fn(Tier)) {
    if has(tier) {
        test(tier);
    }
}

/// The best tier that this machine has, for tests of what is the same on both.
fn best() -> Option<Tier> {
    [Tier::Ns, Tier::Landlock].into_iter().find(|tier| has(*tier))
}

/// Whether this machine has a tier. If not, a line says so.
fn has(tier: Tier) -> bool {
    static REFUSED: [OnceLock<Option<String>>; 2] = [const { OnceLock::new() }; 2];
    let refused = REFUSED[tier as usize].get_or_init(|| {
        let local = Local::only(tier);
        let diagnosis = local.diagnose();
        let why = || diagnosis.refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        diagnosis.tier.is_none().then(why)
    });
    if let Some(why) = refused {
        rath_testkit::Requirement::Sandbox.skip(format_args!("tier {tier}: {why}"));
    }
    refused.is_none()
}

/// An open sandbox, and what must live as long as it.
struct Bench {
    sandbox: Arc<dyn Sandbox>,
    local: Local,
    spec: Spec,
    base: TempDir,
}

impl Bench {
    fn open(tier: Tier) -> Self {
        Self::with(tier, |_, _| {})
    }

    /// With a changed spec. The path is that of a directory to put things into.
    fn with(tier: Tier, change: impl FnOnce(&mut Spec, &Path)) -> Self {
        let base = tempfile::tempdir().unwrap();
        let spec = spec_in(base.path());
        Self::over(tier, base, spec, change)
    }

    fn over(tier: Tier, base: TempDir, mut spec: Spec, change: impl FnOnce(&mut Spec, &Path)) -> Self {
        change(&mut spec, base.path());
        let local = Local::only(tier);
        let sandbox = block_on(local.open(spec.clone())).unwrap();
        Self { sandbox, local, spec, base }
    }

    /// Another value of the same sandbox.
    fn reopen(&self) -> Arc<dyn Sandbox> {
        block_on(self.local.reopen(self.sandbox.identity().clone(), self.spec.clone())).unwrap()
    }

    fn start(&self, command: Command) -> Running {
        block_on(self.sandbox.exec(command)).unwrap()
    }

    /// A command that does not start.
    fn refused(&self, command: Command) -> Error {
        block_on(self.sandbox.exec(command)).unwrap_err()
    }

    fn run(&self, command: Command) -> Finished {
        block_on(self.start(command).finish()).unwrap()
    }

    fn shell(&self, line: &str) -> Finished {
        self.run(Command::shell(line))
    }

    /// What a line says that goes well.
    fn says(&self, line: &str) -> String {
        says(&self.sandbox, line)
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, Error> {
        block_on(self.sandbox.read(Path::new(path), Part::ALL)).map(|contents| contents.bytes)
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<Written, Error> {
        block_on(self.sandbox.write(Path::new(path), bytes, None))
    }

    fn remove(&self, path: &str) -> Result<(), Error> {
        block_on(self.sandbox.remove(Path::new(path)))
    }

    fn status(&self) -> Status {
        block_on(self.sandbox.status()).unwrap()
    }

    fn rest(&self) {
        block_on(self.sandbox.rest()).unwrap();
    }

    /// The process that keeps the sandbox.
    fn anchor(&self) -> i32 {
        fs::read_to_string(self.spec.state.join("anchor.lock")).unwrap().parse().unwrap()
    }
}

/// A workspace and a state directory below `base`.
fn spec_in(base: &Path) -> Spec {
    let spec = Spec::new(base.join("files"), base.join("state"));
    fs::create_dir_all(&spec.directory).unwrap();
    fs::create_dir_all(&spec.state).unwrap();
    spec
}

fn says(sandbox: &Arc<dyn Sandbox>, line: &str) -> String {
    let finished = block_on(block_on(sandbox.exec(Command::shell(line))).unwrap().finish()).unwrap();
    assert!(finished.ended.well(), "{line}: {finished:?}");
    String::from_utf8(finished.stdout.bytes).unwrap().trim_end().to_owned()
}

/// Waits for output that contains `text`.
fn wait_for(running: &mut Running, text: &str) {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(text) {
        match block_on(running.next()) {
            Some(Event::Output { bytes, .. }) => seen.extend(bytes),
            other => panic!("{other:?} after {}", String::from_utf8_lossy(&seen)),
        }
    }
}

/// Waits until something is so.
fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A time to sleep that nobody else sleeps: by it a process is known from outside, whatever its environment.
fn long_time() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("7777.{:07}{:04}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Processes of this machine that have `word` in their command line.
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

/// Whether some process of this machine has something below `path` mounted.
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

/// Whether this process is one that runs `test` and nothing else. If not, it is started and waited for.
fn alone(test: &str) -> bool {
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

/// Makes a tree that is deeper than paths are long, files can be open, and stacks are high. The file at its bottom.
fn deep_tree(at: &Path) -> OwnedFd {
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut here = rustix::fs::open(at, directory, Mode::empty()).unwrap();
    for _ in 0..3000 {
        rustix::fs::mkdirat(&here, "d", Mode::RWXU).unwrap();
        here = rustix::fs::openat(&here, "d", directory, Mode::empty()).unwrap();
    }
    rustix::fs::openat(&here, "file", OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC, Mode::RWXU).unwrap()
}

/// What is below a directory, with the bytes of files, links and times of change.
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
