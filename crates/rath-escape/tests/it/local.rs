//! The escape suite against the isolated backend.

use pollster::block_on;
use rath_sandbox::{Backend as _, IsolationLevel, Limits, Local, SandboxSpec};

use crate::outside::Outside;
use crate::probe::attempt_all;
use crate::role::{as_each_user, print_line};

/// With fewer refused attempts, the suite itself is broken.
const LEAST_REFUSED: usize = 40;

#[test]
fn no_attempt_escapes_from_namespaces() {
    run_all_attempts("local::no_attempt_escapes_from_namespaces", IsolationLevel::Ns, &[]);
}

#[test]
fn only_listed_attempts_escape_from_landlock() {
    // Attempts that this level does not refuse, as listed in the record `sandbox_opened`, and capabilities in a
    // bounding set that cannot be gained.
    let admitted = [
        "see-outsiders",
        "connections-of-host",
        "chmod-outside",
        "git-hook-mode",
        "touch-outside",
        "pin-outsider",
        "thread-bomb",
        "has-capabilities",
    ];
    run_all_attempts("local::only_listed_attempts_escape_from_landlock", IsolationLevel::Landlock, &admitted);
}

/// Makes all attempts. Only those in `admitted` may escape.
fn run_all_attempts(test: &str, level: IsolationLevel, admitted: &[&str]) {
    let diagnosis = Local::only(level).diagnose().clone();
    if diagnosis.level.is_none() {
        let why: Vec<String> = diagnosis.refusals.iter().map(ToString::to_string).collect();
        print_line(&format!("escape suite on local ({level}): skipped: {}\n", why.join("; ")));
        return;
    }
    as_each_user(test, |role| {
        let mut outside = Outside::create(&role.base);
        let mut spec =
            SandboxSpec::new(outside.workspace(), outside.state()).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        spec.hidden = vec![outside.workspace().join("vault")];
        spec.limits = Limits {
            processes: Some(256),
            memory: Some(512 << 20),
            file_size: Some(256 << 20),
            open_files: Some(1024),
            disk: Some(512 << 20),
            ..Limits::default()
        };
        let sandbox = block_on(Local::only(level).open(spec)).unwrap();
        let table = attempt_all(&sandbox, &mut outside, role, true);
        table.print_line(&format!("local ({level})"), role, admitted);
        let escaped: Vec<_> = table.escaped().into_iter().filter(|name| !admitted.contains(name)).collect();
        assert!(table.broken().is_empty() && escaped.is_empty(), "{escaped:?}\n{table}");
        assert!(table.refused().len() >= LEAST_REFUSED, "{table}");
    });
}
