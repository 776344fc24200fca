//! The rules: which calls fail, and how.
//!
//! Each line is a rule: `CALL NAME RESULT [after N] [times N]`. CALL is `read`, `write`, `sync`, `open` or `entry`
//! (creating, renaming or removing a directory entry). NAME is a suffix of the file name. RESULT is an error number, or
//! `lie` for a sync that does nothing and reports success. With `after N`, the first N matching calls are not affected.
//! With `times N`, the rule applies to N calls, otherwise to all. The line `clock SECONDS` shifts the clock.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// The calls that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Read,
    Write,
    Sync,
    Open,
    Entry,
}

/// The result of a call that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The call fails with this error number.
    Errno(i32),
    /// The call does nothing and reports success.
    Lie,
}

struct Rule {
    call: Call,
    name: Vec<u8>,
    fault: Fault,
    after: u64,
    times: u64,
}

/// The current rules.
pub(crate) struct Rules(Vec<Rule>);

/// Whether a rule matches reads. Otherwise reads are not examined, because they are frequent.
static READS: AtomicBool = AtomicBool::new(false);

/// By how many seconds the clock is shifted.
static CLOCK: AtomicI64 = AtomicI64::new(0);

impl Rules {
    /// Parses rules. Aborts the process at a line that is not a rule, so that a test with a wrong rule fails.
    pub(crate) fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let mut rules = Vec::new();
        let mut clock = 0;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match (&words[..], rule(&words)) {
                (["clock", seconds], _) => clock = seconds.parse().unwrap_or_else(|_| bad(line)),
                (_, Some(rule)) => rules.push(rule),
                _ => bad(line),
            }
        }
        CLOCK.store(clock, Ordering::Release);
        READS.store(rules.iter().any(|rule: &Rule| rule.call == Call::Read), Ordering::Release);
        Self(rules)
    }

    /// The fault for this call, if a rule matches.
    pub(crate) fn fault(&mut self, call: Call, name: &[u8]) -> Option<Fault> {
        let rule = self.0.iter_mut().find(|rule| rule.call == call && rule.times > 0 && name.ends_with(&rule.name))?;
        if rule.after > 0 {
            rule.after -= 1;
            return None;
        }
        rule.times -= 1;
        Some(rule.fault)
    }
}

/// Whether a rule matches reads.
pub(crate) fn match_reads() -> bool {
    READS.load(Ordering::Acquire)
}

/// By how many seconds the clock is shifted.
pub(crate) fn clock_shift() -> i64 {
    CLOCK.load(Ordering::Acquire)
}

fn rule(words: &[&str]) -> Option<Rule> {
    let [call, name, answer, limits @ ..] = words else { return None };
    let call = match *call {
        "read" => Call::Read,
        "write" => Call::Write,
        "sync" => Call::Sync,
        "open" => Call::Open,
        "entry" => Call::Entry,
        _ => return None,
    };
    let fault = match *answer {
        "lie" if call == Call::Sync => Fault::Lie,
        number => Fault::Errno(number.parse().ok()?),
    };
    let mut rule = Rule { call, name: name.as_bytes().to_vec(), fault, after: 0, times: u64::MAX };
    for limit in limits.chunks(2) {
        match limit {
            ["after", number] => rule.after = number.parse().ok()?,
            ["times", number] => rule.times = number.parse().ok()?,
            _ => return None,
        }
    }
    Some(rule)
}

fn bad(line: &str) -> ! {
    let text = format!("rath-faults: {line:?} is not a rule\n");
    // SAFETY: writes a valid buffer, then aborts.
    unsafe {
        libc::syscall(libc::SYS_write, 2, text.as_ptr(), text.len());
        libc::abort()
    }
}
