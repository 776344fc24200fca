//! Attempts to send signals to processes outside.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use libc::{ESRCH, SIGCONT, SIGKILL, SIGTERM};

use crate::attempt::{Attempt, Tried, cannot_try, harmful, harmless, refused};
use crate::facts::Facts;
use crate::procfs::outsider;
use crate::sys::{call, kill, named, parent};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmless("signal-outsider", "send a signal to a process outside", |facts| {
        kill(outsider(facts)?, SIGCONT).map_err(named("kill"))?;
        Ok("sent it".to_owned())
    }),
    harmless("signal-thread", "send a signal to a thread outside", |facts| {
        let pid = outsider(facts)?;
        call!(libc::SYS_tgkill, pid, pid, SIGCONT).map_err(named("tgkill"))?;
        Ok("sent it".to_owned())
    }),
    harmless("signal-queue", "queue a signal for a process outside", |facts| {
        let mut info = [0i32; 32];
        (info[0], info[2]) = (SIGCONT, -1);
        call!(libc::SYS_rt_sigqueueinfo, outsider(facts)?, SIGCONT, info.as_ptr()).map_err(named("rt_sigqueueinfo"))?;
        Ok("sent it".to_owned())
    }),
    harmless("signal-handle", "send a signal to a process outside by its pidfd", |facts| {
        let handle = call!(libc::SYS_pidfd_open, outsider(facts)?, 0).map_err(named("pidfd_open"))?;
        call!(libc::SYS_pidfd_send_signal, handle, SIGCONT, 0, 0).map_err(named("pidfd_send_signal"))?;
        Ok("sent it".to_owned())
    }),
    harmful("kill-parent", "kill the process that started it", |_| {
        let pid = parent()?;
        kill(pid.into(), 0).map_err(named("kill"))?;
        if pid != 1 {
            return Ok(format!("may kill process {pid}"));
        }
        kill_first()
    }),
    harmful("kill-first", "kill process 1", |_| kill_first()),
    harmful("kill-everyone", "kill every process there is", kill_everyone),
    harmful("kill-group-of-outsider", "kill the group of a process outside", |facts| {
        kill(-outsider(facts)?, SIGCONT).map_err(named("kill"))?;
        Ok("sent it".to_owned())
    }),
];

/// The first process of a PID namespace ignores signals from inside that it does not handle.
fn kill_first() -> Tried {
    if std::process::id() == 1 {
        return Err(refused("this is the first process here"));
    }
    for signal in [SIGTERM, SIGKILL] {
        kill(1, signal).map_err(named("kill"))?;
    }
    std::thread::sleep(Duration::from_millis(100));
    kill(1, 0).map_err(named("it was killed"))?;
    Err(refused("the first process does not hear it"))
}

fn kill_everyone(facts: &Facts) -> Tried {
    match outsider(facts).map(|pid| kill(pid, 0)) {
        Ok(Ok(_)) => return Ok("a process outside is among them".to_owned()),
        Ok(Err(error)) if error.raw_os_error() == Some(ESRCH) => {
            let here = std::fs::metadata("/proc/self/ns/pid").map(|space| space.ino()).unwrap_or(0);
            if here == facts.number("pid_namespace")? {
                return Err(cannot_try("the process outside has ended"));
            }
        }
        _ => {}
    }
    kill(-1, SIGKILL).map_err(named("kill"))?;
    Err(refused("only those of this sandbox were there"))
}
