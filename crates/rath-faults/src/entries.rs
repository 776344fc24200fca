//! The replaced functions of the C library that change directory entries.
#![allow(clippy::missing_safety_doc, missing_docs, unreachable_pub, reason = "they are the C library's")]

use std::ffi::{c_char, c_int, c_uint};

use libc::{AT_FDCWD, mode_t};

use crate::calls::fail;
use crate::file_path::{Entry, stat_of};
use crate::rules::{Call, Fault};
use crate::trace::{self, Event};

unsafe fn open_at(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the arguments of the caller, unchanged.
    let really = || unsafe { libc::syscall(libc::SYS_openat, dir, path, flags, mode) as c_int };
    if flags & (libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY | libc::O_RDWR) == 0 {
        return really();
    }
    // SAFETY: the arguments of the caller, unchanged.
    let Some(entry) = (unsafe { Entry::of(dir, path) }).filter(|entry| entry.name != b"faults") else {
        return really();
    };
    let Some(mut lock) = trace::setup().map(trace::Setup::lock) else { return really() };
    let known = entry.inode();
    let call = if known.is_none() && flags & libc::O_CREAT != 0 { Call::Entry } else { Call::Open };
    if let Some(Fault::Errno(errno)) = lock.fault(call, &entry.name) {
        return fail(errno);
    }
    let fd = really();
    if let Some(stat) = stat_of(fd) {
        if known.is_none() {
            let event = Event::Create { parent: entry.parent, name: &entry.name, directory: false };
            lock.record(stat.st_ino, &event);
        } else if flags & libc::O_TRUNC != 0 {
            lock.record(stat.st_ino, &Event::Truncate { length: 0 });
        }
    }
    fd
}

// `mode` is a variadic argument. On the supported machines it is passed like a fixed one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the arguments of the caller, unchanged.
    unsafe { open_at(AT_FDCWD, path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the arguments of the caller, unchanged.
    unsafe { open_at(AT_FDCWD, path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the arguments of the caller, unchanged.
    unsafe { open_at(dir, path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the arguments of the caller, unchanged.
    unsafe { open_at(dir, path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the arguments of the caller, unchanged.
    let really = || unsafe { libc::syscall(libc::SYS_mkdirat, dir, path, mode) as c_int };
    // SAFETY: the arguments of the caller, unchanged.
    let Some(entry) = (unsafe { Entry::of(dir, path) }) else { return really() };
    let Some(mut lock) = trace::setup().map(trace::Setup::lock) else { return really() };
    if let Some(Fault::Errno(errno)) = lock.fault(Call::Entry, &entry.name) {
        return fail(errno);
    }
    let answer = really();
    if let Some(inode) = entry.inode().filter(|_| answer == 0) {
        lock.record(inode, &Event::Create { parent: entry.parent, name: &entry.name, directory: true });
    }
    answer
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the arguments of the caller, unchanged.
    unsafe { mkdirat(AT_FDCWD, path, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the arguments of the caller, unchanged.
    let really = || unsafe { libc::syscall(libc::SYS_unlinkat, dir, path, flags) as c_int };
    // SAFETY: the arguments of the caller, unchanged.
    let Some(entry) = (unsafe { Entry::of(dir, path) }) else { return really() };
    let Some(mut lock) = trace::setup().map(trace::Setup::lock) else { return really() };
    if let Some(Fault::Errno(errno)) = lock.fault(Call::Entry, &entry.name) {
        return fail(errno);
    }
    let inode = entry.inode();
    let answer = really();
    if let Some(inode) = inode.filter(|_| answer == 0) {
        lock.record(inode, &Event::Unlink { parent: entry.parent, name: &entry.name });
    }
    answer
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the arguments of the caller, unchanged.
    unsafe { unlinkat(AT_FDCWD, path, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: the arguments of the caller, unchanged.
    unsafe { unlinkat(AT_FDCWD, path, libc::AT_REMOVEDIR) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkat(from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the arguments of the caller, unchanged.
    let really = || unsafe { libc::syscall(libc::SYS_linkat, from, old, to, new, flags) as c_int };
    // SAFETY: the arguments of the caller, unchanged.
    let Some(entry) = (unsafe { Entry::of(to, new) }) else { return really() };
    let Some(mut lock) = trace::setup().map(trace::Setup::lock) else { return really() };
    if let Some(Fault::Errno(errno)) = lock.fault(Call::Entry, &entry.name) {
        return fail(errno);
    }
    let answer = really();
    if let Some(inode) = entry.inode().filter(|_| answer == 0) {
        lock.record(inode, &Event::Link { parent: entry.parent, name: &entry.name });
    }
    answer
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn link(old: *const c_char, new: *const c_char) -> c_int {
    // SAFETY: the arguments of the caller, unchanged.
    unsafe { linkat(AT_FDCWD, old, AT_FDCWD, new, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat2(
    from: c_int,
    old: *const c_char,
    to: c_int,
    new: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: the arguments of the caller, unchanged.
    let really = || unsafe { libc::syscall(libc::SYS_renameat2, from, old, to, new, flags) as c_int };
    // SAFETY: the arguments of the caller, unchanged.
    let (Some(before), Some(after)) = (unsafe { (Entry::of(from, old), Entry::of(to, new)) }) else { return really() };
    let Some(mut lock) = trace::setup().map(trace::Setup::lock) else { return really() };
    if let Some(Fault::Errno(errno)) = lock.fault(Call::Entry, &after.name) {
        return fail(errno);
    }
    let answer = really();
    if let Some(inode) = after.inode().filter(|_| answer == 0) {
        let event = Event::Rename { from: before.parent, old: &before.name, to: after.parent, new: &after.name };
        lock.record(inode, &event);
    }
    answer
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat(from: c_int, old: *const c_char, to: c_int, new: *const c_char) -> c_int {
    // SAFETY: the arguments of the caller, unchanged.
    unsafe { renameat2(from, old, to, new, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(old: *const c_char, new: *const c_char) -> c_int {
    // SAFETY: the arguments of the caller, unchanged.
    unsafe { renameat2(AT_FDCWD, old, AT_FDCWD, new, 0) }
}
