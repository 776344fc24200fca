//! Attempts to bypass a system call filter with other calling conventions.

use libc::c_int;

use crate::attempt::{Attempt, Tried, cannot_try, harmless, refused};
use crate::sys::{Death, child, wait};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmless("32-bit-call", "make a 32-bit system call", |_| in_child(|| old_call(20, 0) > 0)),
    harmless("32-bit-namespace", "make a user namespace with a 32-bit system call", |_| {
        in_child(|| old_call(310, libc::CLONE_NEWUSER as u64) == 0)
    }),
    harmless("x32-call", "make an x32 system call", |_| in_child(|| x32_call(39, 0) > 0)),
    harmless("x32-namespace", "make a user namespace with an x32 system call", |_| {
        in_child(|| x32_call(272, libc::CLONE_NEWUSER as u64) == 0)
    }),
];

/// Without such calls, or with a filter for them, the caller may be killed.
fn in_child(worked: fn() -> bool) -> Tried {
    if !cfg!(target_arch = "x86_64") {
        return Err(cannot_try("this processor has no such calls"));
    }
    match wait(child(|| c_int::from(worked()))?)? {
        Death::Exit(0) => Err(refused("the call failed")),
        Death::Exit(_) => Ok("the call worked".to_owned()),
        Death::Signal { number, .. } => Err(refused(format!("the caller died of signal {number}"))),
    }
}

#[cfg(target_arch = "x86_64")]
fn old_call(number: u64, argument: u64) -> i32 {
    let mut answer = number;
    unsafe {
        std::arch::asm!(
            "xchg rbx, {argument}", "int 0x80", "xchg rbx, {argument}",
            argument = inout(reg) argument => _, inout("rax") answer,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    answer as i32
}

#[cfg(target_arch = "x86_64")]
fn x32_call(number: i64, argument: u64) -> i64 {
    unsafe { libc::syscall(0x4000_0000 | number, argument) }
}

#[cfg(not(target_arch = "x86_64"))]
fn old_call(_: u64, _: u64) -> i32 {
    -1
}

#[cfg(not(target_arch = "x86_64"))]
fn x32_call(_: i64, _: u64) -> i64 {
    -1
}
