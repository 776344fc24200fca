//! The seccomp filters: system calls that no command in a sandbox may make.
//!
//! All other calls are allowed; namespaces and Landlock restrict what they can access. A call is refused if it affects
//! the whole machine, bypasses namespaces or Landlock, or exposes a large part of the kernel that build and test tools
//! do not need.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Size, SeccompCmpOp as Is, SeccompCondition as Condition,
    SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

use crate::local::isolation_level::IsolationLevel;

/// Calls that are always refused: those that change mounts, affect the machine, access other processes, or expose much
/// kernel code.
const REFUSED: &[(&str, c_long)] = &[
    ("acct", libc::SYS_acct),
    ("add_key", libc::SYS_add_key),
    ("adjtimex", libc::SYS_adjtimex),
    ("bpf", libc::SYS_bpf),
    ("chroot", libc::SYS_chroot),
    ("clock_adjtime", libc::SYS_clock_adjtime),
    ("clock_settime", libc::SYS_clock_settime),
    ("delete_module", libc::SYS_delete_module),
    ("fanotify_init", libc::SYS_fanotify_init),
    ("finit_module", libc::SYS_finit_module),
    ("fsconfig", libc::SYS_fsconfig),
    ("fsmount", libc::SYS_fsmount),
    ("fsopen", libc::SYS_fsopen),
    ("fspick", libc::SYS_fspick),
    ("init_module", libc::SYS_init_module),
    ("io_uring_enter", libc::SYS_io_uring_enter),
    ("io_uring_register", libc::SYS_io_uring_register),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    #[cfg(target_arch = "x86_64")]
    ("ioperm", libc::SYS_ioperm),
    #[cfg(target_arch = "x86_64")]
    ("iopl", libc::SYS_iopl),
    ("kcmp", libc::SYS_kcmp),
    ("kexec_file_load", libc::SYS_kexec_file_load),
    ("kexec_load", libc::SYS_kexec_load),
    ("keyctl", libc::SYS_keyctl),
    ("mount", libc::SYS_mount),
    ("mount_setattr", libc::SYS_mount_setattr),
    ("move_mount", libc::SYS_move_mount),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("open_tree", libc::SYS_open_tree),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ("pivot_root", libc::SYS_pivot_root),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("ptrace", libc::SYS_ptrace),
    ("quotactl", libc::SYS_quotactl),
    ("quotactl_fd", libc::SYS_quotactl_fd),
    ("reboot", libc::SYS_reboot),
    ("request_key", libc::SYS_request_key),
    ("setdomainname", libc::SYS_setdomainname),
    ("sethostname", libc::SYS_sethostname),
    ("setns", libc::SYS_setns),
    ("settimeofday", libc::SYS_settimeofday),
    ("swapoff", libc::SYS_swapoff),
    ("swapon", libc::SYS_swapon),
    ("syslog", libc::SYS_syslog),
    ("umount2", libc::SYS_umount2),
    ("unshare", libc::SYS_unshare),
    ("userfaultfd", libc::SYS_userfaultfd),
    ("vhangup", libc::SYS_vhangup),
];

/// Calls that are also refused without namespaces, because they affect what the command shares with all processes of
/// its user.
const REFUSED_WITHOUT_NAMESPACES: &[(&str, c_long)] = &[
    ("chown", libc::SYS_fchownat),
    ("chown", libc::SYS_fchown),
    #[cfg(target_arch = "x86_64")]
    ("chown", libc::SYS_chown),
    #[cfg(target_arch = "x86_64")]
    ("chown", libc::SYS_lchown),
    ("extended attributes", libc::SYS_fsetxattr),
    ("extended attributes", libc::SYS_lsetxattr),
    ("extended attributes", libc::SYS_setxattr),
    ("extended attributes", libc::SYS_fremovexattr),
    ("extended attributes", libc::SYS_lremovexattr),
    ("extended attributes", libc::SYS_removexattr),
    ("inotify", libc::SYS_inotify_init1),
    #[cfg(target_arch = "x86_64")]
    ("inotify", libc::SYS_inotify_init),
    ("message queues", libc::SYS_msgget),
    ("semaphores", libc::SYS_semget),
    ("shared memory", libc::SYS_shmget),
    ("shared memory", libc::SYS_shmat),
    ("message queues", libc::SYS_mq_open),
];

