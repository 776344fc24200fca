//! What every sandbox backend must do. One function a promise; each gets a backend and opens its own sandbox.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pollster::block_on;
use rath_sandbox::{
    Backend, Captured, Command, Ended, EntryKind, Error, Event, Finished, Part, Running, Sandbox, Spec, Status, Stream,
    Why, Written,
};
use tempfile::TempDir;

/// An open sandbox and what must live as long as it.
struct Bench {
    sandbox: Arc<dyn Sandbox>,
    spec: Spec,
    _directories: [TempDir; 2],
}

/// Turns the conformance suite into tests for one backend: `sandbox_conformance!(make)`, where `make` gives it.
#[macro_export]
macro_rules! sandbox_conformance {
    ($make:expr) => {
        $crate::sandbox_conformance!($make =>
            commands_run_and_say_how_they_ended, programs_take_arguments_as_they_are, what_cannot_start_is_an_error,
            output_is_byte_for_byte, output_beyond_the_limit_is_counted, output_comes_as_it_is_written,
            input_is_read_to_its_end, the_environment_is_what_was_given, commands_run_where_they_are_told,
            time_runs_out, a_command_can_be_killed, a_dropped_command_is_killed, a_whole_tree_dies,
            many_commands_run_side_by_side, closing_stops_what_runs_on, files_come_back, files_are_replaced_whole,
            a_program_runs_once_it_is_written,
            directories_are_listed, things_are_removed, paths_stay_inside, special_files_are_refused,
            a_sandbox_is_taken_up_again, a_sandbox_whose_directory_is_gone_is_lost
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

fn open(backend: &TheBackend) -> Bench {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let spec = Spec::new(directories[0].path(), directories[1].path());
    let spec = spec.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("GIVEN", "by the sandbox");
    Bench { sandbox: block_on(backend.open(spec.clone())).unwrap(), spec, _directories: directories }
}

impl Bench {
    fn start(&self, command: Command) -> Running {
        block_on(self.sandbox.exec(command)).unwrap()
    }

    fn run(&self, command: Command) -> Finished {
        block_on(self.start(command).finish()).unwrap()
    }

    fn shell(&self, line: &str) -> Finished {
        self.run(Command::shell(line))
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, Error> {
        block_on(self.sandbox.read(Path::new(path), Part::ALL)).map(|contents| contents.bytes)
    }

    fn real(&self, path: &str) -> Result<PathBuf, Error> {
        block_on(self.sandbox.real(Path::new(path)))
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<Written, Error> {
        block_on(self.sandbox.write(Path::new(path), bytes, None))
    }

    fn running(&self) -> usize {
        match block_on(self.sandbox.status()).unwrap() {
            Status::Open { running } => running,
            other => panic!("{other:?}"),
        }
    }
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

fn why(outcome: Result<impl std::fmt::Debug, Error>) -> Why {
    match outcome {
        Err(Error::BadPath { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

/// An exit code and a signal are two things, and neither is made up.
pub fn commands_run_and_say_how_they_ended(backend: &TheBackend) {
    let bench = open(backend);
    assert!(bench.run(Command::argv(["true"])).ended.well());
    for code in [0, 1, 2, 126, 127, 130, 137, 143, 255] {
        let finished = bench.shell(&format!("exit {code}"));
        assert_eq!(finished.ended, Ended::Exited(code));
        assert!(!finished.timed_out && !finished.killed && finished.escaped == 0);
    }
    // Not those that whoever started this program in the background may have it ignore.
    for signal in [9, 10, 12, 15] {
        let finished = bench.shell(&format!("kill -{signal} $$"));
        assert_eq!(finished.ended, Ended::Signalled { signal, core: false });
        assert!(!finished.timed_out && !finished.killed);
    }
    assert_eq!(bench.running(), 0);
}

/// No shell comes between.
pub fn programs_take_arguments_as_they_are(backend: &TheBackend) {
    let bench = open(backend);
    let odd = ["a b", "$HOME", "*", "", "'\"\\", "ä\n"];
    let finished = bench.run(Command::argv(["printf", "%s|"].into_iter().chain(odd)));
    assert_eq!(finished.stdout.bytes, "a b|$HOME|*||'\"\\|ä\n|".as_bytes());
    assert_eq!(bench.shell("echo $((1 + 1)) > f; cat f").stdout.bytes, b"2\n");
}

/// A program that is not there is an error that names it, not an exit code.
pub fn what_cannot_start_is_an_error(backend: &TheBackend) {
    let bench = open(backend);
    bench.write("plain", b"not a program").unwrap();
    bench.write("dir/x", b"").unwrap();
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
        let error = block_on(bench.sandbox.exec(command)).unwrap_err();
        assert!(matches!(error, Error::CannotStart { .. }) && error.to_string().contains(name), "{error}");
        assert_eq!(error.code(), "cannot-start");
    }
    assert_eq!(why(block_on(bench.sandbox.exec(Command::argv(["true"]).cwd("../..")))), Why::Outside);
    assert_eq!(why(block_on(bench.sandbox.exec(Command::argv(["true"]).cwd("/")))), Why::Absolute);
    assert_eq!(bench.running(), 0);
}

/// Any bytes, and the two streams apart.
pub fn output_is_byte_for_byte(backend: &TheBackend) {
    let bench = open(backend);
    let bytes: Vec<u8> = (0..300_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    bench.write("bytes", &bytes).unwrap();
    let finished = bench.shell("cat bytes; cat bytes bytes >&2");
    assert!(finished.stdout == Captured { bytes: bytes.clone(), total: 300_000, cut: false });
    assert!(finished.stderr.bytes == [bytes.clone(), bytes].concat());
    let finished = bench.shell("yes | head -n 100000");
    assert!(finished.ended.well() && finished.stdout.bytes == b"y\n".repeat(100_000));
}

/// The first part is kept; the rest is read, so that the command goes on, and counted.
pub fn output_beyond_the_limit_is_counted(backend: &TheBackend) {
    let bench = open(backend);
    let finished = bench.run(Command::shell("printf abcdefgh; printf 12345 >&2").output_limit(5));
    assert_eq!(finished.stdout, Captured { bytes: b"abcde".to_vec(), total: 8, cut: true });
    assert_eq!(finished.stderr, Captured { bytes: b"12345".to_vec(), total: 5, cut: false });
    let finished = bench.run(Command::argv(["head", "-c", "100000000", "/dev/zero"]).output_limit(1 << 20));
    assert!(finished.ended.well());
    assert!(finished.stdout == Captured { bytes: vec![0; 1 << 20], total: 100_000_000, cut: true });
    let finished = bench.run(Command::shell("echo no").output_limit(0));
    assert_eq!(finished.stdout, Captured { bytes: vec![], total: 3, cut: true });
}

/// Events come while the command runs, in order, and say all that is kept.
pub fn output_comes_as_it_is_written(backend: &TheBackend) {
    let bench = open(backend);
    let line = "echo one; until [ -e go ]; do sleep 0.01; done; echo two >&2; until [ -e on ]; do sleep 0.01; done; echo three";
    let mut running = bench.start(Command::shell(line));
    assert!(running.poll().is_none());
    let expect = |running: &mut Running, stream, bytes: &[u8]| {
        assert_eq!(block_on(running.next()), Some(Event::Output { stream, bytes: bytes.to_vec() }));
    };
    expect(&mut running, Stream::Stdout, b"one\n");
    assert!(running.poll().is_none());
    bench.write("go", b"").unwrap();
    expect(&mut running, Stream::Stderr, b"two\n");
    bench.write("on", b"").unwrap();
    expect(&mut running, Stream::Stdout, b"three\n");
    assert_eq!(block_on(running.next()), None);
    assert_eq!(block_on(running.next()), None);
    assert!(running.poll().unwrap().unwrap().ended.well());
    let finished = block_on(running.finish()).unwrap();
    assert_eq!((&*finished.stdout.bytes, &*finished.stderr.bytes), (&b"one\nthree\n"[..], &b"two\n"[..]));
}

/// All of it, then the end; a command that does not read is not held up, and without input there is none.
pub fn input_is_read_to_its_end(backend: &TheBackend) {
    let bench = open(backend);
    let bytes: Vec<u8> = (0..1_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    assert!(bench.run(Command::argv(["cat"]).stdin(bytes.clone())).stdout.bytes == bytes);
    assert_eq!(bench.run(Command::argv(["head", "-c", "3"]).stdin(bytes.clone())).stdout.bytes, bytes[..3]);
    assert!(bench.run(Command::argv(["true"]).stdin(bytes)).ended.well());
    assert_eq!(bench.run(Command::argv(["cat"]).stdin([])).stdout.total, 0);
    assert_eq!(bench.run(Command::argv(["cat"])).stdout.total, 0);
}

/// The sandbox's variables and the command's, and nothing of this process's. A sandbox with private directories says
/// where they are.
pub fn the_environment_is_what_was_given(backend: &TheBackend) {
    let bench = open(backend);
    let env = |command: Command| -> Vec<String> {
        let out = String::from_utf8(bench.run(command).stdout.bytes).unwrap();
        let ours = |line: &&str| ["RATH_", "HOME=", "TMPDIR="].iter().any(|name| line.starts_with(name));
        let mut lines: Vec<String> = out.lines().filter(|line| !ours(line)).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let command = || Command::argv(["/usr/bin/env"]);
    let path = "PATH=/usr/local/bin:/usr/bin:/bin";
    assert_eq!(env(command()), ["GIVEN=by the sandbox", path]);
    assert_eq!(env(command().env("MORE", "a=b").env("GIVEN", "anew")), ["GIVEN=anew", "MORE=a=b", path]);
    assert_eq!(env(command().unset("GIVEN")), [path]);
    assert_eq!(env(command().clean_env().env("ONLY", "")), ["ONLY="]);
    assert!(!env(command()).iter().any(|line| line.contains("CARGO")), "this process has it, its commands do not");
    assert!(bench.run(Command::argv(["true"]).clean_env()).ended.well(), "found without PATH");
}

/// In the workspace, or in a directory of it.
pub fn commands_run_where_they_are_told(backend: &TheBackend) {
    let bench = open(backend);
    bench.write("a/b/here", b"").unwrap();
    assert_eq!(bench.shell("ls").stdout.bytes, b"a\n");
    assert_eq!(bench.run(Command::argv(["ls"]).cwd("a/b")).stdout.bytes, b"here\n");
    assert_eq!(bench.run(Command::argv(["ls"]).cwd("a/b/..")).stdout.bytes, b"b\n");
    block_on(bench.sandbox.write(Path::new("a/run"), b"#!/bin/sh\necho ran\n", Some(0o755))).unwrap();
    assert_eq!(bench.run(Command::argv(["./run"]).cwd("a")).stdout.bytes, b"ran\n");
}

/// A command that takes too long is stopped, and says so.
pub fn time_runs_out(backend: &TheBackend) {
    let bench = open(backend);
    let soon = Duration::from_millis(50);
    let finished = bench.run(Command::shell("sleep 1000; sleep 1000").timeout(soon));
    assert_eq!(finished.ended, Ended::Signalled { signal: 15, core: false });
    assert!(finished.timed_out && !finished.killed && finished.duration >= soon);
    let finished = bench.run(Command::argv(["cat", "/dev/zero"]).timeout(soon).output_limit(10));
    assert!(finished.timed_out && finished.stdout.bytes == [0; 10] && finished.stdout.cut);
    let finished = bench.run(Command::shell("exit 7").timeout(Duration::from_secs(1000)));
    assert_eq!((finished.ended, finished.timed_out), (Ended::Exited(7), false));
    assert_eq!(bench.running(), 0);
}

/// On request, and it says so: first it is asked to end, then it ends.
pub fn a_command_can_be_killed(backend: &TheBackend) {
    let bench = open(backend);
    let kill = |line: &str, grace| {
        let mut running = bench.start(Command::shell(line).grace(grace));
        wait_for(&mut running, "begun");
        assert_eq!(bench.running(), 1);
        running.kill();
        running.kill();
        let finished = block_on(running.finish()).unwrap();
        assert!(finished.killed && !finished.timed_out);
        finished
    };
    let (short, long) = (Duration::from_millis(50), Duration::from_secs(1000));
    let finished = kill("echo begun; sleep 1000", long);
    assert_eq!(finished.ended, Ended::Signalled { signal: 15, core: false });
    let finished = kill("trap 'echo bye; exit 3' TERM; echo begun; while :; do sleep 0.01; done", long);
    assert_eq!((finished.ended, &*finished.stdout.bytes), (Ended::Exited(3), &b"begun\nbye\n"[..]));
    let finished =
        kill("(trap 'sleep 0.2; echo late; exit' TERM; echo begun; while :; do sleep 0.01; done) & wait", long);
    assert_eq!((finished.escaped, &*finished.stdout.bytes), (0, &b"begun\nlate\n"[..]));
    let finished = kill("trap '' TERM; echo begun; while :; do sleep 0.01; done", short);
    assert_eq!(finished.ended, Ended::Signalled { signal: 9, core: false });
    let finished = kill("echo begun; kill -STOP $$", long);
    assert_eq!(finished.ended, Ended::Signalled { signal: 15, core: false });
    assert_eq!(bench.running(), 0);
}

/// Letting go of the handle is enough.
pub fn a_dropped_command_is_killed(backend: &TheBackend) {
    let bench = open(backend);
    let mut running = bench.start(Command::shell("trap '' TERM; echo begun; sleep 1000; sleep 1000"));
    wait_for(&mut running, "begun");
    drop(running);
    while bench.running() > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What a command leaves behind ends with it, in its process group or out of it. Each process holds a pipe open:
/// the reader sees its end when all are gone.
pub fn a_whole_tree_dies(backend: &TheBackend) {
    let bench = open(backend);
    assert!(bench.shell("mkfifo alive").ended.well());
    let tree = "sleep 1000 & setsid sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000' &)";
    for (rest, stopped) in [("cat ready", false), ("cat ready; sleep 1000", true)] {
        bench.write("ready", b"ready").unwrap();
        let mut reader = bench.start(Command::shell("exec cat alive"));
        let mut running = bench.start(Command::shell(format!("exec 3>alive; {tree}; exec 3>&-; {rest}")));
        wait_for(&mut running, "ready");
        if stopped {
            running.kill();
        }
        let finished = block_on(running.finish()).unwrap();
        assert_eq!(finished.killed, stopped);
        assert_eq!(finished.ended.well(), !stopped);
        assert!(stopped || finished.escaped >= 3, "{}", finished.escaped);
        assert_eq!(block_on(reader.next()), None);
        assert!(block_on(reader.finish()).unwrap().ended.well());
    }
}

/// None waits for another.
pub fn many_commands_run_side_by_side(backend: &TheBackend) {
    let bench = open(backend);
    let start = |n: usize| {
        let line = format!("cat; until [ -e go ]; do sleep 0.05; done; echo {n} >&2; exit {n}");
        bench.start(Command::shell(line).stdin(vec![b'x'; 100_000 + n]))
    };
    let running: Vec<Running> = (0..60).map(start).collect();
    assert_eq!(bench.running(), 60);
    bench.write("go", b"").unwrap();
    for (n, running) in running.into_iter().enumerate() {
        let finished = block_on(running.finish()).unwrap();
        assert_eq!(finished.ended, Ended::Exited(n as i32));
        assert_eq!((finished.stdout.total, finished.stderr.bytes), (100_000 + n as u64, format!("{n}\n").into_bytes()));
    }
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| (0..20).for_each(|_| assert!(bench.run(Command::argv(["true"])).ended.well())));
        }
    });
    assert_eq!(bench.running(), 0);
}

/// Detached commands run on until then; afterwards nothing starts.
pub fn closing_stops_what_runs_on(backend: &TheBackend) {
    let bench = open(backend);
    let mut held = bench.start(Command::shell("echo begun; sleep 1000"));
    wait_for(&mut held, "begun");
    bench.start(Command::shell("touch up; sleep 1000 & sleep 1000")).detach();
    while bench.read("up").is_err() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(bench.running(), 2);
    assert_eq!(block_on(bench.sandbox.close()).unwrap().stopped, 2);
    assert!(held.poll().unwrap().unwrap().killed);
    assert_eq!(block_on(bench.sandbox.status()).unwrap(), Status::Closed);
    assert_eq!(block_on(bench.sandbox.close()).unwrap().stopped, 0);
    assert!(matches!(block_on(bench.sandbox.exec(Command::argv(["true"]))), Err(Error::Closed { .. })));
    assert!(matches!(bench.read("up"), Err(Error::Closed { .. })));
    let again = backend.reopen(bench.sandbox.identity().clone(), bench.spec.clone());
    assert!(matches!(block_on(again), Err(Error::Lost { .. })));
}

/// Whole and in part, with their mode, and directories as needed.
pub fn files_come_back(backend: &TheBackend) {
    let bench = open(backend);
    let bytes: Vec<u8> = (0..100_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 9) as u8).collect();
    bench.write("a/b/c", &bytes).unwrap();
    assert_eq!(bench.write("empty", b"").unwrap(), Written::New);
    assert_eq!(bench.write("empty", b"").unwrap(), Written::Replaced);
    assert_eq!(bench.read("a/b/c").unwrap(), bytes);
    assert_eq!(bench.read("a/../a/./b/c").unwrap(), bytes);
    assert_eq!(bench.read("empty").unwrap(), b"");
    let read = |offset, limit| block_on(bench.sandbox.read(Path::new("a/b/c"), Part { offset, limit })).unwrap();
    for (offset, limit) in [(0, 0), (0, 1), (5, 10), (99_990, 100), (100_000, 1), (u64::MAX, u64::MAX), (7, 50_000)] {
        let from = usize::try_from(offset).unwrap().min(bytes.len());
        let to = from.saturating_add(limit as usize).min(bytes.len());
        let contents = read(offset, limit);
        assert_eq!((contents.bytes, contents.size), (bytes[from..to].to_vec(), 100_000));
    }
    let path = Path::new("script");
    block_on(bench.sandbox.write(path, b"#!/bin/sh\necho 1\n", Some(0o755))).unwrap();
    block_on(bench.sandbox.write(path, b"#!/bin/sh\necho 2\n", None)).unwrap();
    assert_eq!(block_on(bench.sandbox.read(path, Part::first(2))).unwrap().mode, 0o755);
    assert_eq!(bench.run(Command::argv(["./script"])).stdout.bytes, b"2\n");
    assert_eq!(why(bench.read("none")), Why::Missing);
    assert_eq!(why(bench.read("a")), Why::IsDirectory);
    assert_eq!(why(bench.read("empty/x")), Why::NotADirectory);
    assert_eq!(why(bench.write("a", b"")), Why::IsDirectory);
    assert_eq!(why(bench.write("empty/x", b"")), Why::NotADirectory);
}

/// Even while other commands are started.
pub fn a_program_runs_once_it_is_written(backend: &TheBackend) {
    let bench = &open(backend);
    std::thread::scope(|scope| {
        for n in 0..4 {
            scope.spawn(move || {
                let path = format!("program{n}");
                for _ in 0..25 {
                    let written = bench.sandbox.write(Path::new(&path), b"#!/bin/sh\nexit 3\n", Some(0o755));
                    block_on(written).unwrap();
                    assert_eq!(bench.shell(&format!("./{path}; exit $(($? + 1))")).ended, Ended::Exited(4));
                    assert_eq!(bench.run(Command::argv([format!("./{path}")])).ended, Ended::Exited(3));
                }
            });
        }
    });
}

/// Other hard links keep what they had; links inside lead to the file that is replaced.
pub fn files_are_replaced_whole(backend: &TheBackend) {
    let bench = open(backend);
    bench.write("dir/one", b"old").unwrap();
    assert!(bench.shell("ln dir/one two; ln -s dir/one link; ln -s dir way; ln -s new fresh").ended.well());
    bench.write("dir/one", b"new").unwrap();
    assert_eq!((bench.read("dir/one").unwrap(), bench.read("two").unwrap()), (b"new".to_vec(), b"old".to_vec()));
    bench.write("link", b"by link").unwrap();
    bench.write("way/one more", b"by way").unwrap();
    bench.write("fresh", b"made").unwrap();
    assert_eq!(bench.read("dir/one").unwrap(), b"by link");
    assert_eq!(bench.read("dir/one more").unwrap(), b"by way");
    assert_eq!(bench.read("new").unwrap(), b"made");
    assert_eq!(bench.shell("readlink link way fresh").stdout.bytes, b"dir/one\ndir\nnew\n");
    assert_eq!(bench.shell("find . -name '.rath*'").stdout.total, 0);
}

/// Sorted by bytes, with kinds; links are not followed.
pub fn directories_are_listed(backend: &TheBackend) {
    let bench = open(backend);
    assert!(bench.shell("mkdir -p d/sub; cd d; printf 123 > b; touch B 'ä' .h; ln -s / l; mkfifo p").ended.well());
    let list = block_on(bench.sandbox.list(Path::new("d"))).unwrap();
    let found: Vec<_> = list.iter().map(|entry| (entry.name.to_str().unwrap(), entry.kind)).collect();
    use EntryKind::{Directory, File, Link, Special};
    let expected =
        [(".h", File), ("B", File), ("b", File), ("l", Link), ("p", Special), ("sub", Directory), ("ä", File)];
    assert_eq!(found, expected);
    assert_eq!(list[2].size, 3);
    assert_eq!(block_on(bench.sandbox.list(Path::new(""))).unwrap().len(), 1);
    assert_eq!(block_on(bench.sandbox.list(Path::new("."))).unwrap().len(), 1);
    assert_eq!(why(block_on(bench.sandbox.list(Path::new("d/b")))), Why::NotADirectory);
    assert_eq!(why(block_on(bench.sandbox.list(Path::new("none")))), Why::Missing);
}

/// With all that is in them, and not through links.
pub fn things_are_removed(backend: &TheBackend) {
    let bench = open(backend);
    bench.write("keep/file", b"kept").unwrap();
    bench.write("d/e/f/file", b"").unwrap();
    assert!(bench.shell("ln -s ../../keep d/e/link; ln -s keep top; mkfifo d/p").ended.well());
    let remove = |path: &str| block_on(bench.sandbox.remove(Path::new(path)));
    for path in ["d/e/f/file", "d", "top"] {
        remove(path).unwrap();
    }
    assert_eq!(bench.read("keep/file").unwrap(), b"kept");
    assert_eq!(block_on(bench.sandbox.list(Path::new(""))).unwrap().len(), 1);
    assert_eq!(why(remove("d")), Why::Missing);
    assert_eq!(why(remove(".")), Why::Workspace);
    assert_eq!(why(remove("")), Why::Workspace);
    assert_eq!(why(remove("keep/..")), Why::Workspace);
    assert_eq!(why(remove("..")), Why::Outside);
}

/// Neither by dots nor by links.
pub fn paths_stay_inside(backend: &TheBackend) {
    let bench = open(backend);
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let out = outside.path().display();
    let inside = bench.spec.directory.display();
    let links = format!(
        "ln -s {out} way; ln -s {out}/secret link; ln -s ../../../../../../../../..{out} dots; ln -s {inside} self; \
         mkdir d; ln -s loop loop; ln -s /proc/self/root magic"
    );
    assert!(bench.shell(&links).ended.well());
    for path in ["way/secret", "link", "dots/secret", "../x", "d/../../x", "..", "self/d/x", "magic/etc/passwd"] {
        assert_eq!(why(bench.read(path)), Why::Outside, "{path}");
        assert_eq!(why(bench.write(path, b"changed")), Why::Outside, "{path}");
        assert_eq!(why(bench.real(path)), Why::Outside, "{path}");
    }
    for path in ["way", "dots", "../", "d/../.."] {
        assert_eq!(why(block_on(bench.sandbox.list(Path::new(path)))), Why::Outside, "{path}");
        assert_eq!(why(block_on(bench.sandbox.exec(Command::argv(["true"]).cwd(path)))), Why::Outside, "{path}");
    }
    for path in ["way/secret", "dots/secret", "../x"] {
        assert_eq!(why(block_on(bench.sandbox.remove(Path::new(path)))), Why::Outside, "{path}");
    }
    let absolute = secret.to_str().unwrap();
    assert_eq!(why(bench.read(absolute)), Why::Absolute);
    assert_eq!(why(bench.write(absolute, b"changed")), Why::Absolute);
    assert_eq!(why(bench.read("loop")), Why::Links);
    assert_eq!(why(bench.write("loop", b"")), Why::Links);
    assert_eq!(why(bench.real("loop")), Why::Links);
    assert!(bench.shell("mkdir d/e; touch d/e/f; ln -s ../d/e d/up; ln -s up/f d/far; ln -s none d/gone").ended.well());
    let real = [("d/e/f", "d/e/f"), ("./d//far", "d/e/f"), ("d/up/../e/f", "d/e/f"), ("d/up/new/x", "d/e/new/x")];
    for (path, real) in real.into_iter().chain([("d/gone", "d/none"), ("", ""), ("d/e/f/x", "d/e/f/x")]) {
        assert_eq!(bench.real(path).unwrap(), Path::new(real), "{path}");
    }
    for path in ["a\0b", &"x".repeat(5000)] {
        assert_eq!(why(bench.read(path)), Why::Unspeakable);
        assert_eq!(why(bench.write(path, b"")), Why::Unspeakable);
    }
    assert_eq!(std::fs::read(&secret).unwrap(), b"secret");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

/// A pipe without a writer would make a reader wait for ever.
pub fn special_files_are_refused(backend: &TheBackend) {
    let bench = open(backend);
    assert!(bench.shell("mkfifo pipe; ln -s pipe link").ended.well());
    for path in ["pipe", "link"] {
        assert_eq!(why(bench.read(path)), Why::Special);
        assert_eq!(why(bench.write(path, b"")), Why::Special);
    }
}

/// By its identity; opened anew, the one before is lost.
pub fn a_sandbox_is_taken_up_again(backend: &TheBackend) {
    let bench = open(backend);
    let first = bench.sandbox.identity().clone();
    bench.write("file", b"there").unwrap();
    let reopen = |identity| block_on(backend.reopen(identity, bench.spec.clone()));
    let again = reopen(first.clone()).unwrap();
    assert_eq!(again.identity(), &first);
    assert_eq!(again.capabilities(), backend.capabilities());
    assert_eq!(block_on(again.read(Path::new("file"), Part::ALL)).unwrap().bytes, b"there");
    let anew = block_on(backend.open(bench.spec.clone())).unwrap();
    assert_eq!((&anew.identity().id, anew.identity().generation), (&first.id, first.generation + 1));
    let error = reopen(first).unwrap_err();
    assert!(matches!(error, Error::Lost { .. }) && error.code() == "sandbox-lost", "{error}");
    assert!(matches!(block_on(bench.sandbox.status()).unwrap(), Status::Lost { .. }));
    assert!(reopen(anew.identity().clone()).is_ok());
    let mut other = anew.identity().clone();
    other.id = "another".into();
    assert!(matches!(reopen(other), Err(Error::Lost { .. })));
}

/// And says so, whatever is asked.
pub fn a_sandbox_whose_directory_is_gone_is_lost(backend: &TheBackend) {
    let bench = open(backend);
    bench.write("file", b"there").unwrap();
    std::fs::remove_dir_all(&bench.spec.directory).unwrap();
    assert!(matches!(block_on(bench.sandbox.status()).unwrap(), Status::Lost { .. }));
    assert!(matches!(bench.read("file"), Err(Error::Lost { .. })));
    assert!(matches!(bench.write("file", b""), Err(Error::Lost { .. })));
    assert!(matches!(block_on(bench.sandbox.exec(Command::argv(["true"]))), Err(Error::Lost { .. })));
    let again = backend.reopen(bench.sandbox.identity().clone(), bench.spec.clone());
    assert!(matches!(block_on(again), Err(Error::Lost { .. })));
    block_on(bench.sandbox.close()).unwrap();
}
