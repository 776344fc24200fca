//! Resource limits of commands. Ordinary commands are not affected by the default limits.

use std::time::Duration;

use pollster::block_on;
use rath_sandbox::{Command, ExitStatus, Finished, IsolationLevel, Limits};

use super::{SandboxFixture, helper, long_time, on_each_level, processes_with, wait_for, wait_until};

on_each_level!(
    too_much_memory_stops_a_command,
    memory_of_all_processes_counts_together,
    limits_are_enforced_on_a_busy_command,
    a_fork_bomb_is_stopped,
    a_detaching_fork_bomb_is_stopped,
    each_command_has_its_own_limit,
    file_size_has_a_limit,
    open_files_have_a_limit,
    address_space_has_a_limit,
    time_has_a_limit,
    disk_has_a_limit,
    the_disk_quota_counts_all_commands,
    output_has_a_limit,
    no_core_is_dumped,
    ordinary_work_stays_within_the_limits,
    children_of_threads_get_sigterm,
);

const KILLED: ExitStatus = ExitStatus::Signalled { signal: 9, core: false };

fn fixture(level: IsolationLevel, limits: Limits) -> SandboxFixture {
    SandboxFixture::with(level, |spec, _| spec.limits = limits)
}

/// Checks that the command was stopped for exceeding `limit`.
fn assert_limit_exceeded(finished: &Finished, limit: &str) {
    let limit_exceeded = finished.limit_exceeded.as_deref().unwrap_or_default();
    assert!(limit_exceeded.starts_with(limit), "{finished:?}");
    assert!(!finished.killed && !finished.timed_out, "{finished:?}");
}

fn too_much_memory_stops_a_command(level: IsolationLevel) {
    let fixture = fixture(level, Limits { memory: Some(100 << 20), ..Limits::default() });
    let finished = fixture.run(Command::argv(["tail", "/dev/zero"]));
    assert_eq!(finished.ended, KILLED);
    assert_limit_exceeded(&finished, "memory");
    let finished = fixture.shell("head -c 50000000 /dev/zero | tail | wc -c");
    assert_eq!((finished.limit_exceeded, &*finished.stdout.bytes), (None, &b"50000000\n"[..]));
}

fn memory_of_all_processes_counts_together(level: IsolationLevel) {
    let fixture = fixture(level, Limits { memory: Some(100 << 20), ..Limits::default() });
    let one = "(head -c 30000000 /dev/zero; sleep 1000) | tail >/dev/null";
    assert_limit_exceeded(&fixture.shell(&format!("{one} & {one} & {one} & setsid sh -c '{one}' & wait")), "memory");
}

/// Keeps the command init busy with refused calls and ended orphans.
fn limits_are_enforced_on_a_busy_command(level: IsolationLevel) {
    let limits = Limits { memory: Some(100 << 20), ..Limits::default() };
    let fixture = SandboxFixture::with(level, |spec, _| {
        spec.limits = limits;
        helper::show(spec);
    });
    let finished = fixture.run(helper::act("make refused calls forever"));
    assert_limit_exceeded(&finished, "memory");
    assert_eq!(finished.refused[0].0, "chroot");
    let finished = fixture.shell("tail /dev/zero & for i in 1 2 3; do (while :; do (true &); done) & done; wait");
    assert_limit_exceeded(&finished, "memory");
}

fn a_fork_bomb_is_stopped(level: IsolationLevel) {
    let fixture = fixture(level, Limits { processes: Some(50), ..Limits::default() });
    let time = long_time();
    let finished = fixture.shell(&format!("for i in $(seq 500); do sleep {time} & done; wait"));
    assert_limit_exceeded(&finished, "processes");
    assert_eq!(processes_with(&time), Vec::<String>::new());
    fixture.output("for i in $(seq 30); do sleep 0.2 & done; wait");
}

/// The depth is bounded, in case the limit is not enforced.
fn a_detaching_fork_bomb_is_stopped(level: IsolationLevel) {
    let fixture = fixture(level, Limits { processes: Some(50), ..Limits::default() });
    let time = long_time();
    let bomb = format!(
        "[ $1 = 0 ] && exec sleep {time}; setsid sh bomb $(($1 - 1)) & (sh bomb $(($1 - 1)) &) ; exec sleep {time}"
    );
    fixture.write("bomb", bomb.as_bytes()).unwrap();
    let finished = fixture.shell(&format!("sh bomb 9; sleep {time}"));
    assert_limit_exceeded(&finished, "processes");
    assert_eq!(processes_with(&time), Vec::<String>::new());
    fixture.output("true");
}

/// The limit applies to each command separately.
fn each_command_has_its_own_limit(level: IsolationLevel) {
    let fixture = fixture(level, Limits { processes: Some(20), ..Limits::default() });
    let line =
        "for i in 1 2 3 4 5; do sleep 1000 & p=\"$p $!\"; done; echo up; until [ -e go ]; do sleep 0.05; done; kill $p";
    let mut running: Vec<_> = (0..10).map(|_| fixture.start(Command::shell(line))).collect();
    running.iter_mut().for_each(|running| wait_for(running, "up"));
    fixture.write("go", b"").unwrap();
    for running in running {
        let finished = block_on(running.finish()).unwrap();
        assert!(finished.ended.success() && finished.stderr.total == 0, "{finished:?}");
    }
}

fn file_size_has_a_limit(level: IsolationLevel) {
    let fixture = fixture(level, Limits { file_size: Some(1 << 20), ..Limits::default() });
    let finished = fixture.run(Command::argv(["dd", "if=/dev/zero", "of=file", "bs=65536", "count=1000"]));
    assert_eq!(finished.ended, ExitStatus::Signalled { signal: 25, core: false });
    assert_eq!(fixture.output("stat -c %s file"), (1 << 20).to_string());
    // The limit does not apply to file operations of the sandbox, which run in this process.
    fixture.write("file", &vec![1; 2 << 20]).unwrap();
}

