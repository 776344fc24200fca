//! Attempts to access other processes.

use libc::{EFAULT, SYS_ptrace, iovec};

use crate::attempt::{Attempt, Tried, harmful, harmless, refused};
use crate::procfs::outsider;
use crate::sys::{call, door, named, parent};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmless("trace-outsider", "trace a process outside", |facts| trace(outsider(facts)?)),
    harmless("trace-parent", "trace the process that started it", |_| trace(parent()?.into())),
    harmful("trace-first", "trace process 1", |_| trace(first()?)),
    harmless("peek-outsider", "read the memory of a process outside", |facts| peek(outsider(facts)?)),
    harmless("peek-parent", "read the memory of the process that started it", |_| peek(parent()?.into())),
    harmful("peek-first", "read the memory of process 1", |_| peek(first()?)),
    harmless("take-file-outsider", "take an open file from a process outside", |facts| take_file(outsider(facts)?)),
    harmless("take-file-parent", "take an open file from the process that started it", |_| take_file(parent()?.into())),
    harmful("take-file-first", "take an open file from process 1", |_| take_file(first()?)),
    harmless("compare-outsider", "compare itself with a process outside", |facts| {
        let pid = outsider(facts)?;
        call!(libc::SYS_kcmp, std::process::id(), pid, 1, 0, 0).map_err(named("kcmp"))?;
        Ok(format!("compared itself with process {pid}"))
    }),
    harmless("limit-outsider", "change the limits of a process outside", |facts| {
        let (pid, mut limit) = (outsider(facts)?, [0u64; 2]);
        call!(libc::SYS_prlimit64, pid, libc::RLIMIT_CORE, 0, limit.as_mut_ptr()).map_err(named("prlimit"))?;
        call!(libc::SYS_prlimit64, pid, libc::RLIMIT_CORE, limit.as_ptr(), 0).map_err(named("prlimit"))?;
        Ok(format!("may change the limits of process {pid}"))
    }),
    harmless("slow-outsider", "change the priority of a process outside", |facts| {
        let pid = outsider(facts)?;
        call!(libc::SYS_setpriority, libc::PRIO_PROCESS, pid, 0).map_err(named("setpriority"))?;
        Ok(format!("may change the priority of process {pid}"))
    }),
    harmless("pin-outsider", "choose the processors of a process outside", |facts| {
        let (pid, mut set) = (outsider(facts)?, [0u64; 128]);
        let size = size_of_val(&set);
        call!(libc::SYS_sched_getaffinity, pid, size, set.as_mut_ptr()).map_err(named("sched_getaffinity"))?;
        call!(libc::SYS_sched_setaffinity, pid, size, set.as_ptr()).map_err(named("sched_setaffinity"))?;
        Ok(format!("may choose the processors of process {pid}"))
    }),
    harmless("move-pages", "move the memory of a process outside", |facts| {
        door_or_gone("move_pages", call!(libc::SYS_move_pages, outsider(facts)?, 0, 0, 0, 0, 2))
    }),
];

/// Process 1, unless it is this process.
fn first() -> Result<i64, crate::attempt::Failed> {
    if std::process::id() == 1 { Err(refused("this is the first process here")) } else { Ok(1) }
}

/// Uses PTRACE_SEIZE, which does not stop the other process and ends with this one.
fn trace(pid: i64) -> Tried {
    call!(SYS_ptrace, libc::PTRACE_SEIZE, pid, 0, 0).map_err(named("ptrace"))?;
    Ok(format!("traces process {pid}"))
}

/// If the call fails only because of the invalid address, reading is allowed.
fn peek(pid: i64) -> Tried {
    let mut byte = 0u8;
    let local = iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let remote = iovec { iov_base: 16 as *mut _, iov_len: 1 };
    match call!(libc::SYS_process_vm_readv, pid, &raw const local, 1, &raw const remote, 1, 0) {
        Err(error) if error.raw_os_error() != Some(EFAULT) => Err(named("process_vm_readv")(error)),
        _ => Ok(format!("may read the memory of process {pid}")),
    }
}

fn take_file(pid: i64) -> Tried {
    let handle = call!(libc::SYS_pidfd_open, pid, 0).map_err(named("pidfd_open"))?;
    call!(libc::SYS_pidfd_getfd, handle, 0, 0).map_err(named("pidfd_getfd"))?;
    Ok(format!("took an open file from process {pid}"))
}

fn door_or_gone(name: &str, answer: std::io::Result<i64>) -> Tried {
    match answer {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Err(named(name)(error)),
        other => door(name, other),
    }
}
