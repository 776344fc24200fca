//! Commands get no more than their sandbox allows, and an ordinary one does not notice.

use std::time::Duration;

use pollster::block_on;
use rath_sandbox::{Command, Ended, Finished, Limits, Tier};

use super::{Bench, helper, long_time, on_each_tier, processes_with, until, wait_for};

on_each_tier!(
    too_much_memory_ends_a_command,
    memory_of_all_processes_counts_together,
    a_busy_command_is_held_to_its_limits_too,
    a_fork_bomb_ends,
    a_fork_bomb_that_detaches_ends,
    other_commands_do_not_count,
    files_grow_to_a_limit,
    files_are_opened_up_to_a_limit,
    address_space_has_a_limit,
    time_has_a_limit,
    disk_has_a_limit,
    disk_is_looked_at_across_commands,
    output_has_a_limit,
    no_core_is_dumped,
    ordinary_work_is_not_disturbed,
    everything_is_asked_to_end_even_below_threads,
);

const KILLED: Ended = Ended::Signalled { signal: 9, core: false };

fn bench(tier: Tier, limits: Limits) -> Bench {
    Bench::with(tier, |spec, _| spec.limits = limits)
}

/// For `limit` it was stopped.
fn assert_beyond(finished: &Finished, limit: &str) {
    let beyond = finished.beyond.as_deref().unwrap_or_default();
    assert!(beyond.starts_with(limit), "{finished:?}");
    assert!(!finished.killed && !finished.timed_out, "{finished:?}");
}

fn too_much_memory_ends_a_command(tier: Tier) {
    let bench = bench(tier, Limits { memory: Some(100 << 20), ..Limits::default() });
    let finished = bench.run(Command::argv(["tail", "/dev/zero"]));
    assert_eq!(finished.ended, KILLED);
    assert_beyond(&finished, "memory");
    let finished = bench.shell("head -c 50000000 /dev/zero | tail | wc -c");
    assert_eq!((finished.beyond, &*finished.stdout.bytes), (None, &b"50000000\n"[..]));
}

fn memory_of_all_processes_counts_together(tier: Tier) {
    let bench = bench(tier, Limits { memory: Some(100 << 20), ..Limits::default() });
    let one = "(head -c 30000000 /dev/zero; sleep 1000) | tail >/dev/null";
    assert_beyond(&bench.shell(&format!("{one} & {one} & {one} & setsid sh -c '{one}' & wait")), "memory");
}

/// Whatever keeps its keeper busy: refused calls, orphans that end.
fn a_busy_command_is_held_to_its_limits_too(tier: Tier) {
    let limits = Limits { memory: Some(100 << 20), ..Limits::default() };
    let bench = Bench::with(tier, |spec, _| {
        spec.limits = limits;
        helper::show(spec);
    });
    let finished = bench.run(helper::act("be refused for ever"));
    assert_beyond(&finished, "memory");
    assert_eq!(finished.refused[0].0, "chroot");
    let finished = bench.shell("tail /dev/zero & for i in 1 2 3; do (while :; do (true &); done) & done; wait");
    assert_beyond(&finished, "memory");
}

fn a_fork_bomb_ends(tier: Tier) {
    let bench = bench(tier, Limits { processes: Some(50), ..Limits::default() });
    let time = long_time();
    let finished = bench.shell(&format!("for i in $(seq 500); do sleep {time} & done; wait"));
    assert_beyond(&finished, "processes");
    assert_eq!(processes_with(&time), Vec::<String>::new());
    bench.says("for i in $(seq 30); do sleep 0.2 & done; wait");
}

/// Bounded by its depth, should the limit not hold.
fn a_fork_bomb_that_detaches_ends(tier: Tier) {
    let bench = bench(tier, Limits { processes: Some(50), ..Limits::default() });
    let time = long_time();
    let bomb = format!(
        "[ $1 = 0 ] && exec sleep {time}; setsid sh bomb $(($1 - 1)) & (sh bomb $(($1 - 1)) &) ; exec sleep {time}"
    );
    bench.write("bomb", bomb.as_bytes()).unwrap();
    let finished = bench.shell(&format!("sh bomb 9; sleep {time}"));
    assert_beyond(&finished, "processes");
    assert_eq!(processes_with(&time), Vec::<String>::new());
    bench.says("true");
}

/// The limit is one command's.
fn other_commands_do_not_count(tier: Tier) {
    let bench = bench(tier, Limits { processes: Some(20), ..Limits::default() });
    let line =
        "for i in 1 2 3 4 5; do sleep 1000 & p=\"$p $!\"; done; echo up; until [ -e go ]; do sleep 0.05; done; kill $p";
    let mut running: Vec<_> = (0..10).map(|_| bench.start(Command::shell(line))).collect();
    running.iter_mut().for_each(|running| wait_for(running, "up"));
    bench.write("go", b"").unwrap();
    for running in running {
        let finished = block_on(running.finish()).unwrap();
        assert!(finished.ended.well() && finished.stderr.total == 0, "{finished:?}");
    }
}

fn files_grow_to_a_limit(tier: Tier) {
    let bench = bench(tier, Limits { file_size: Some(1 << 20), ..Limits::default() });
    let finished = bench.run(Command::argv(["dd", "if=/dev/zero", "of=file", "bs=65536", "count=1000"]));
    assert_eq!(finished.ended, Ended::Signalled { signal: 25, core: false });
    assert_eq!(bench.says("stat -c %s file"), (1 << 20).to_string());
    // The workspace's files are written from outside: what reads and writes them has no such limit.
    bench.write("file", &vec![1; 2 << 20]).unwrap();
}

