//! Raw system calls, and the meaning of their results.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use libc::{EACCES, ENOSYS, EPERM, c_int, pid_t};

use crate::attempt::{Failed, Tried, refused};

/// Makes a system call with up to six integers or pointers.
macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        $crate::sys::answer(unsafe { libc::syscall($number as libc::c_long $(, $argument as usize)*) } as i64)
    };
}
pub(crate) use call;

pub(crate) fn answer(returned: i64) -> io::Result<i64> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// The result of a call with harmless invalid arguments: any error other than a refusal means that the call is allowed.
pub(crate) fn door(name: &str, answer: io::Result<i64>) -> Tried {
    match answer {
        Err(error) if [EPERM, EACCES, ENOSYS].contains(&error.raw_os_error().unwrap_or(0)) => {
            Err(refused(format!("{name}: {error}")))
        }
        Err(error) => Ok(format!("{name} is allowed here: {error}")),
        Ok(value) => Ok(format!("{name} is allowed here: {value}")),
    }
}

/// Adds the name of the failed call to an error.
pub(crate) fn named(name: &str) -> impl Fn(io::Error) -> Failed {
    move |error| refused(format!("{name}: {error}"))
}

pub(crate) fn c_path(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().as_os_str().as_bytes()).unwrap_or_default()
}

/// Runs `work` in a child process.
pub(crate) fn child(work: impl FnOnce() -> c_int) -> io::Result<pid_t> {
    match answer(i64::from(unsafe { libc::fork() }))? {
        0 => unsafe { libc::_exit(work()) },
        pid => Ok(pid as pid_t),
    }
}

/// How a child ended.
pub(crate) enum Death {
    Exit(c_int),
    Signal { number: c_int, core: bool },
}

pub(crate) fn wait(pid: pid_t) -> io::Result<Death> {
    let mut status = 0;
    answer(i64::from(unsafe { libc::waitpid(pid, &mut status, 0) }))?;
    if libc::WIFSIGNALED(status) {
        return Ok(Death::Signal { number: libc::WTERMSIG(status), core: libc::WCOREDUMP(status) });
    }
    Ok(Death::Exit(libc::WEXITSTATUS(status)))
}

pub(crate) fn kill(pid: i64, signal: c_int) -> io::Result<i64> {
    call!(libc::SYS_kill, pid, signal)
}

/// The parent process, if it is visible.
pub(crate) fn parent() -> Result<pid_t, Failed> {
    match unsafe { libc::getppid() } {
        0 => Err(refused("the parent cannot be seen from here")),
        pid => Ok(pid),
    }
}

/// A line of `/proc/self/status`.
pub(crate) fn status(name: &str) -> Result<String, Failed> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(|value| value.trim().to_owned()).ok_or_else(|| crate::attempt::cannot_try(format!("no {name} in status")))
}

/// Tries each item. Escapes with all that worked, or fails with the number of items.
pub(crate) fn any_of<T>(what: &str, many: impl IntoIterator<Item = T>, mut attempt: impl FnMut(T) -> Tried) -> Tried {
    let (mut got, mut failed, mut last) = (Vec::new(), 0, String::new());
    for one in many {
        match attempt(one) {
            Ok(gain) => got.push(gain),
            Err(Failed::Refused(how) | Failed::CannotTry(how)) => {
                failed += 1;
                last = how;
            }
        }
    }
    if got.is_empty() {
        return Err(refused(format!("none of {failed} {what}; the last: {}", if failed == 0 { "-" } else { &last })));
    }
    let more = if got.len() > 3 { format!(" and {} more", got.len() - 3) } else { String::new() };
    got.truncate(3);
    Ok(got.join("; ") + &more)
}
