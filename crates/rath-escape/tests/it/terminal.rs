//! A controlling terminal for the suite, for attempts to inject input into it.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::AsRawFd as _;

/// Makes a new terminal the controlling terminal and standard input of this process. The terminal stays open until the
/// process ends, because closing it would send SIGHUP.
pub(crate) fn open_controlling_terminal() {
    unsafe {
        libc::setsid();
        let outer = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
        assert!(outer >= 0 && libc::grantpt(outer) == 0 && libc::unlockpt(outer) == 0);
        let mut name = [0; 64];
        assert_eq!(libc::ptsname_r(outer, name.as_mut_ptr(), name.len()), 0);
        let name = CStr::from_ptr(name.as_ptr()).to_str().unwrap();
        let inner = File::options().read(true).write(true).open(name).unwrap();
        libc::ioctl(inner.as_raw_fd(), libc::TIOCSCTTY, 0);
        libc::dup2(inner.as_raw_fd(), 0);
    }
}
