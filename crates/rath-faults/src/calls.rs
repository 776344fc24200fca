//! The functions of the C library that change or read a file, and the clock.
#![allow(clippy::missing_safety_doc, missing_docs, unreachable_pub, reason = "they are the C library's")]

use std::ffi::{c_int, c_void};

use libc::{iovec, off_t, size_t, ssize_t};

use crate::place::Open;
use crate::rules::{self, Call, Fault};
use crate::trace::{self, Alone, What};

/// The file in the root that takes new rules.
const CONTROL: &[u8] = b"faults";

/// Says no.
pub(crate) fn fail<T: From<i8>>(errno: i32) -> T {
    // SAFETY: every thread has one.
    unsafe { *libc::__errno_location() = errno };
    T::from(-1)
}

fn alone() -> Option<Alone<'static>> {
    trace::setup().map(trace::Setup::alone)
}

/// Writes, at a place or where the file stands.
unsafe fn put(fd: c_int, bytes: *const c_void, length: size_t, at: Option<off_t>) -> ssize_t {
    // SAFETY: the caller's bytes and number, as they came.
    let really = |length: size_t| unsafe {
        match at {
            Some(at) => libc::syscall(libc::SYS_pwrite64, fd, bytes, length, at) as ssize_t,
            None => libc::syscall(libc::SYS_write, fd, bytes, length) as ssize_t,
        }
    };
    let Some(open) = Open::of(fd) else { return really(length) };
    let Some(mut alone) = alone() else { return really(length) };
    // SAFETY: the caller says that so many bytes are there.
    let data = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
    if open.name == CONTROL {
        alone.set_rules(data);
        return length as ssize_t;
    }
    // SAFETY: asks about a number.
    let offset = match at {
        Some(at) => at as u64,
        None if unsafe { libc::fcntl(fd, libc::F_GETFL) } & libc::O_APPEND != 0 => {
            // Somebody may have appended since it was opened.
            crate::place::stat_of(fd).map_or(open.size, |stat| stat.st_size as u64)
        }
        // SAFETY: asks about a number.
        None => unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) as u64 },
    };
    let fault = alone.fault(Call::Write, &open.name);
    // A write that fails may have written a part.
    let written = really(if fault.is_some() { length / 2 } else { length });
    if let Some(data) = usize::try_from(written).ok().and_then(|written| data.get(..written)).filter(|d| !d.is_empty())
    {
        alone.tell(open.inode, &What::Write { offset, data });
    }
    match fault {
        Some(Fault::Errno(errno)) => fail(errno),
        _ => written,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, length: size_t) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { put(fd, bytes, length, None) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(fd: c_int, bytes: *const c_void, length: size_t, at: off_t) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { put(fd, bytes, length, Some(at)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(fd: c_int, bytes: *const c_void, length: size_t, at: off_t) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { put(fd, bytes, length, Some(at)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    if Open::of(fd).is_none() {
        // SAFETY: the caller's promise.
        return unsafe { libc::syscall(libc::SYS_writev, fd, parts, count) as ssize_t };
    }
    let mut total = 0;
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the caller says that so many parts are there.
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

/// What the kernel would copy by itself is copied by who asked, so that it is seen.
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
        // SAFETY: the caller's promise.
        None => unsafe { libc::syscall(libc::SYS_copy_file_range, from, from_at, to, to_at, length, flags) as ssize_t },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(to: c_int, from: c_int, at: *mut off_t, length: size_t) -> ssize_t {
    match Open::of(to) {
        Some(_) => fail(libc::EINVAL),
        // SAFETY: the caller's promise.
        None => unsafe { libc::syscall(libc::SYS_sendfile, to, from, at, length) as ssize_t },
    }
}

fn cut(fd: c_int, length: off_t) -> c_int {
    // SAFETY: two numbers.
    let really = || unsafe { libc::syscall(libc::SYS_ftruncate, fd, length) as c_int };
    let Some(open) = Open::of(fd).filter(|open| open.name != CONTROL) else { return really() };
    let Some(mut alone) = alone() else { return really() };
    if let Some(Fault::Errno(errno)) = alone.fault(Call::Write, &open.name) {
        return fail(errno);
    }
    let answer = really();
    if answer == 0 {
        alone.tell(open.inode, &What::Truncate { length: length as u64 });
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
    // SAFETY: a number.
    let really = || unsafe { libc::syscall(number, fd) as c_int };
    let Some(open) = Open::of(fd) else { return really() };
    let Some(mut alone) = alone() else { return really() };
    match alone.fault(Call::Sync, &open.name) {
        Some(Fault::Lie) => 0,
        Some(Fault::Errno(errno)) => {
            alone.tell(open.inode, &What::Sync { failed: true });
            fail(errno)
        }
        None => {
            alone.tell(open.inode, &What::Sync { failed: false });
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

/// Whether a read fails.
fn unreadable(fd: c_int) -> Option<i32> {
    if !rules::about_reads() {
        return None;
    }
    let open = Open::of(fd)?;
    match alone()?.fault(Call::Read, &open.name) {
        Some(Fault::Errno(errno)) => Some(errno),
        _ => None,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, to: *mut c_void, length: size_t) -> ssize_t {
    match unreadable(fd) {
        Some(errno) => fail(errno),
        // SAFETY: the caller's promise.
        None => unsafe { libc::syscall(libc::SYS_read, fd, to, length) as ssize_t },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread(fd: c_int, to: *mut c_void, length: size_t, at: off_t) -> ssize_t {
    match unreadable(fd) {
        Some(errno) => fail(errno),
        // SAFETY: the caller's promise.
        None => unsafe { libc::syscall(libc::SYS_pread64, fd, to, length, at) as ssize_t },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread64(fd: c_int, to: *mut c_void, length: size_t, at: off_t) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { pread(fd, to, length, at) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, to: *mut libc::timespec) -> c_int {
    // SAFETY: the caller's promise.
    let answer = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, to) as c_int };
    if answer == 0 && clock == libc::CLOCK_REALTIME {
        // Rules are read before they are asked for.
        let _ = trace::setup();
        // SAFETY: it was just filled.
        unsafe { (*to).tv_sec += rules::clock_shift() };
    }
    answer
}
