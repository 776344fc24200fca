//! The conformance suite for sandbox backends. Each function checks one guarantee in a new sandbox.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pollster::block_on;
use rath_sandbox::{
    Backend, ByteRange, CapturedOutput, Command, CommandEvent, Error, ExitStatus, FileKind, Finished, PathError,
    Running, Sandbox, SandboxSpec, SandboxStatus, Stream, WriteOutcome,
};
use tempfile::TempDir;

/// An open sandbox with its directories.
struct TestSandbox {
    inner: Arc<dyn Sandbox>,
    spec: SandboxSpec,
    _directories: [TempDir; 2],
}

/// Expands the conformance suite to tests for one backend: `sandbox_conformance!(make)`, where `make` is the backend.
#[macro_export]
macro_rules! sandbox_conformance {
    ($make:expr) => {
        $crate::sandbox_conformance!($make =>
            commands_report_exit_codes_and_signals, arguments_are_passed_unchanged,
            a_command_that_cannot_start_is_an_error, output_is_captured_unchanged,
            output_over_the_limit_is_counted, output_events_arrive_while_the_command_runs,
            input_is_passed_to_its_end, commands_get_only_the_given_environment,
            commands_run_in_the_given_directory, a_command_is_stopped_at_its_timeout,
            a_command_can_be_killed, a_dropped_command_is_killed,
            processes_that_outlive_a_command_are_killed, many_commands_run_in_parallel,
            closing_stops_running_commands, written_files_can_be_read, a_write_replaces_the_file,
            a_written_program_can_run_at_once, directories_are_listed, files_and_directories_are_removed,
            paths_cannot_leave_the_workspace, special_files_are_refused, a_sandbox_can_be_reopened,
            a_sandbox_without_its_directory_is_lost
        );
    };
    ($make:expr => $($check:ident),*) => {
        $(#[test]
        fn $check() {
            $crate::sandbox::$check(&$make);
        })*
    };
}

type TheBackend = Arc<dyn Backend>;

fn open(backend: &TheBackend) -> TestSandbox {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let spec = SandboxSpec::new(directories[0].path(), directories[1].path());
    let spec = spec.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("GIVEN", "by the sandbox");
    TestSandbox { inner: block_on(backend.open(spec.clone())).unwrap(), spec, _directories: directories }
}

impl TestSandbox {
    fn start(&self, command: Command) -> Running {
        block_on(self.inner.exec(command)).unwrap()
    }

    fn run(&self, command: Command) -> Finished {
        block_on(self.start(command).finish()).unwrap()
    }