/// Calls about a process, with the index of the argument that names it. Without namespaces, they are allowed only for
/// the calling process.
const OTHER_PROCESS: &[(&str, c_long, u8)] = &[
    ("limits of another process", libc::SYS_prlimit64, 0),
    ("priority of another process", libc::SYS_setpriority, 1),
    ("priority of another process", libc::SYS_ioprio_set, 1),
    ("scheduling of another process", libc::SYS_sched_setscheduler, 0),
    ("scheduling of another process", libc::SYS_sched_setattr, 0),
    ("scheduling of another process", libc::SYS_sched_setparam, 0),
];

/// Calls that fail with ENOSYS, so that callers fall back to calls whose arguments a filter can check.
const NOT_IMPLEMENTED: &[c_long] = &[libc::SYS_clone3, libc::SYS_openat2];

/// Flags of `clone` that make a namespace.
const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64;

const SETUID: u64 = (libc::S_ISUID | libc::S_ISGID) as u64;

/// Marks, in a compiled filter, the refusals that are reported to the listener.
const NOTIFY_MARK: u16 = 4711;

/// The name of a refused call, for the record.
pub(super) fn name(number: i32) -> String {
    let about = OTHER_PROCESS.iter().map(|(name, call, _)| (*name, *call));
    let mut known = REFUSED.iter().chain(REFUSED_WITHOUT_NAMESPACES).copied().chain(about).chain(conditional_names());
    let found = known.find(|(_, call)| *call == c_long::from(number));
    found.map_or_else(|| format!("system call {number}"), |(name, _)| name.into())
}

fn conditional_names() -> impl Iterator<Item = (&'static str, c_long)> {
    [
        ("a new namespace by clone", libc::SYS_clone),
        ("a terminal's input by ioctl", libc::SYS_ioctl),
        ("a socket of this family", libc::SYS_socket),
        ("a setuid bit by fchmod", libc::SYS_fchmod),
        ("a setuid bit by fchmodat", libc::SYS_fchmodat),
        ("a setuid bit by fchmodat2", libc::SYS_fchmodat2),
        ("a setuid bit by openat", libc::SYS_openat),
        ("a device or a setuid bit by mknodat", libc::SYS_mknodat),
        #[cfg(target_arch = "x86_64")]
        ("a setuid bit by chmod", libc::SYS_chmod),
        #[cfg(target_arch = "x86_64")]
        ("a setuid bit by open", libc::SYS_open),
        #[cfg(target_arch = "x86_64")]
        ("a setuid bit by creat", libc::SYS_creat),
        #[cfg(target_arch = "x86_64")]
        ("a device or a setuid bit by mknod", libc::SYS_mknod),
    ]
    .into_iter()
}

/// The filters of an isolation level: the silent ones, to be applied in this order, and the one whose refusals can be
/// reported to a listener.
pub(super) struct Filters {
    pub(super) silent: Vec<BpfProgram>,
    pub(super) notifying: BpfProgram,
}

