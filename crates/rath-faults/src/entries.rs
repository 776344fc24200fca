//! The functions of the C library that change what a directory holds.
#![allow(clippy::missing_safety_doc, missing_docs, unreachable_pub, reason = "they are the C library's")]

use std::ffi::{c_char, c_int, c_uint};

use libc::{AT_FDCWD, mode_t};

use crate::calls::fail;
use crate::place::{Entry, stat_of};
use crate::rules::{Call, Fault};
use crate::trace::{self, What};

unsafe fn open_at(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments, as they came.
    let really = || unsafe { libc::syscall(libc::SYS_openat, dir, path, flags, mode) as c_int };
    if flags & (libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY | libc::O_RDWR) == 0 {
        return really();
    }
    // SAFETY: the caller's promise.
    let Some(entry) = (unsafe { Entry::of(dir, path) }).filter(|entry| entry.name != b"faults") else {
        return really();
    };
    let Some(mut alone) = trace::setup().map(trace::Setup::alone) else { return really() };
    let known = entry.inode();
    let call = if known.is_none() && flags & libc::O_CREAT != 0 { Call::Entry } else { Call::Open };
    if let Some(Fault::Errno(errno)) = alone.fault(call, &entry.name) {
        return fail(errno);
    }
    let fd = really();
    if let Some(stat) = stat_of(fd) {
        if known.is_none() {
            let what = What::Create { parent: entry.parent, name: &entry.name, directory: false };
            alone.tell(stat.st_ino, &what);
        } else if flags & libc::O_TRUNC != 0 {
            alone.tell(stat.st_ino, &What::Truncate { length: 0 });
        }
    }
    fd
}

// The mode comes as a variable argument, which these machines pass as any other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_at(AT_FDCWD, path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_at(AT_FDCWD, path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_at(dir, path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_at(dir, path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments, as they came.
    let really = || unsafe { libc::syscall(libc::SYS_mkdirat, dir, path, mode) as c_int };
    // SAFETY: the caller's promise.
    let Some(entry) = (unsafe { Entry::of(dir, path) }) else { return really() };
    let Some(mut alone) = trace::setup().map(trace::Setup::alone) else { return really() };
    if let Some(Fault::Errno(errno)) = alone.fault(Call::Entry, &entry.name) {
        return fail(errno);
    }
    let answer = really();
    if let Some(inode) = entry.inode().filter(|_| answer == 0) {
        alone.tell(inode, &What::Create { parent: entry.parent, name: &entry.name, directory: true });
    }
    answer
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { mkdirat(AT_FDCWD, path, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments, as they came.
    let really = || unsafe { libc::syscall(libc::SYS_unlinkat, dir, path, flags) as c_int };
    // SAFETY: the caller's promise.
    let Some(entry) = (unsafe { Entry::of(dir, path) }) else { return really() };
    let Some(mut alone) = trace::setup().map(trace::Setup::alone) else { return really() };
    if let Some(Fault::Errno(errno)) = alone.fault(Call::Entry, &entry.name) {
        return fail(errno);
    }
    let inode = entry.inode();
    let answer = really();
    if let Some(inode) = inode.filter(|_| answer == 0) {
        alone.tell(inode, &What::Unlink { parent: entry.parent, name: &entry.name });
    }
    answer
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { unlinkat(AT_FDCWD, path, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { unlinkat(AT_FDCWD, path, libc::AT_REMOVEDIR) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkat(from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments, as they came.
    let really = || unsafe { libc::syscall(libc::SYS_linkat, from, old, to, new, flags) as c_int };
    // SAFETY: the caller's promise.
    let Some(entry) = (unsafe { Entry::of(to, new) }) else { return really() };
    let Some(mut alone) = trace::setup().map(trace::Setup::alone) else { return really() };
    if let Some(Fault::Errno(errno)) = alone.fault(Call::Entry, &entry.name) {
        return fail(errno);
    }
    let answer = really();
    if let Some(inode) = entry.inode().filter(|_| answer == 0) {
        alone.tell(inode, &What::Link { parent: entry.parent, name: &entry.name });
    }
    answer
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn link(old: *const c_char, new: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
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
    // SAFETY: the caller's arguments, as they came.
    let really = || unsafe { libc::syscall(libc::SYS_renameat2, from, old, to, new, flags) as c_int };
    // SAFETY: the caller's promise.
    let (Some(before), Some(after)) = (unsafe { (Entry::of(from, old), Entry::of(to, new)) }) else { return really() };
    let Some(mut alone) = trace::setup().map(trace::Setup::alone) else { return really() };
    if let Some(Fault::Errno(errno)) = alone.fault(Call::Entry, &after.name) {
        return fail(errno);
    }
    let answer = really();
    if let Some(inode) = after.inode().filter(|_| answer == 0) {
        let what = What::Rename { from: before.parent, old: &before.name, to: after.parent, new: &after.name };
        alone.tell(inode, &what);
    }
    answer
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat(from: c_int, old: *const c_char, to: c_int, new: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { renameat2(from, old, to, new, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(old: *const c_char, new: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { renameat2(AT_FDCWD, old, AT_FDCWD, new, 0) }
}
