//! Attempts to create and join namespaces.

use std::fs::File;
use std::os::fd::AsRawFd as _;

use libc::{
    CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS, SIGCHLD,
    SYS_clone, SYS_clone3, SYS_setns, SYS_unshare, c_int,
};

use crate::attempt::{Attempt, Tried, harmful, harmless};
use crate::procfs::outsider;
use crate::sys::{any_of, call, named, parent, status, wait};

const CLONE_NEWTIME: c_int = 0x80;
const NS_GET_PARENT: u64 = 0xb702;
const NS_GET_USERNS: u64 = 0xb701;

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmless("new-user-namespace", "get capabilities in a new user namespace", |_| {
        unshare(CLONE_NEWUSER)?;
        Ok(format!("has capabilities {} in it", status("CapEff")?))
    }),
    harmless("new-mount-namespace", "make a new mount namespace", |_| unshare(CLONE_NEWNS)),
    harmless("new-pid-namespace", "make a new process namespace", |_| unshare(CLONE_NEWPID)),
    harmless("new-net-namespace", "make a new network namespace", |_| unshare(CLONE_NEWNET)),
    harmless("new-ipc-namespace", "make a new IPC namespace", |_| unshare(CLONE_NEWIPC)),
    harmless("new-name-namespace", "make a new host name namespace", |_| unshare(CLONE_NEWUTS)),
    harmless("new-cgroup-namespace", "make a new control group namespace", |_| unshare(CLONE_NEWCGROUP)),
    harmless("new-time-namespace", "make a new time namespace", |_| unshare(CLONE_NEWTIME)),
    harmless("new-everything", "make new namespaces of user, mounts and network at once", |_| {
        unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET)
    }),
    harmless("clone-user-namespace", "start a process in a new user namespace with clone", |_| {
        match call!(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0).map_err(named("clone"))? {
            0 => unsafe { libc::_exit(0) },
            pid => wait(pid as i32)?,
        };
        Ok("started a process in a new user namespace".to_owned())
    }),
    harmless("clone3-user-namespace", "start a process in a new user namespace with clone3", |_| {
        let mut arguments = [0u64; 11];
        (arguments[0], arguments[4]) = (CLONE_NEWUSER as u64, SIGCHLD as u64);
        match call!(SYS_clone3, arguments.as_ptr(), size_of_val(&arguments)).map_err(named("clone3"))? {
            0 => unsafe { libc::_exit(0) },
            pid => wait(pid as i32)?,
        };
        Ok("started a process in a new user namespace".to_owned())
    }),
    harmful("join-first", "join a namespace of process 1", |_| join(1)),
    harmless("join-parent", "join a namespace of the parent", |_| join(parent()?.into())),
    harmless("join-outsider", "join a namespace of a process outside", |facts| join(outsider(facts)?)),
    harmless("join-by-handle", "join all namespaces of a process outside by its pidfd", |facts| {
        let handle = call!(libc::SYS_pidfd_open, outsider(facts)?, 0).map_err(named("pidfd_open"))?;
        call!(SYS_setns, handle, CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC).map_err(named("setns"))?;
        Ok("is in the outside".to_owned())
    }),
    harmless("parent-namespace", "open the parent user or PID namespace", |_| {
        any_of("namespaces", ["user", "pid", "mnt", "net"], |kind| {
            let file = File::open(format!("/proc/self/ns/{kind}"))?;
            let above = if ["user", "pid"].contains(&kind) { NS_GET_PARENT } else { NS_GET_USERNS };
            let found = call!(libc::SYS_ioctl, file.as_raw_fd(), above)?;
            call!(SYS_setns, found, 0)?;
            Ok(format!("joined the namespace above {kind}"))
        })
    }),
];

fn unshare(kinds: c_int) -> Tried {
    call!(SYS_unshare, kinds).map_err(named("unshare"))?;
    Ok("made it".to_owned())
}

fn join(pid: i64) -> Tried {
    any_of("namespaces", ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"], |kind| {
        let file = File::open(format!("/proc/{pid}/ns/{kind}"))?;
        call!(SYS_setns, file.as_raw_fd(), 0)?;
        Ok(format!("joined the {kind} namespace of process {pid}"))
    })
}
