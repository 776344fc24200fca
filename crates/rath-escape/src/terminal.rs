//! Attempts to use the host's terminal.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;

use libc::{SYS_ioctl, TIOCLINUX, TIOCSTI};

use crate::attempt::{Attempt, Tried, harmful, harmless, refused};
use crate::sys::{Death, any_of, call, child, named, wait};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmless("type-for-user", "type into the host's terminal", |_| type_with(TIOCSTI)),
    harmless("type-past-filter", "type into the host's terminal with a request that a filter may not know", |_| {
        type_with(TIOCSTI | 1 << 32)
    }),
    harmless("paste-for-user", "paste into the host's console", |_| {
        let paste = [3u8];
        on_terminals(|terminal| call!(SYS_ioctl, terminal, TIOCLINUX, paste.as_ptr()))
    }),
    harmless("own-terminal", "open the host's terminal as its own", |_| {
        File::options().read(true).write(true).open("/dev/tty").map_err(named("/dev/tty"))?;
        Ok("opened it".to_owned())
    }),
    harmless("take-terminal", "take the terminal from the host", |_| {
        let take = |terminal| call!(SYS_ioctl, terminal, libc::TIOCSCTTY, 1).is_ok();
        let taken = wait(child(|| {
            let _ = call!(libc::SYS_setsid);
            i32::from((0..3).any(take))
        })?)?;
        match taken {
            Death::Exit(1) => Ok("took it".to_owned()),
            _ => Err(refused("it stays with the host")),
        }
    }),
    harmful("other-terminals", "open other terminals", |_| {
        let names = std::fs::read_dir("/dev/pts")?.flatten().map(|entry| entry.path());
        any_of("terminals", names.filter(|path| !path.ends_with("ptmx")), |path| {
            File::options().write(true).custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK).open(&path)?;
            Ok(format!("opened {}", path.display()))
        })
    }),
];

fn type_with(request: u64) -> Tried {
    on_terminals(|terminal| call!(SYS_ioctl, terminal, request, c"#".as_ptr()))
}

fn on_terminals(ask: impl Fn(i32) -> std::io::Result<i64>) -> Tried {
    let own = File::open("/dev/tty").ok();
    let numbers = [0, 1, 2].into_iter().chain(own.as_ref().map(|file| file.as_raw_fd()));
    any_of("terminals", numbers, |number| match ask(number) {
        Ok(_) => Ok(format!("did it on {number}")),
        Err(error) => Err(refused(format!("on {number}: {error}"))),
    })
}
