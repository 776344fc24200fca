//! Attempts to gain capabilities, higher limits and higher priorities.

use std::fs::File;
use std::io::Write as _;

use libc::{RLIM_INFINITY, SYS_prlimit64};

use crate::attempt::{Attempt, harmless, refused};
use crate::sys::{Death, any_of, call, child, named, status, wait};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmless("has-capabilities", "use capabilities that it was left with", |_| {
        any_of("sets", ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"], |set| {
            let held = status(set)?;
            if held.bytes().all(|digit| digit == b'0') { Err(refused("empty")) } else { Ok(format!("{set} {held}")) }
        })
    }),
    harmless("raise-capabilities", "give itself a capability", |_| {
        let (header, all) = ([0x2008_0522u32, 0], [1u32, 1, 0, 0, 0, 0]);
        call!(libc::SYS_capset, header.as_ptr(), all.as_ptr()).map_err(named("capset"))?;
        Ok(format!("has {}", status("CapEff")?))
    }),
    harmless("new-privileges", "run without the promise of no new privileges", |_| {
        match status("NoNewPrivs")?.as_str() {
            "1" => Err(refused("NoNewPrivs is 1")),
            other => Ok(format!("NoNewPrivs is {other}")),
        }
    }),
    harmless("unfiltered-calls", "run without a filter of system calls", |_| match status("Seccomp")?.as_str() {
        "2" => Err(refused("Seccomp is 2")),
        other => Ok(format!("Seccomp is {other}")),
    }),
    harmless("take-back-promise", "take back the promise of no new privileges", |_| {
        call!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0).map_err(named("prctl"))?;
        Ok("took it back".to_owned())
    }),
    harmless("raise-limits", "raise a limit above its ceiling", |_| {
        let limits = [libc::RLIMIT_CORE, libc::RLIMIT_NOFILE, libc::RLIMIT_NPROC, libc::RLIMIT_AS, libc::RLIMIT_FSIZE];
        any_of("limits", limits, |limit| {
            let mut now = [0u64; 2];
            call!(SYS_prlimit64, 0, limit, 0, now.as_mut_ptr())?;
            if now[1] == RLIM_INFINITY {
                return Err(refused(format!("limit {limit} has no ceiling")));
            }
            let more = [now[1] + 1, now[1] + 1];
            call!(SYS_prlimit64, 0, limit, more.as_ptr(), 0)?;
            Ok(format!("raised limit {limit} above {}", now[1]))
        })
    }),
    harmless("dump-core", "leave a core file", |_| {
        let mut now = [0u64; 2];
        call!(SYS_prlimit64, 0, libc::RLIMIT_CORE, 0, now.as_mut_ptr())?;
        let most = [now[1], now[1]];
        call!(SYS_prlimit64, 0, libc::RLIMIT_CORE, most.as_ptr(), 0)?;
        match wait(child(|| unsafe { libc::abort() })?)? {
            Death::Signal { core: true, .. } => Ok("left one".to_owned()),
            // With a limit of 1, the kernel does not start a core dump helper either.
            _ if now[1] > 1 => Ok(format!("the ceiling for cores is {}", now[1])),
            _ => Err(refused("cores may have no bytes")),
        }
    }),
    harmless("run-in-real-time", "put itself before all others", |_| {
        let priority = 1i32;
        let scheduler = call!(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const priority);
        scheduler.map_err(named("sched_setscheduler"))?;
        Ok("runs in real time".to_owned())
    }),
    harmless("raise-priority", "raise its priority", |_| {
        call!(libc::SYS_setpriority, libc::PRIO_PROCESS, 0, -20i64).map_err(named("setpriority"))?;
        Ok("has priority -20".to_owned())
    }),
    harmless("disk-in-real-time", "read the disk before all others", |_| {
        call!(libc::SYS_ioprio_set, 1, 0, 1 << 13).map_err(named("ioprio_set"))?;
        Ok("reads first".to_owned())
    }),
    harmless("dodge-memory-killer", "be the last one that dies when memory runs out", |_| {
        let path = "/proc/self/oom_score_adj";
        let now: i32 = std::fs::read_to_string(path)?.trim().parse().unwrap_or(0);
        any_of("scores", [-1000, now - 1], |score| {
            File::options().write(true).open(path)?.write_all(score.to_string().as_bytes())?;
            Ok(format!("went from {now} to {score}"))
        })
    }),
];
