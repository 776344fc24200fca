//! Makes the attempts in a sandbox and evaluates the results.

use std::path::Path;
use std::process::Command as Process;
use std::sync::Arc;
use std::time::Duration;

use pollster::block_on;
use rath_sandbox::{Command, ExitStatus, Finished, Sandbox, Stdin};

use crate::outside::Outside;
use crate::role::Role;
use crate::table::{Table, Verdict};

/// Amounts at which resource attempts stop by themselves. The limits of the sandbox must be lower.
const BOUNDS: &[(&str, u64)] = &[
    ("forks", 4_000),
    ("memory", 4 << 30),
    ("disk", 4 << 30),
    ("file", 64 << 30),
    ("files", 100_000),
    ("names", 1_000_000),
];

const AT_THE_TERMINAL: &[&str] =
    &["type-for-user", "type-past-filter", "paste-for-user", "own-terminal", "take-terminal"];

/// Signals by which a sandbox ends an attempt: SIGKILL, SIGXCPU, SIGXFSZ, SIGSYS.
const STOPPED_BY: [i32; 4] = [9, 24, 25, 31];

struct Attempt {
    name: String,
    harmless: bool,
}

/// Makes all attempts, or only the harmless ones.
pub(crate) fn attempt_all(sandbox: &Arc<dyn Sandbox>, outside: &mut Outside, role: &Role, harmful_too: bool) -> Table {
    let mut table = Table::default();
    for attempt in list(&role.base.join("escape")) {
        let wanted = role.only.as_ref().is_none_or(|only| *only == attempt.name);
        if wanted && (attempt.harmless || harmful_too) {
            let verdict = make(sandbox, outside, &attempt, harmful_too);
            table.add(attempt.name, verdict);
        }
    }
    table
}

fn list(program: &Path) -> Vec<Attempt> {
    let output = Process::new(program).arg("list").output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let attempt = |line: &str| {
        let words: Vec<&str> = line.split('\t').collect();
        Attempt { name: words[0].to_owned(), harmless: words[2] == "harmless" }
    };
    lines.lines().map(attempt).collect()
}

fn make(sandbox: &Arc<dyn Sandbox>, outside: &mut Outside, attempt: &Attempt, all: bool) -> Verdict {
    let mut words = vec!["./escape".to_owned(), attempt.name.clone()];
    words.extend(outside.facts());
    words.extend(BOUNDS.iter().map(|(name, value)| format!("{name}={value}")));
    words.push(if all { "harm=yes".to_owned() } else { outside.own_processes() });
    let mut command = Command::argv(words).timeout(Duration::from_secs(120)).output_limit(1 << 20);
    if AT_THE_TERMINAL.contains(&attempt.name.as_str()) {
        command.stdin = Stdin::Inherit;
    }
    if ["endless-output", "ignore-signals"].contains(&attempt.name.as_str()) {
        command = command.timeout(Duration::from_millis(1000)).grace(Duration::from_millis(300));
    }
    let finished = block_on(block_on(sandbox.exec(command)).unwrap().finish()).unwrap();
    let said = judge(&attempt.name, &finished);
    let verdict = lingers(&outside.workspace()).or_else(|| outside.first_change()).map_or(said, Verdict::Escaped);
    outside.restore();
    let alive = block_on(block_on(sandbox.exec(Command::argv(["true"]))).unwrap().finish()).unwrap();
    assert!(alive.ended.success(), "{}: the sandbox is broken: {alive:?}", attempt.name);
    verdict
}

fn judge(name: &str, finished: &Finished) -> Verdict {
    let line = String::from_utf8_lossy(&finished.stdout.bytes).trim().to_owned();
    let after = |start: &str| line.strip_prefix(start).map(str::to_owned);
    match finished.ended {
        _ if ["endless-output", "ignore-signals"].contains(&name) && finished.timed_out => {
            Verdict::Refused(format!("stopped after {:?}", finished.duration))
        }
        ExitStatus::Exited(0) if after("refused: ").is_some() => Verdict::Refused(after("refused: ").unwrap()),
        ExitStatus::Exited(42) if after("ESCAPED: ").is_some() => Verdict::Escaped(after("ESCAPED: ").unwrap()),
        ExitStatus::Exited(77) if after("cannot try: ").is_some() => Verdict::CannotTry(after("cannot try: ").unwrap()),
        ExitStatus::Signalled { signal, .. } if STOPPED_BY.contains(&signal) && !finished.timed_out => {
            Verdict::Refused(format!("stopped by signal {signal}"))
        }
        ended => Verdict::Broken(format!(
            "{ended:?}, timed out: {}, {line} {}",
            finished.timed_out,
            String::from_utf8_lossy(&finished.stderr.bytes)
        )),
    }
}

/// Whether the heartbeat continues after the command has ended.
fn lingers(workspace: &Path) -> Option<String> {
    let beats = || workspace.join("scratch/heartbeat").metadata().map_or(0, |file| file.len());
    let before = beats();
    if before == 0 {
        return None;
    }
    std::thread::sleep(Duration::from_millis(300));
    (beats() > before).then(|| "it lives on".to_owned())
}
