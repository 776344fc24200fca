//! Attempts to keep a process running after the command has ended. The harness checks them by the file `heartbeat`,
//! which grows while one is running.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use crate::attempt::{Attempt, Tried, harmful, harmless, refused};
use crate::sys::{call, child};

/// Number of heartbeats before a process ends by itself.
const BEATS: usize = 3000;

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmless("endless-output", "write output forever", |_| {
        unsafe { libc::alarm(60) };
        while io::stdout().write_all(&[b'y'; 1 << 16]).is_ok() {}
        Err(refused("the reader has closed the pipe"))
    }),
    harmless("ignore-signals", "ignore the request to end", |_| {
        ignore_signals();
        beat();
        Ok("was left alone".to_owned())
    }),
    harmless("daemon", "become a daemon without parent, session, files or variables", |_| start(beat)),
    harmless("stubborn-daemon", "become a daemon that ignores all signals", |_| {
        start(|| {
            ignore_signals();
            beat();
        })
    }),
    harmless("deep-daemon", "become a daemon at the end of a long chain of processes", |_| start(|| deeper(100))),
    harmful("restless-daemon", "become a daemon that is another process every few milliseconds", |_| {
        start(|| respawn(BEATS / 4))
    }),
];

/// Starts a daemon without parent, session, group, open files and variables, and waits for its first heartbeat.
fn start(work: fn()) -> Tried {
    let before = beats();
    child(|| {
        let _ = call!(libc::SYS_setsid);
        let _ = child(|| {
            let _ = call!(libc::SYS_close_range, 0, u32::MAX, 0);
            unsafe { libc::clearenv() };
            work();
            0
        });
        0
    })?;
    for _ in 0..500 {
        if beats() > before {
            return Err(refused("it is up, for now"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(refused("it did not come up"))
}

fn ignore_signals() {
    for signal in 1..64 {
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

fn beats() -> u64 {
    Path::new("scratch/heartbeat").metadata().map_or(0, |file| file.len())
}

fn beat_once() {
    let file = File::options().append(true).create(true).open("scratch/heartbeat");
    let _ = file.and_then(|mut file| file.write_all(b"."));
    std::thread::sleep(Duration::from_millis(10));
}

fn beat() {
    (0..BEATS).for_each(|_| beat_once());
}

fn deeper(levels: usize) {
    if levels == 0 {
        return beat();
    }
    let _ = call!(libc::SYS_setsid);
    let _ = child(|| {
        deeper(levels - 1);
        0
    });
}

fn respawn(lives: usize) {
    beat_once();
    if lives > 0 {
        let _ = child(|| {
            respawn(lives - 1);
            0
        });
    }
}
