//! Attempts to use kernel interfaces that commands do not need.

use libc::{SYS_add_key, SYS_keyctl};

use crate::attempt::{Attempt, harmful, harmless};
use crate::sys::{call, door, named};

const KEY_SPEC_PROCESS: i64 = -2;
const KEY_SPEC_SESSION: i64 = -3;
const KEY_SPEC_USER: i64 = -4;

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmless("keyring-find", "find the user's keyrings", |_| {
        let find = |ring: i64| call!(SYS_keyctl, libc::KEYCTL_GET_KEYRING_ID, ring, 0, 0, 0);
        find(KEY_SPEC_SESSION).or_else(|_| find(KEY_SPEC_USER)).map_err(named("keyctl"))?;
        Ok("found one".to_owned())
    }),
    harmless("keyring-add", "put a key into a keyring", |_| {
        let (kind, name) = (c"user".as_ptr(), c"rath-escape".as_ptr());
        call!(SYS_add_key, kind, name, name, 4, KEY_SPEC_PROCESS).map_err(named("add_key"))?;
        Ok("put it there".to_owned())
    }),
    harmless("keyring-request", "ask the kernel to find a key", |_| {
        let (kind, name) = (c"user".as_ptr(), c"rath-escape".as_ptr());
        door("request_key", call!(libc::SYS_request_key, kind, name, 0, 0))
    }),
    harmless("load-bpf", "make a BPF map", |_| {
        let mut attributes = [0u32; 32];
        (attributes[0], attributes[1], attributes[2], attributes[3]) = (2, 4, 8, 1);
        call!(libc::SYS_bpf, 0, attributes.as_mut_ptr(), size_of_val(&attributes)).map_err(named("bpf"))?;
        Ok("made one".to_owned())
    }),
    harmless("watch-performance", "count events of the processor", |_| {
        let mut attributes = [0u64; 16];
        // A software clock (type 1, size 128) that excludes the kernel.
        (attributes[0], attributes[5]) = (1 | 128 << 32, 1 << 5 | 1 << 6);
        call!(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1i64, -1i64, 0).map_err(named("perf_event_open"))?;
        Ok("counts them".to_owned())
    }),
    harmless("handle-page-faults", "handle page faults by itself", |_| {
        let user_only = 1;
        call!(libc::SYS_userfaultfd, libc::O_CLOEXEC | user_only).map_err(named("userfaultfd"))?;
        Ok("handles them".to_owned())
    }),
    harmless("call-by-ring", "make system calls past the filter with io_uring", |_| {
        let mut parameters = [0u32; 30];
        call!(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()).map_err(named("io_uring_setup"))?;
        Ok("has a ring".to_owned())
    }),
    harmless("load-module", "load a kernel module", |_| {
        door("init_module", call!(libc::SYS_init_module, 0, 0, c"".as_ptr()))
    }),
    harmless("load-module-file", "load a kernel module from a file", |_| {
        door("finit_module", call!(libc::SYS_finit_module, -1i64, c"".as_ptr(), 0))
    }),
    harmless("unload-module", "unload a kernel module", |_| {
        door("delete_module", call!(libc::SYS_delete_module, c"rath-no-such-module".as_ptr(), 0))
    }),
    harmless("load-kernel", "load another kernel", |_| {
        door("kexec_load", call!(libc::SYS_kexec_load, 0, 0, 0, u64::MAX))
    }),
    harmless("read-kernel-log", "read the kernel's log", |_| {
        let mut bytes = [0u8; 4096];
        call!(libc::SYS_syslog, 3, bytes.as_mut_ptr(), bytes.len()).map_err(named("syslog"))?;
        Ok("read it".to_owned())
    }),
    harmless("reboot", "restart the machine", |_| door("reboot", call!(libc::SYS_reboot, 0, 0, 0, 0))),
    harmless("add-swap", "add memory from the disk", |_| {
        door("swapon", call!(libc::SYS_swapon, c"/rath/no/such/file".as_ptr(), 0))
    }),
    harmless("remove-swap", "take away memory from the disk", |_| {
        door("swapoff", call!(libc::SYS_swapoff, c"/rath/no/such/file".as_ptr()))
    }),
    harmless("rename-machine", "change the name of the machine", |_| {
        door("sethostname", call!(libc::SYS_sethostname, c"".as_ptr(), 1000))
    }),
    harmless("rename-domain", "change the name of the domain", |_| {
        door("setdomainname", call!(libc::SYS_setdomainname, c"".as_ptr(), 1000))
    }),
    harmful("set-clock", "set the clock", |_| {
        let mut now = [0i64; 2];
        call!(libc::SYS_clock_gettime, libc::CLOCK_REALTIME, now.as_mut_ptr())?;
        call!(libc::SYS_clock_settime, libc::CLOCK_REALTIME, now.as_ptr()).map_err(named("clock_settime"))?;
        Ok("set it".to_owned())
    }),
    harmful("set-time-of-day", "set the time of day", |_| {
        let mut now = [0i64; 2];
        call!(libc::SYS_gettimeofday, now.as_mut_ptr(), 0)?;
        call!(libc::SYS_settimeofday, now.as_ptr(), 0).map_err(named("settimeofday"))?;
        Ok("set it".to_owned())
    }),
    harmless("bend-clock", "make the clock go faster", |_| {
        let mut impossible = [0u64; 32];
        (impossible[0], impossible[11]) = (0x4000, 1);
        door("adjtimex", call!(libc::SYS_adjtimex, impossible.as_mut_ptr()))
    }),
    harmless("account-processes", "turn on process accounting", |_| {
        door("acct", call!(libc::SYS_acct, c"/rath/no/such/file".as_ptr()))
    }),
    harmful("change-quotas", "turn off the disk quotas", |_| {
        let directory = call!(libc::SYS_openat, libc::AT_FDCWD, c".".as_ptr(), libc::O_RDONLY)?;
        let off = (0x80_0003u64 << 8) & 0xffff_ffff;
        call!(libc::SYS_quotactl_fd, directory, off, 0, 0).map_err(named("quotactl_fd"))?;
        Ok("turned them off".to_owned())
    }),
    harmless("watch-all-files", "watch and stop every opening of a file", |_| {
        call!(libc::SYS_fanotify_init, 4, 0).map_err(named("fanotify_init"))?;
        Ok("watches them".to_owned())
    }),
    harmful("hang-up", "hang up the terminal", |_| {
        call!(libc::SYS_vhangup).map_err(named("vhangup"))?;
        Ok("hung up".to_owned())
    }),
    #[cfg(target_arch = "x86_64")]
    harmless("port-level", "talk to the machine's ports with iopl", |_| {
        call!(libc::SYS_iopl, 3).map_err(named("iopl"))?;
        Ok("may talk to all".to_owned())
    }),
    #[cfg(target_arch = "x86_64")]
    harmless("port-permission", "talk to the machine's ports with ioperm", |_| {
        call!(libc::SYS_ioperm, 0x80, 1, 1).map_err(named("ioperm"))?;
        Ok("may talk to one".to_owned())
    }),
];
