//! Attempts to use shared memory and message queues of the host.

use std::ffi::CString;

use crate::attempt::{Attempt, Tried, harmless, refused};
use crate::facts::{Facts, MARK};
use crate::secrets::{holds, read_planted};
use crate::sys::{call, named};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmless("shared-memory", "read shared memory of the outside", shared_memory),
    harmless("shared-memory-file", "read a planted file in /dev/shm", |facts| {
        read_planted(&facts.path("shared_file")?)
    }),
    harmless("message-queue", "open a message queue of the outside", |facts| {
        let name = CString::new(facts.text("queue")?).unwrap_or_default();
        call!(libc::SYS_mq_open, name.as_ptr(), libc::O_RDONLY | libc::O_NONBLOCK, 0, 0).map_err(named("mq_open"))?;
        Ok("opened it".to_owned())
    }),
    harmless("shared-tmp", "read a planted file in /tmp", |facts| read_planted(&facts.path("shared_tmp")?)),
];

fn shared_memory(facts: &Facts) -> Tried {
    let id = call!(libc::SYS_shmget, facts.number("shared_key")?, 0, 0).map_err(named("shmget"))?;
    let at = call!(libc::SYS_shmat, id, 0, libc::SHM_RDONLY).map_err(named("shmat"))?;
    let bytes = unsafe { std::slice::from_raw_parts(at as *const u8, 4096) };
    if holds(bytes, MARK) { Ok("read it".to_owned()) } else { Err(refused("it is another one here")) }
}
