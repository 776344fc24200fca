//! The replaced functions of the C library that read, change or sync a file, and the one that reads the clock.
#![allow(clippy::missing_safety_doc, missing_docs, unreachable_pub, reason = "they are the C library's")]

use std::ffi::{c_int, c_void};

use libc::{iovec, off_t, size_t, ssize_t};

use crate::file_path::Open;
use crate::rules::{self, Call, Fault};
use crate::trace::{self, Event, Exclusive};

/// The name of the file in the root that receives new rules.
const CONTROL: &[u8] = b"faults";

/// Returns -1 and sets `errno`.
pub(crate) fn fail<T: From<i8>>(errno: i32) -> T {
    // SAFETY: `errno` is valid in every thread.
    unsafe { *libc::__errno_location() = errno };
    T::from(-1)
}

fn lock() -> Option<Exclusive<'static>> {
    trace::setup().map(trace::Setup::lock)
}

/// Writes at an offset, or at the current position of the file.
unsafe fn put(fd: c_int, bytes: *const c_void, length: size_t, at: Option<off_t>) -> ssize_t {
    // SAFETY: the arguments of the caller, unchanged.
    let really = |length: size_t| unsafe {
        match at {
            Some(at) => libc::syscall(libc::SYS_pwrite64, fd, bytes, length, at) as ssize_t,
            None => libc::syscall(libc::SYS_write, fd, bytes, length) as ssize_t,
        }
    };
    let Some(open) = Open::of(fd) else { return really(length) };
    let Some(mut lock) = lock() else { return really(length) };
    // SAFETY: the caller guarantees that `bytes` has `length` bytes.
    let data = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
    if open.name == CONTROL {
        lock.set_rules(data);
        return length as ssize_t;
    }
    // SAFETY: only reads the state of a file descriptor.
    let offset = match at {
        Some(at) => at as u64,
        None if unsafe { libc::fcntl(fd, libc::F_GETFL) } & libc::O_APPEND != 0 => {
            // Another process may have appended since the file was opened.
            crate::file_path::stat_of(fd).map_or(open.size, |stat| stat.st_size as u64)
        }
        // SAFETY: only reads the state of a file descriptor.
        None => unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) as u64 },
    };
    let fault = lock.fault(Call::Write, &open.name);
    // A failing write may write a part.
    let written = really(if fault.is_some() { length / 2 } else { length });
    if let Some(data) = usize::try_from(written).ok().and_then(|written| data.get(..written)).filter(|d| !d.is_empty())
    {
        lock.record(open.inode, &Event::Write { offset, data });
    }
    match fault {
        Some(Fault::Errno(errno)) => fail(errno),
        _ => written,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, length: size_t) -> ssize_t {
    // SAFETY: the arguments of the caller, unchanged.
    unsafe { put(fd, bytes, length, None) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(fd: c_int, bytes: *const c_void, length: size_t, at: off_t) -> ssize_t {
    // SAFETY: the arguments of the caller, unchanged.
    unsafe { put(fd, bytes, length, Some(at)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(fd: c_int, bytes: *const c_void, length: size_t, at: off_t) -> ssize_t {
    // SAFETY: the arguments of the caller, unchanged.
    unsafe { put(fd, bytes, length, Some(at)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    if Open::of(fd).is_none() {
        // SAFETY: the arguments of the caller, unchanged.
        return unsafe { libc::syscall(libc::SYS_writev, fd, parts, count) as ssize_t };
    }
    let mut total = 0;
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the caller guarantees that there are `count` parts.
        let part = unsafe { &*parts.add(at) };
        // SAFETY: as above.
        let written = unsafe { put(fd, part.iov_base, part.iov_len, None) };
        if written < 0 {
            return if total > 0 { total } else { written };
        }
        total += written;
        if (written as size_t) < part.iov_len {
            break;
        }
    }
    total
}

/// Fails for files below the root, so that the caller falls back to `read` and `write`, which are recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    length: size_t,
    flags: libc::c_uint,
) -> ssize_t {
    match Open::of(to) {
        Some(_) => fail(libc::ENOSYS),
        // SAFETY: the arguments of the caller, unchanged.
        None => unsafe { libc::syscall(libc::SYS_copy_file_range, from, from_at, to, to_at, length, flags) as ssize_t },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(to: c_int, from: c_int, at: *mut off_t, length: size_t) -> ssize_t {
    match Open::of(to) {
        Some(_) => fail(libc::EINVAL),
        // SAFETY: the arguments of the caller, unchanged.
        None => unsafe { libc::syscall(libc::SYS_sendfile, to, from, at, length) as ssize_t },
    }
}

fn cut(fd: c_int, length: off_t) -> c_int {
    // SAFETY: takes no pointer.
    let really = || unsafe { libc::syscall(libc::SYS_ftruncate, fd, length) as c_int };
    let Some(open) = Open::of(fd).filter(|open| open.name != CONTROL) else { return really() };
    let Some(mut lock) = lock() else { return really() };
    if let Some(Fault::Errno(errno)) = lock.fault(Call::Write, &open.name) {
        return fail(errno);
    }
    let answer = really();
    if answer == 0 {
        lock.record(open.inode, &Event::Truncate { length: length as u64 });
    }
    answer
}

#[unsafe(no_mangle)]
pub extern "C" fn ftruncate(fd: c_int, length: off_t) -> c_int {
    cut(fd, length)
}

#[unsafe(no_mangle)]
pub extern "C" fn ftruncate64(fd: c_int, length: off_t) -> c_int {
    cut(fd, length)
}

fn sync(fd: c_int, number: libc::c_long) -> c_int {
    // SAFETY: takes no pointer.
    let really = || unsafe { libc::syscall(number, fd) as c_int };
    let Some(open) = Open::of(fd) else { return really() };
    let Some(mut lock) = lock() else { return really() };
    match lock.fault(Call::Sync, &open.name) {
        Some(Fault::Lie) => 0,
        Some(Fault::Errno(errno)) => {
            lock.record(open.inode, &Event::Sync { failed: true });
            fail(errno)
        }
        None => {
            lock.record(open.inode, &Event::Sync { failed: false });
            0
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn fsync(fd: c_int) -> c_int {
    sync(fd, libc::SYS_fsync)
}

#[unsafe(no_mangle)]
pub extern "C" fn fdatasync(fd: c_int) -> c_int {
    sync(fd, libc::SYS_fdatasync)
}

/// The error number with which a rule makes this read fail.
fn read_fault(fd: c_int) -> Option<i32> {
    if !rules::match_reads() {
        return None;
    }
    let open = Open::of(fd)?;
    match lock()?.fault(Call::Read, &open.name) {
        Some(Fault::Errno(errno)) => Some(errno),
        _ => None,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, to: *mut c_void, length: size_t) -> ssize_t {
    match read_fault(fd) {
        Some(errno) => fail(errno),
        // SAFETY: the arguments of the caller, unchanged.
        None => unsafe { libc::syscall(libc::SYS_read, fd, to, length) as ssize_t },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread(fd: c_int, to: *mut c_void, length: size_t, at: off_t) -> ssize_t {
    match read_fault(fd) {
        Some(errno) => fail(errno),
        // SAFETY: the arguments of the caller, unchanged.
        None => unsafe { libc::syscall(libc::SYS_pread64, fd, to, length, at) as ssize_t },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread64(fd: c_int, to: *mut c_void, length: size_t, at: off_t) -> ssize_t {
    // SAFETY: the arguments of the caller, unchanged.
    unsafe { pread(fd, to, length, at) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, to: *mut libc::timespec) -> c_int {
    // SAFETY: the arguments of the caller, unchanged.
    let answer = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, to) as c_int };
    if answer == 0 && clock == libc::CLOCK_REALTIME {
        // Makes sure that the rules are parsed.
        let _ = trace::setup();
        // SAFETY: the system call filled it.
        unsafe { (*to).tv_sec += rules::clock_shift() };
    }
    answer
}
