//! System calls without a safe wrapper, and the startup hook.
#![allow(unsafe_code, reason = "see each block")]

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::process::Pid;
use seccompiler::BpfProgramRef;

/// Runs before `main` in each program that contains this crate. If the program was started as a supervisor, it becomes
/// one and does not reach `main`. So no separate supervisor executable has to be installed and found.
#[used]
// SAFETY: the C library calls the functions in this section once, before `main`, on the only thread.
#[unsafe(link_section = ".init_array")]
static STARTUP_HOOK: extern "C" fn() = startup_hook;

extern "C" fn startup_hook() {
    super::become_supervisor_if_named();
}

/// Always `true`. Refers to [`STARTUP_HOOK`], so that the linker keeps it in each program that can start supervisors.
pub(in crate::local) fn is_linked_in() -> bool {
    let startup_hook = std::hint::black_box(&STARTUP_HOOK);
    *startup_hook as usize != 0
}

/// Forks, optionally into new PID and mount namespaces. Returns `None` in the child.
pub(super) fn fork(in_namespaces: bool) -> io::Result<Option<Pid>> {
    let pid = if in_namespaces {
        let flags = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::SIGCHLD;
        // SAFETY: without CLONE_VM and with no stack given this is a fork; this process has one thread.
        unsafe { libc::syscall(libc::SYS_clone, flags as libc::c_ulong, 0usize, 0usize, 0usize, 0usize) as libc::pid_t }
    } else {
        // SAFETY: this process has one thread, so no lock is held by another.
        unsafe { libc::fork() }
    };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Resets all signals to their default action. A program that was started in the background ignores some signals, and
/// its commands would inherit that.
pub(super) fn default_signals() {
    for signal in 1..=64 {
        // SAFETY: this process needs no handlers any more, and SIG_DFL is not a handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Closes all file descriptors from `first` on.
pub(super) fn close_from(first: RawFd) {
    // SAFETY: no value of this process owns one of these descriptors.
    unsafe { libc::syscall(libc::SYS_close_range, first as libc::c_uint, libc::c_uint::MAX, 0 as libc::c_uint) };
}

/// Adds attributes to a mount and all mounts below it.
pub(super) fn restrict_mounts(path: &Path, attributes: u64) -> rustix::io::Result<()> {
    use std::os::unix::ffi::OsStrExt as _;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    let wanted = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: both pointers are valid for the call, the size is that of the structure.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE as libc::c_uint,
            &raw const wanted,
            size_of::<libc::mount_attr>(),
        )
    };
    check(done).map(drop)
}

/// Applies a seccomp filter to this process. Returns a descriptor that receives the calls which the filter does not
/// decide itself.
pub(super) fn filter_with_listener(filter: BpfProgramRef<'_>) -> rustix::io::Result<OwnedFd> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut().cast() };
    // SAFETY: `sock_filter` of both crates is the kernel's; the kernel copies the program.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    // SAFETY: the kernel has just opened it for us.
    check(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Receives the next such call: the id for the reply, and the number of the call.
pub(super) fn next_notification(listener: &OwnedFd) -> rustix::io::Result<(u64, i32)> {
    // SAFETY: all zeros is a value of this structure, and the one that the kernel wants to be given.
    let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills in the structure that this request is defined for.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV as _, &raw mut asked) };
    check(done.into()).map(|_| (asked.id, asked.data.nr))
}

/// Lets the system call with this notification id fail with EPERM.
pub(super) fn refuse(listener: &OwnedFd, id: u64) -> rustix::io::Result<()> {
    let answer = libc::seccomp_notif_resp { id, val: 0, error: -libc::EPERM, flags: 0 };
    // SAFETY: the kernel reads the structure that this request is defined for.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND as _, &raw const answer) };
    check(done.into()).map(drop)
}

fn check(done: libc::c_long) -> rustix::io::Result<libc::c_long> {
    match done {
        -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
        done => Ok(done),
    }
}