impl Filters {
    pub(super) fn of(level: IsolationLevel, notifies: bool) -> Result<Self, seccompiler::BackendError> {
        let shared = REFUSED_WITHOUT_NAMESPACES.iter().filter(|_| level == IsolationLevel::Landlock);
        let refused = REFUSED.iter().chain(shared).map(|(_, call)| (*call, vec![]));
        let mut rules: BTreeMap<c_long, Vec<SeccompRule>> = refused.collect();
        let bits = |arg, mask, value| Condition::new(arg, Size::Qword, Is::MaskedEq(mask), value);
        let low = |arg, value| Condition::new(arg, Size::Dword, Is::Eq, value);
        let mut add = |call, conditions: Vec<Condition>| -> Result<(), seccompiler::BackendError> {
            rules.entry(call).or_default().push(SeccompRule::new(conditions)?);
            Ok(())
        };
        for flag in (0..64).map(|bit| 1 << bit).filter(|flag| NAMESPACES & flag != 0) {
            add(libc::SYS_clone, vec![bits(0, flag, flag)?])?;
        }
        for request in [libc::TIOCSTI, libc::TIOCLINUX] {
            #[allow(clippy::unnecessary_cast, reason = "with musl it is an int")]
            add(libc::SYS_ioctl, vec![low(1, request as u64)?])?;
        }
        // Other address families are not confined by a network namespace, or are not needed by builds.
        let allowed = match level {
            IsolationLevel::Ns => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK][..],
            IsolationLevel::Landlock => &[],
        };
        let others = allowed.iter().map(|family| Condition::new(0, Size::Dword, Is::Ne, *family as u64));
        let others = others.collect::<Result<Vec<_>, _>>()?;
        match others.is_empty() {
            true => drop(rules.insert(libc::SYS_socket, vec![])),
            false => rules.entry(libc::SYS_socket).or_default().push(SeccompRule::new(others)?),
        }
        let mut add = |call, conditions: Vec<Condition>| -> Result<(), seccompiler::BackendError> {
            rules.entry(call).or_default().push(SeccompRule::new(conditions)?);
            Ok(())
        };
        for (_, call, argument) in OTHER_PROCESS.iter().filter(|_| level == IsolationLevel::Landlock) {
            add(*call, vec![Condition::new(*argument, Size::Dword, Is::Ne, 0)?])?;
        }
        let device = |arg, kind: u32| bits(arg, u64::from(libc::S_IFMT), u64::from(kind));
        for bit in [libc::S_ISUID, libc::S_ISGID].map(u64::from) {
            debug_assert_eq!(SETUID & bit, bit);
            add(libc::SYS_fchmod, vec![bits(1, bit, bit)?])?;
            add(libc::SYS_fchmodat, vec![bits(2, bit, bit)?])?;
            add(libc::SYS_fchmodat2, vec![bits(2, bit, bit)?])?;
            add(libc::SYS_mknodat, vec![bits(2, bit, bit)?])?;
            let creates = libc::O_CREAT as u64;
            add(libc::SYS_openat, vec![bits(2, creates, creates)?, bits(3, bit, bit)?])?;
            #[cfg(target_arch = "x86_64")]
            {
                add(libc::SYS_chmod, vec![bits(1, bit, bit)?])?;
                add(libc::SYS_open, vec![bits(1, creates, creates)?, bits(2, bit, bit)?])?;
                add(libc::SYS_creat, vec![bits(1, bit, bit)?])?;
                add(libc::SYS_mknod, vec![bits(1, bit, bit)?])?;
            }
        }
        for kind in [libc::S_IFCHR, libc::S_IFBLK] {
            add(libc::SYS_mknodat, vec![device(2, kind)?])?;
            #[cfg(target_arch = "x86_64")]
            add(libc::SYS_mknod, vec![device(1, kind)?])?;
        }
        let refuse = SeccompAction::Errno(libc::EPERM as u32);
        let action = if notifies { SeccompAction::Trace(u32::from(NOTIFY_MARK)) } else { refuse };
        let mut notifying = compile(rules, action)?;
        for step in &mut notifying {
            if *step == ret(libc::SECCOMP_RET_TRACE | u32::from(NOTIFY_MARK)) {
                step.k = libc::SECCOMP_RET_USER_NOTIF;
            }
        }
        let unknown = NOT_IMPLEMENTED.iter().map(|call| (*call, vec![])).collect();
        let mut silent = vec![compile(unknown, SeccompAction::Errno(libc::ENOSYS as u32))?];
        if cfg!(target_arch = "x86_64") {
            silent.push(no_x32());
        }
        Ok(Self { silent, notifying })
    }
}

fn compile(
    rules: BTreeMap<c_long, Vec<SeccompRule>>,
    action: SeccompAction,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let arch = if cfg!(target_arch = "x86_64") { TargetArch::x86_64 } else { TargetArch::aarch64 };
    SeccompFilter::new(rules, SeccompAction::Allow, action, arch)?.try_into()
}

fn ret(value: u32) -> sock_filter {
    sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: value }
}

/// A filter against the x32 ABI, which has other numbers for the same calls: all of them fail with ENOSYS.
fn no_x32() -> BpfProgram {
    const X32: u32 = 0x4000_0000;
    let load = sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: 0 };
    let jump = sock_filter { code: (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16, jt: 0, jf: 1, k: X32 };
    vec![load, jump, ret(libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32), ret(libc::SECCOMP_RET_ALLOW)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_compile_and_notify_only_if_requested() {
        for level in [IsolationLevel::Ns, IsolationLevel::Landlock] {
            for notifies in [false, true] {
                let filters = Filters::of(level, notifies).unwrap();
                let asked = filters.notifying.iter().filter(|step| **step == ret(libc::SECCOMP_RET_USER_NOTIF)).count();
                assert_eq!(asked > 0, notifies);
                assert!(filters.notifying.len() < 4096);
            }
        }
        assert_eq!(name(libc::SYS_mount as i32), "mount");
        assert_eq!(name(9999), "system call 9999");
    }
}