fn files_are_opened_up_to_a_limit(tier: Tier) {
    let bench = Bench::with(tier, |spec, _| {
        spec.limits = Limits { open_files: Some(30), ..Limits::default() };
        helper::show(spec);
    });
    assert_eq!(bench.says("ulimit -n; ulimit -Hn"), "30\n30");
    assert!(!bench.shell("ulimit -n 31").ended.well());
    let finished = bench.run(helper::act("open files"));
    assert!(String::from_utf8_lossy(&finished.stdout.bytes).contains("Too many open files"), "{finished:?}");
}

fn address_space_has_a_limit(tier: Tier) {
    let bench = bench(tier, Limits { address_space: Some(100 << 20), ..Limits::default() });
    let finished = bench.shell("tail /dev/zero");
    assert!(String::from_utf8_lossy(&finished.stderr.bytes).contains("memory exhausted"), "{finished:?}");
    assert_eq!((finished.ended, finished.beyond), (Ended::Exited(1), None));
}

fn time_has_a_limit(tier: Tier) {
    let bench = bench(tier, Limits { wall_time: Some(Duration::from_millis(100)), ..Limits::default() });
    let finished = bench.shell("sleep 1000");
    assert!(finished.timed_out && !finished.killed && finished.beyond.is_none(), "{finished:?}");
    let finished = bench.run(Command::shell("sleep 0.3; echo done").timeout(Duration::from_secs(1000)));
    assert_eq!((finished.timed_out, &*finished.stdout.bytes), (false, &b"done\n"[..]));
}

fn disk_has_a_limit(tier: Tier) {
    let tmp = if tier == Tier::Ns { "/tmp" } else { "$TMPDIR" };
    for place in [".", tmp, "$HOME"] {
        let bench = Bench::with(tier, |spec, base| {
            spec.limits = Limits { disk: Some(20 << 20), ..Limits::default() };
            spec.home = Some(base.join("home"));
        });
        let write = |mega: u32| format!("cd {place}; head -c {mega}000000 /dev/zero >file; sync file; sleep 0.2");
        let finished = bench.shell(&write(10));
        assert_eq!((finished.ended, finished.beyond), (Ended::Exited(0), None));
        let finished = bench.shell(&format!("{}; sleep 1000", write(50)));
        assert_beyond(&finished, "disk");
        assert_eq!(finished.ended, KILLED);
    }
}

/// Each writes less than the limit. The third may be over before anybody looks.
fn disk_is_looked_at_across_commands(tier: Tier) {
    let bench = bench(tier, Limits { disk: Some(20 << 20), ..Limits::default() });
    let write = |n: u32| format!("head -c 9000000 /dev/zero >file{n}; sync file{n}");
    bench.says(&write(0));
    bench.says(&write(1));
    let third = bench.shell(&write(2));
    if !third.ended.well() {
        assert_beyond(&third, "disk");
    }
    assert_beyond(&bench.shell("sleep 1000"), "disk");
    block_on(bench.sandbox.remove("file0".as_ref())).unwrap();
    bench.says("sleep 0.3");
}

#[test]
fn a_deep_tree_can_be_measured() {
    let Some(tier) = super::best() else { return };
    let bench = bench(tier, Limits { disk: Some(40 << 20), ..Limits::default() });
    rustix::io::write(super::deep_tree(&bench.spec.directory), &vec![0; 60 << 20]).unwrap();
    assert_beyond(&bench.shell("sleep 1000"), "disk");
    block_on(bench.sandbox.remove("d".as_ref())).unwrap();
}

fn output_has_a_limit(tier: Tier) {
    let bench = Bench::open(tier);
    let finished = bench.run(Command::shell("head -c 10000000 /dev/zero; echo x >&2").output_limit(1000));
    assert_eq!((finished.stdout.bytes.len(), finished.stdout.total, finished.stdout.cut), (1000, 10_000_000, true));
    assert_eq!((finished.stderr.bytes.len(), finished.stderr.cut), (2, false));
}

fn no_core_is_dumped(tier: Tier) {
    let bench = bench(tier, Limits::NONE);
    assert_eq!(bench.shell("kill -SEGV $$").ended, Ended::Signalled { signal: 11, core: false });
    assert!(!bench.shell("ulimit -c unlimited").ended.well());
    assert_eq!(bench.says("ls"), "");
}

fn ordinary_work_is_not_disturbed(tier: Tier) {
    let bench = Bench::open(tier);
    let line = "for i in $(seq 200); do (echo $i; sleep 0.1) & done | sort -n | tail -1";
    assert_eq!(bench.says(line), "200");
    let finished = bench.shell("i=0; while [ $i -lt 1000 ]; do /bin/true; i=$((i + 1)); done; echo $i");
    assert_eq!(finished.stdout.bytes, b"1000\n");
    assert_eq!((finished.escaped, finished.refused, finished.beyond), (0, Vec::new(), None));
}

/// Children of a thread other than the first hear of it when the command is to end.
fn everything_is_asked_to_end_even_below_threads(tier: Tier) {
    let bench = Bench::with(tier, |spec, _| helper::show(spec));
    let mut running = bench.start(helper::act("start a child from a thread").grace(Duration::from_secs(1000)));
    wait_for(&mut running, "up");
    running.kill();
    assert!(block_on(running.finish()).unwrap().killed);
    until(|| bench.read("asked").is_ok());
}