fn open_files_have_a_limit(level: IsolationLevel) {
    let fixture = SandboxFixture::with(level, |spec, _| {
        spec.limits = Limits { open_files: Some(30), ..Limits::default() };
        helper::show(spec);
    });
    assert_eq!(fixture.output("ulimit -n; ulimit -Hn"), "30\n30");
    assert!(!fixture.shell("ulimit -n 31").ended.success());
    let finished = fixture.run(helper::act("open files"));
    assert!(String::from_utf8_lossy(&finished.stdout.bytes).contains("Too many open files"), "{finished:?}");
}

fn address_space_has_a_limit(level: IsolationLevel) {
    let fixture = fixture(level, Limits { address_space: Some(100 << 20), ..Limits::default() });
    let finished = fixture.shell("tail /dev/zero");
    assert!(String::from_utf8_lossy(&finished.stderr.bytes).contains("memory exhausted"), "{finished:?}");
    assert_eq!((finished.ended, finished.limit_exceeded), (ExitStatus::Exited(1), None));
}

fn time_has_a_limit(level: IsolationLevel) {
    let fixture = fixture(level, Limits { wall_time: Some(Duration::from_millis(100)), ..Limits::default() });
    let finished = fixture.shell("sleep 1000");
    assert!(finished.timed_out && !finished.killed && finished.limit_exceeded.is_none(), "{finished:?}");
    let finished = fixture.run(Command::shell("sleep 0.3; echo done").timeout(Duration::from_secs(1000)));
    assert_eq!((finished.timed_out, &*finished.stdout.bytes), (false, &b"done\n"[..]));
}

fn disk_has_a_limit(level: IsolationLevel) {
    let tmp = if level == IsolationLevel::Ns { "/tmp" } else { "$TMPDIR" };
    for place in [".", tmp, "$HOME"] {
        let fixture = SandboxFixture::with(level, |spec, base| {
            spec.limits = Limits { disk: Some(20 << 20), ..Limits::default() };
            spec.home = Some(base.join("home"));
        });
        let write = |mega: u32| format!("cd {place}; head -c {mega}000000 /dev/zero >file; sync file; sleep 0.2");
        let finished = fixture.shell(&write(10));
        assert_eq!((finished.ended, finished.limit_exceeded), (ExitStatus::Exited(0), None));
        let finished = fixture.shell(&format!("{}; sleep 1000", write(50)));
        assert_limit_exceeded(&finished, "disk");
        assert_eq!(finished.ended, KILLED);
    }
}

/// Each command writes less than the limit. The third may end before the next check.
fn the_disk_quota_counts_all_commands(level: IsolationLevel) {
    let fixture = fixture(level, Limits { disk: Some(20 << 20), ..Limits::default() });
    let write = |n: u32| format!("head -c 9000000 /dev/zero >file{n}; sync file{n}");
    fixture.output(&write(0));
    fixture.output(&write(1));
    let third = fixture.shell(&write(2));
    if !third.ended.success() {
        assert_limit_exceeded(&third, "disk");
    }
    assert_limit_exceeded(&fixture.shell("sleep 1000"), "disk");
    block_on(fixture.sandbox.remove("file0".as_ref())).unwrap();
    fixture.output("sleep 0.3");
}

#[test]
fn a_deep_tree_can_be_measured() {
    let Some(level) = super::best() else { return };
    let fixture = fixture(level, Limits { disk: Some(40 << 20), ..Limits::default() });
    rustix::io::write(super::deep_tree(&fixture.spec.directory), &vec![0; 60 << 20]).unwrap();
    assert_limit_exceeded(&fixture.shell("sleep 1000"), "disk");
    block_on(fixture.sandbox.remove("d".as_ref())).unwrap();
}

fn output_has_a_limit(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    let finished = fixture.run(Command::shell("head -c 10000000 /dev/zero; echo x >&2").output_limit(1000));
    assert_eq!((finished.stdout.bytes.len(), finished.stdout.total, finished.stdout.cut), (1000, 10_000_000, true));
    assert_eq!((finished.stderr.bytes.len(), finished.stderr.cut), (2, false));
}

fn no_core_is_dumped(level: IsolationLevel) {
    let fixture = fixture(level, Limits::NONE);
    assert_eq!(fixture.shell("kill -SEGV $$").ended, ExitStatus::Signalled { signal: 11, core: false });
    assert!(!fixture.shell("ulimit -c unlimited").ended.success());
    assert_eq!(fixture.output("ls"), "");
}

fn ordinary_work_stays_within_the_limits(level: IsolationLevel) {
    let fixture = SandboxFixture::open(level);
    let line = "for i in $(seq 200); do (echo $i; sleep 0.1) & done | sort -n | tail -1";
    assert_eq!(fixture.output(line), "200");
    let finished = fixture.shell("i=0; while [ $i -lt 1000 ]; do /bin/true; i=$((i + 1)); done; echo $i");
    assert_eq!(finished.stdout.bytes, b"1000\n");
    assert_eq!((finished.killed_orphans, finished.refused, finished.limit_exceeded), (0, Vec::new(), None));
}

/// A graceful stop also reaches children of a thread other than the main one.
fn children_of_threads_get_sigterm(level: IsolationLevel) {
    let fixture = SandboxFixture::with(level, |spec, _| helper::show(spec));
    let mut running = fixture.start(helper::act("start a child from a thread").grace(Duration::from_secs(1000)));
    wait_for(&mut running, "up");
    running.stop();
    assert!(block_on(running.finish()).unwrap().killed);
    wait_until(|| fixture.read("asked").is_ok());
}