    fn shell(&self, line: &str) -> Finished {
        self.run(Command::shell(line))
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, Error> {
        block_on(self.inner.read(Path::new(path), ByteRange::ALL)).map(|contents| contents.bytes)
    }

    fn real_path(&self, path: &str) -> Result<PathBuf, Error> {
        block_on(self.inner.real_path(Path::new(path)))
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<WriteOutcome, Error> {
        block_on(self.inner.write(Path::new(path), bytes, None))
    }

    fn running(&self) -> usize {
        match block_on(self.inner.status()).unwrap() {
            SandboxStatus::Open { running } => running,
            other => panic!("{other:?}"),
        }
    }
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

fn why(outcome: Result<impl std::fmt::Debug, Error>) -> PathError {
    match outcome {
        Err(Error::BadPath { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

/// A command reports its exit code or its signal.
pub fn commands_report_exit_codes_and_signals(backend: &TheBackend) {
    let sandbox = open(backend);
    assert!(sandbox.run(Command::argv(["true"])).ended.success());
    for code in [0, 1, 2, 126, 127, 130, 137, 143, 255] {
        let finished = sandbox.shell(&format!("exit {code}"));
        assert_eq!(finished.ended, ExitStatus::Exited(code));
        assert!(!finished.timed_out && !finished.killed && finished.killed_orphans == 0);
    }
    // Only signals that are not ignored when the test program runs in the background.
    for signal in [9, 10, 12, 15] {
        let finished = sandbox.shell(&format!("kill -{signal} $$"));
        assert_eq!(finished.ended, ExitStatus::Signalled { signal, core: false });
        assert!(!finished.timed_out && !finished.killed);
    }
    assert_eq!(sandbox.running(), 0);
}

/// Arguments are passed without a shell.
pub fn arguments_are_passed_unchanged(backend: &TheBackend) {
    let sandbox = open(backend);
    let odd = ["a b", "$HOME", "*", "", "'\"\\", "ä\n"];
    let finished = sandbox.run(Command::argv(["printf", "%s|"].into_iter().chain(odd)));
    assert_eq!(finished.stdout.bytes, "a b|$HOME|*||'\"\\|ä\n|".as_bytes());
    assert_eq!(sandbox.shell("echo $((1 + 1)) > f; cat f").stdout.bytes, b"2\n");
}

/// A program that does not exist is an error that names it, not an exit code.
pub fn a_command_that_cannot_start_is_an_error(backend: &TheBackend) {
    let sandbox = open(backend);
    sandbox.write("plain", b"not a program").unwrap();
    sandbox.write("dir/x", b"").unwrap();
    let cases = [
        (Command::argv(["no-such-program"]), "no-such-program"),
        (Command::argv(["./no-such-file"]), "no-such-file"),
        (Command::argv(["./plain"]), "plain"),
        (Command::argv(["./dir"]), "dir"),
        (Command::argv(["true"]).cwd("nowhere"), "nowhere"),
        (Command::argv(["true"]).cwd("plain"), "plain"),
        (Command::shell("true").cwd("nowhere"), "nowhere"),
        (Command::argv(Vec::<String>::new()), "empty"),
        (Command::argv([""]), ""),
    ];
    for (command, name) in cases {
        let error = block_on(sandbox.inner.exec(command)).unwrap_err();
        assert!(matches!(error, Error::CannotStart { .. }) && error.to_string().contains(name), "{error}");
        assert_eq!(error.code(), "cannot-start");
    }
    assert_eq!(why(block_on(sandbox.inner.exec(Command::argv(["true"]).cwd("../..")))), PathError::Outside);
    assert_eq!(why(block_on(sandbox.inner.exec(Command::argv(["true"]).cwd("/")))), PathError::Absolute);
    assert_eq!(sandbox.running(), 0);
}

/// Output may contain any bytes. The two streams are separate.
pub fn output_is_captured_unchanged(backend: &TheBackend) {
    let sandbox = open(backend);
    let bytes: Vec<u8> = (0..300_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    sandbox.write("bytes", &bytes).unwrap();
    let finished = sandbox.shell("cat bytes; cat bytes bytes >&2");
    assert!(finished.stdout == CapturedOutput { bytes: bytes.clone(), total: 300_000, cut: false });
    assert!(finished.stderr.bytes == [bytes.clone(), bytes].concat());
    let finished = sandbox.shell("yes | head -n 100000");
    assert!(finished.ended.success() && finished.stdout.bytes == b"y\n".repeat(100_000));
}

/// The start of the output is kept. The rest is read, so that the command continues, and counted.
pub fn output_over_the_limit_is_counted(backend: &TheBackend) {
    let sandbox = open(backend);
    let finished = sandbox.run(Command::shell("printf abcdefgh; printf 12345 >&2").output_limit(5));
    assert_eq!(finished.stdout, CapturedOutput { bytes: b"abcde".to_vec(), total: 8, cut: true });
    assert_eq!(finished.stderr, CapturedOutput { bytes: b"12345".to_vec(), total: 5, cut: false });
    let finished = sandbox.run(Command::argv(["head", "-c", "100000000", "/dev/zero"]).output_limit(1 << 20));
    assert!(finished.ended.success());
    assert!(finished.stdout == CapturedOutput { bytes: vec![0; 1 << 20], total: 100_000_000, cut: true });
    let finished = sandbox.run(Command::shell("echo no").output_limit(0));
    assert_eq!(finished.stdout, CapturedOutput { bytes: vec![], total: 3, cut: true });
}

/// Events arrive in order while the command runs, and contain all captured output.
pub fn output_events_arrive_while_the_command_runs(backend: &TheBackend) {
    let sandbox = open(backend);
    let line = "echo one; until [ -e go ]; do sleep 0.01; done; echo two >&2; until [ -e on ]; do sleep 0.01; done; echo three";
    let mut running = sandbox.start(Command::shell(line));
    assert!(running.poll().is_none());
    let expect = |running: &mut Running, stream, bytes: &[u8]| {
        assert_eq!(block_on(running.next()), Some(CommandEvent::Output { stream, bytes: bytes.to_vec() }));
    };
    expect(&mut running, Stream::Stdout, b"one\n");
    assert!(running.poll().is_none());
    sandbox.write("go", b"").unwrap();
    expect(&mut running, Stream::Stderr, b"two\n");
    sandbox.write("on", b"").unwrap();
    expect(&mut running, Stream::Stdout, b"three\n");
    assert_eq!(block_on(running.next()), None);
    assert_eq!(block_on(running.next()), None);
    assert!(running.poll().unwrap().unwrap().ended.success());
    let finished = block_on(running.finish()).unwrap();
    assert_eq!((&*finished.stdout.bytes, &*finished.stderr.bytes), (&b"one\nthree\n"[..], &b"two\n"[..]));
}

/// Input is passed completely, then closed. A command that does not read its input is not blocked. Without input, the
/// input is empty.
pub fn input_is_passed_to_its_end(backend: &TheBackend) {
    let sandbox = open(backend);
    let bytes: Vec<u8> = (0..1_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    assert!(sandbox.run(Command::argv(["cat"]).stdin(bytes.clone())).stdout.bytes == bytes);
    assert_eq!(sandbox.run(Command::argv(["head", "-c", "3"]).stdin(bytes.clone())).stdout.bytes, bytes[..3]);
    assert!(sandbox.run(Command::argv(["true"]).stdin(bytes)).ended.success());
    assert_eq!(sandbox.run(Command::argv(["cat"]).stdin([])).stdout.total, 0);
    assert_eq!(sandbox.run(Command::argv(["cat"])).stdout.total, 0);
}

/// A command gets the variables of the sandbox and its own, but none of this process. A sandbox with private
/// directories also sets `HOME` and `TMPDIR`.
pub fn commands_get_only_the_given_environment(backend: &TheBackend) {
    let sandbox = open(backend);
    let env = |command: Command| -> Vec<String> {
        let out = String::from_utf8(sandbox.run(command).stdout.bytes).unwrap();
        let ours = |line: &&str| ["RATH_", "HOME=", "TMPDIR="].iter().any(|name| line.starts_with(name));
        let mut lines: Vec<String> = out.lines().filter(|line| !ours(line)).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let command = || Command::argv(["/usr/bin/env"]);
    let path = "PATH=/usr/local/bin:/usr/bin:/bin";
    assert_eq!(env(command()), ["GIVEN=by the sandbox", path]);
    assert_eq!(env(command().env("MORE", "a=b").env("GIVEN", "again")), ["GIVEN=again", "MORE=a=b", path]);
    assert_eq!(env(command().unset("GIVEN")), [path]);
    assert_eq!(env(command().clean_env().env("ONLY", "")), ["ONLY="]);
    assert!(!env(command()).iter().any(|line| line.contains("CARGO")), "this process has it, its commands do not");
    assert!(sandbox.run(Command::argv(["true"]).clean_env()).ended.success(), "found without PATH");
}

/// A command runs in the workspace or in one of its directories.
pub fn commands_run_in_the_given_directory(backend: &TheBackend) {
    let sandbox = open(backend);
    sandbox.write("a/b/here", b"").unwrap();
    assert_eq!(sandbox.shell("ls").stdout.bytes, b"a\n");
    assert_eq!(sandbox.run(Command::argv(["ls"]).cwd("a/b")).stdout.bytes, b"here\n");
    assert_eq!(sandbox.run(Command::argv(["ls"]).cwd("a/b/..")).stdout.bytes, b"b\n");
    block_on(sandbox.inner.write(Path::new("a/run"), b"#!/bin/sh\necho ran\n", Some(0o755))).unwrap();
    assert_eq!(sandbox.run(Command::argv(["./run"]).cwd("a")).stdout.bytes, b"ran\n");
}

/// A command that exceeds its timeout is stopped and reports it.
pub fn a_command_is_stopped_at_its_timeout(backend: &TheBackend) {
    let sandbox = open(backend);
    let soon = Duration::from_millis(50);
    let finished = sandbox.run(Command::shell("sleep 1000; sleep 1000").timeout(soon));
    assert_eq!(finished.ended, ExitStatus::Signalled { signal: 15, core: false });
    assert!(finished.timed_out && !finished.killed && finished.duration >= soon);
    let finished = sandbox.run(Command::argv(["cat", "/dev/zero"]).timeout(soon).output_limit(10));
    assert!(finished.timed_out && finished.stdout.bytes == [0; 10] && finished.stdout.cut);
    let finished = sandbox.run(Command::shell("exit 7").timeout(Duration::from_secs(1000)));
    assert_eq!((finished.ended, finished.timed_out), (ExitStatus::Exited(7), false));
    assert_eq!(sandbox.running(), 0);
}

/// A command is killed on request and reports it. It first gets SIGTERM, and SIGKILL after the grace period.
pub fn a_command_can_be_killed(backend: &TheBackend) {
    let sandbox = open(backend);
    let kill = |line: &str, grace| {
        let mut running = sandbox.start(Command::shell(line).grace(grace));
        wait_for(&mut running, "begun");
        assert_eq!(sandbox.running(), 1);
        running.stop();
        running.stop();
        let finished = block_on(running.finish()).unwrap();
        assert!(finished.killed && !finished.timed_out);
        finished
    };
    let (short, long) = (Duration::from_millis(50), Duration::from_secs(1000));
    let finished = kill("echo begun; sleep 1000", long);
    assert_eq!(finished.ended, ExitStatus::Signalled { signal: 15, core: false });
    let finished = kill("trap 'echo bye; exit 3' TERM; echo begun; while :; do sleep 0.01; done", long);
    assert_eq!((finished.ended, &*finished.stdout.bytes), (ExitStatus::Exited(3), &b"begun\nbye\n"[..]));
    let finished =
        kill("(trap 'sleep 0.2; echo late; exit' TERM; echo begun; while :; do sleep 0.01; done) & wait", long);
    assert_eq!((finished.killed_orphans, &*finished.stdout.bytes), (0, &b"begun\nlate\n"[..]));
    let finished = kill("trap '' TERM; echo begun; while :; do sleep 0.01; done", short);
    assert_eq!(finished.ended, ExitStatus::Signalled { signal: 9, core: false });
    let finished = kill("echo begun; kill -STOP $$", long);
    assert_eq!(finished.ended, ExitStatus::Signalled { signal: 15, core: false });
    assert_eq!(sandbox.running(), 0);
}

/// Dropping the handle kills the command.
pub fn a_dropped_command_is_killed(backend: &TheBackend) {
    let sandbox = open(backend);
    let mut running = sandbox.start(Command::shell("trap '' TERM; echo begun; sleep 1000; sleep 1000"));
    wait_for(&mut running, "begun");
    drop(running);
    while sandbox.running() > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Processes that outlive a command are killed, inside and outside its process group. Each process keeps a pipe open,
/// so the reader sees the end of the pipe when all of them have ended.
pub fn processes_that_outlive_a_command_are_killed(backend: &TheBackend) {
    let sandbox = open(backend);
    assert!(sandbox.shell("mkfifo alive").ended.success());
    let tree = "sleep 1000 & setsid sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000' &)";
    for (rest, stopped) in [("cat ready", false), ("cat ready; sleep 1000", true)] {
        sandbox.write("ready", b"ready").unwrap();
        let mut reader = sandbox.start(Command::shell("exec cat alive"));
        let mut running = sandbox.start(Command::shell(format!("exec 3>alive; {tree}; exec 3>&-; {rest}")));
        wait_for(&mut running, "ready");
        if stopped {
            running.stop();
        }
        let finished = block_on(running.finish()).unwrap();
        assert_eq!(finished.killed, stopped);
        assert_eq!(finished.ended.success(), !stopped);
        assert!(stopped || finished.killed_orphans >= 3, "{}", finished.killed_orphans);
        assert_eq!(block_on(reader.next()), None);
        assert!(block_on(reader.finish()).unwrap().ended.success());
    }
}

/// Commands run in parallel and do not wait for each other.
pub fn many_commands_run_in_parallel(backend: &TheBackend) {
    let sandbox = open(backend);
    let start = |n: usize| {
        let line = format!("cat; until [ -e go ]; do sleep 0.05; done; echo {n} >&2; exit {n}");
        sandbox.start(Command::shell(line).stdin(vec![b'x'; 100_000 + n]))
    };
    let running: Vec<Running> = (0..60).map(start).collect();
    assert_eq!(sandbox.running(), 60);
    sandbox.write("go", b"").unwrap();
    for (n, running) in running.into_iter().enumerate() {
        let finished = block_on(running.finish()).unwrap();
        assert_eq!(finished.ended, ExitStatus::Exited(n as i32));
        assert_eq!((finished.stdout.total, finished.stderr.bytes), (100_000 + n as u64, format!("{n}\n").into_bytes()));
    }
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| (0..20).for_each(|_| assert!(sandbox.run(Command::argv(["true"])).ended.success())));
        }
    });
    assert_eq!(sandbox.running(), 0);
}

/// Closing the sandbox stops detached commands too. After that no command starts.
pub fn closing_stops_running_commands(backend: &TheBackend) {
    let sandbox = open(backend);
    let mut held = sandbox.start(Command::shell("echo begun; sleep 1000"));
    wait_for(&mut held, "begun");
    sandbox.start(Command::shell("touch up; sleep 1000 & sleep 1000")).detach();
    while sandbox.read("up").is_err() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(sandbox.running(), 2);
    assert_eq!(block_on(sandbox.inner.close()).unwrap().stopped, 2);
    assert!(held.poll().unwrap().unwrap().killed);
    assert_eq!(block_on(sandbox.inner.status()).unwrap(), SandboxStatus::Closed);
    assert_eq!(block_on(sandbox.inner.close()).unwrap().stopped, 0);
    assert!(matches!(block_on(sandbox.inner.exec(Command::argv(["true"]))), Err(Error::Closed { .. })));
    assert!(matches!(sandbox.read("up"), Err(Error::Closed { .. })));
    let again = backend.reopen(sandbox.inner.identity().clone(), sandbox.spec.clone());
    assert!(matches!(block_on(again), Err(Error::Lost { .. })));
}

/// Files can be read completely and in part, and keep their mode. Missing directories are created.
pub fn written_files_can_be_read(backend: &TheBackend) {
    let sandbox = open(backend);
    let bytes: Vec<u8> = (0..100_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 9) as u8).collect();
    sandbox.write("a/b/c", &bytes).unwrap();
    assert_eq!(sandbox.write("empty", b"").unwrap(), WriteOutcome::Created);
    assert_eq!(sandbox.write("empty", b"").unwrap(), WriteOutcome::Replaced);
    assert_eq!(sandbox.read("a/b/c").unwrap(), bytes);
    assert_eq!(sandbox.read("a/../a/./b/c").unwrap(), bytes);
    assert_eq!(sandbox.read("empty").unwrap(), b"");
    let read = |offset, limit| block_on(sandbox.inner.read(Path::new("a/b/c"), ByteRange { offset, limit })).unwrap();
    for (offset, limit) in [(0, 0), (0, 1), (5, 10), (99_990, 100), (100_000, 1), (u64::MAX, u64::MAX), (7, 50_000)] {
        let from = usize::try_from(offset).unwrap().min(bytes.len());
        let to = from.saturating_add(limit as usize).min(bytes.len());
        let contents = read(offset, limit);
        assert_eq!((contents.bytes, contents.size), (bytes[from..to].to_vec(), 100_000));
    }
    let path = Path::new("script");
    block_on(sandbox.inner.write(path, b"#!/bin/sh\necho 1\n", Some(0o755))).unwrap();
    block_on(sandbox.inner.write(path, b"#!/bin/sh\necho 2\n", None)).unwrap();
    assert_eq!(block_on(sandbox.inner.read(path, ByteRange::first(2))).unwrap().mode, 0o755);
    assert_eq!(sandbox.run(Command::argv(["./script"])).stdout.bytes, b"2\n");
    assert_eq!(why(sandbox.read("none")), PathError::Missing);
    assert_eq!(why(sandbox.read("a")), PathError::IsDirectory);
    assert_eq!(why(sandbox.read("empty/x")), PathError::NotADirectory);
    assert_eq!(why(sandbox.write("a", b"")), PathError::IsDirectory);
    assert_eq!(why(sandbox.write("empty/x", b"")), PathError::NotADirectory);
}

/// A written program can be executed at once, even while other commands are started.
pub fn a_written_program_can_run_at_once(backend: &TheBackend) {
    let sandbox = &open(backend);
    std::thread::scope(|scope| {
        for n in 0..4 {
            scope.spawn(move || {
                let path = format!("program{n}");
                for _ in 0..25 {
                    let written = sandbox.inner.write(Path::new(&path), b"#!/bin/sh\nexit 3\n", Some(0o755));
                    block_on(written).unwrap();
                    assert_eq!(sandbox.shell(&format!("./{path}; exit $(($? + 1))")).ended, ExitStatus::Exited(4));
                    assert_eq!(sandbox.run(Command::argv([format!("./{path}")])).ended, ExitStatus::Exited(3));
                }
            });
        }
    });
}

/// A write does not change other hard links of the file. It follows symbolic links inside the workspace.
pub fn a_write_replaces_the_file(backend: &TheBackend) {
    let sandbox = open(backend);
    sandbox.write("dir/one", b"old").unwrap();
    assert!(sandbox.shell("ln dir/one two; ln -s dir/one link; ln -s dir way; ln -s new fresh").ended.success());
    sandbox.write("dir/one", b"new").unwrap();
    assert_eq!((sandbox.read("dir/one").unwrap(), sandbox.read("two").unwrap()), (b"new".to_vec(), b"old".to_vec()));
    sandbox.write("link", b"by link").unwrap();
    sandbox.write("way/one more", b"by way").unwrap();
    sandbox.write("fresh", b"made").unwrap();
    assert_eq!(sandbox.read("dir/one").unwrap(), b"by link");
    assert_eq!(sandbox.read("dir/one more").unwrap(), b"by way");
    assert_eq!(sandbox.read("new").unwrap(), b"made");
    assert_eq!(sandbox.shell("readlink link way fresh").stdout.bytes, b"dir/one\ndir\nnew\n");
    assert_eq!(sandbox.shell("find . -name '.rath*'").stdout.total, 0);
}

/// Entries are sorted by the bytes of their names. Symbolic links are not followed.
pub fn directories_are_listed(backend: &TheBackend) {
    let sandbox = open(backend);
    assert!(sandbox.shell("mkdir -p d/sub; cd d; printf 123 > b; touch B 'ä' .h; ln -s / l; mkfifo p").ended.success());
    let list = block_on(sandbox.inner.list(Path::new("d"))).unwrap();
    let found: Vec<_> = list.iter().map(|entry| (entry.name.to_str().unwrap(), entry.kind)).collect();
    use FileKind::{Directory, File, Link, Special};
    let expected =
        [(".h", File), ("B", File), ("b", File), ("l", Link), ("p", Special), ("sub", Directory), ("ä", File)];
    assert_eq!(found, expected);
    assert_eq!(list[2].size, 3);
    assert_eq!(block_on(sandbox.inner.list(Path::new(""))).unwrap().len(), 1);
    assert_eq!(block_on(sandbox.inner.list(Path::new("."))).unwrap().len(), 1);
    assert_eq!(why(block_on(sandbox.inner.list(Path::new("d/b")))), PathError::NotADirectory);
    assert_eq!(why(block_on(sandbox.inner.list(Path::new("none")))), PathError::Missing);
}

/// Directories are removed recursively. Symbolic links are not followed.
pub fn files_and_directories_are_removed(backend: &TheBackend) {
    let sandbox = open(backend);
    sandbox.write("keep/file", b"kept").unwrap();
    sandbox.write("d/e/f/file", b"").unwrap();
    assert!(sandbox.shell("ln -s ../../keep d/e/link; ln -s keep top; mkfifo d/p").ended.success());
    let remove = |path: &str| block_on(sandbox.inner.remove(Path::new(path)));
    for path in ["d/e/f/file", "d", "top"] {
        remove(path).unwrap();
    }
    assert_eq!(sandbox.read("keep/file").unwrap(), b"kept");
    assert_eq!(block_on(sandbox.inner.list(Path::new(""))).unwrap().len(), 1);
    assert_eq!(why(remove("d")), PathError::Missing);
    assert_eq!(why(remove(".")), PathError::Workspace);
    assert_eq!(why(remove("")), PathError::Workspace);
    assert_eq!(why(remove("keep/..")), PathError::Workspace);
    assert_eq!(why(remove("..")), PathError::Outside);
}

/// Paths cannot leave the workspace by `..` or by symbolic links.
pub fn paths_cannot_leave_the_workspace(backend: &TheBackend) {
    let sandbox = open(backend);
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let out = outside.path().display();
    let inside = sandbox.spec.directory.display();
    let links = format!(
        "ln -s {out} way; ln -s {out}/secret link; ln -s ../../../../../../../../..{out} dots; ln -s {inside} self; \
         mkdir d; ln -s loop loop; ln -s /proc/self/root magic"
    );
    assert!(sandbox.shell(&links).ended.success());
    for path in ["way/secret", "link", "dots/secret", "../x", "d/../../x", "..", "self/d/x", "magic/etc/passwd"] {
        assert_eq!(why(sandbox.read(path)), PathError::Outside, "{path}");
        assert_eq!(why(sandbox.write(path, b"changed")), PathError::Outside, "{path}");
        assert_eq!(why(sandbox.real_path(path)), PathError::Outside, "{path}");
    }
    for path in ["way", "dots", "../", "d/../.."] {
        assert_eq!(why(block_on(sandbox.inner.list(Path::new(path)))), PathError::Outside, "{path}");
        assert_eq!(why(block_on(sandbox.inner.exec(Command::argv(["true"]).cwd(path)))), PathError::Outside, "{path}");
    }
    for path in ["way/secret", "dots/secret", "../x"] {
        assert_eq!(why(block_on(sandbox.inner.remove(Path::new(path)))), PathError::Outside, "{path}");
    }
    let absolute = secret.to_str().unwrap();
    assert_eq!(why(sandbox.read(absolute)), PathError::Absolute);
    assert_eq!(why(sandbox.write(absolute, b"changed")), PathError::Absolute);
    assert_eq!(why(sandbox.read("loop")), PathError::LinkLoop);
    assert_eq!(why(sandbox.write("loop", b"")), PathError::LinkLoop);
    assert_eq!(why(sandbox.real_path("loop")), PathError::LinkLoop);
    assert!(
        sandbox.shell("mkdir d/e; touch d/e/f; ln -s ../d/e d/up; ln -s up/f d/far; ln -s none d/gone").ended.success()
    );
    let real = [("d/e/f", "d/e/f"), ("./d//far", "d/e/f"), ("d/up/../e/f", "d/e/f"), ("d/up/new/x", "d/e/new/x")];
    for (path, real) in real.into_iter().chain([("d/gone", "d/none"), ("", ""), ("d/e/f/x", "d/e/f/x")]) {
        assert_eq!(sandbox.real_path(path).unwrap(), Path::new(real), "{path}");
    }
    for path in ["a\0b", &"x".repeat(5000)] {
        assert_eq!(why(sandbox.read(path)), PathError::Invalid);
        assert_eq!(why(sandbox.write(path, b"")), PathError::Invalid);
    }
    assert_eq!(std::fs::read(&secret).unwrap(), b"secret");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

/// Special files are refused, because reading a FIFO without a writer would block forever.
pub fn special_files_are_refused(backend: &TheBackend) {
    let sandbox = open(backend);
    assert!(sandbox.shell("mkfifo pipe; ln -s pipe link").ended.success());
    for path in ["pipe", "link"] {
        assert_eq!(why(sandbox.read(path)), PathError::Special);
        assert_eq!(why(sandbox.write(path, b"")), PathError::Special);
    }
}

/// A sandbox is reopened by its identity. Opening a new one for the same directory makes the old one lost.
pub fn a_sandbox_can_be_reopened(backend: &TheBackend) {
    let sandbox = open(backend);
    let first = sandbox.inner.identity().clone();
    sandbox.write("file", b"there").unwrap();
    let reopen = |identity| block_on(backend.reopen(identity, sandbox.spec.clone()));
    let again = reopen(first.clone()).unwrap();
    assert_eq!(again.identity(), &first);
    assert_eq!(again.capabilities(), backend.capabilities());
    assert_eq!(block_on(again.read(Path::new("file"), ByteRange::ALL)).unwrap().bytes, b"there");
    let reopened = block_on(backend.open(sandbox.spec.clone())).unwrap();
    assert_eq!((&reopened.identity().id, reopened.identity().generation), (&first.id, first.generation + 1));
    let error = reopen(first).unwrap_err();
    assert!(matches!(error, Error::Lost { .. }) && error.code() == "sandbox-lost", "{error}");
    assert!(matches!(block_on(sandbox.inner.status()).unwrap(), SandboxStatus::Lost { .. }));
    assert!(reopen(reopened.identity().clone()).is_ok());
    let mut other = reopened.identity().clone();
    other.id = "another".into();
    assert!(matches!(reopen(other), Err(Error::Lost { .. })));
}

/// All operations report that the sandbox is lost.
pub fn a_sandbox_without_its_directory_is_lost(backend: &TheBackend) {
    let sandbox = open(backend);
    sandbox.write("file", b"there").unwrap();
    std::fs::remove_dir_all(&sandbox.spec.directory).unwrap();
    assert!(matches!(block_on(sandbox.inner.status()).unwrap(), SandboxStatus::Lost { .. }));
    assert!(matches!(sandbox.read("file"), Err(Error::Lost { .. })));
    assert!(matches!(sandbox.write("file", b""), Err(Error::Lost { .. })));
    assert!(matches!(block_on(sandbox.inner.exec(Command::argv(["true"]))), Err(Error::Lost { .. })));
    let again = backend.reopen(sandbox.inner.identity().clone(), sandbox.spec.clone());
    assert!(matches!(block_on(again), Err(Error::Lost { .. })));
    block_on(sandbox.inner.close()).unwrap();
}
