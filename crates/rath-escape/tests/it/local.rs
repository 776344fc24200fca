//! In the sandbox of this machine every attempt is refused.

use pollster::block_on;
use rath_sandbox::{Backend as _, Limits, Local, Spec, Tier};

use crate::outside::Outside;
use crate::probe::attempt_all;
use crate::role::{as_each_user, tell};

/// Fewer refusals than this, and the suite has not done its work.
const LEAST_REFUSED: usize = 40;

#[test]
fn nothing_gets_out_of_namespaces() {
    nothing_gets_out("local::nothing_gets_out_of_namespaces", Tier::Ns, &[]);
}

#[test]
fn nothing_gets_out_of_landlock() {
    // What `sandbox_opened` says that this tier does not do; and a bounding set that nothing can be gained from.
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
    nothing_gets_out("local::nothing_gets_out_of_landlock", Tier::Landlock, &admitted);
}

/// Nothing but what the tier says itself that it cannot keep apart.
fn nothing_gets_out(test: &str, tier: Tier, admitted: &[&str]) {
    let diagnosis = Local::only(tier).diagnose().clone();
    if diagnosis.tier.is_none() {
        let why: Vec<String> = diagnosis.refusals.iter().map(ToString::to_string).collect();
        tell(&format!("escape suite on local ({tier}): skipped: {}\n", why.join("; ")));
        return;
    }
    as_each_user(test, |role| {
        let mut outside = Outside::plant(&role.base);
        let mut spec = Spec::new(outside.workspace(), outside.state()).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        spec.hidden = vec![outside.workspace().join("vault")];
        spec.limits = Limits {
            processes: Some(256),
            memory: Some(512 << 20),
            file_size: Some(256 << 20),
            open_files: Some(1024),
            disk: Some(512 << 20),
            ..Limits::default()
        };
        let sandbox = block_on(Local::only(tier).open(spec)).unwrap();
        let table = attempt_all(&sandbox, &mut outside, role, true);
        table.tell(&format!("local ({tier})"), role, admitted);
        let escaped: Vec<_> = table.escaped().into_iter().filter(|name| !admitted.contains(name)).collect();
        assert!(table.broken().is_empty() && escaped.is_empty(), "{escaped:?}\n{table}");
        assert!(table.refused().len() >= LEAST_REFUSED, "{table}");
    });
}
