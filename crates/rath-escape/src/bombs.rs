//! Attempts to exhaust the machine's resources. Each ends by itself if no limit stops it.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::FromRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use libc::{SIGKILL, pid_t};

use crate::attempt::{Attempt, Tried, harmful, refused};
use crate::facts::Facts;
use crate::sys::{Death, any_of, call, child, kill, wait};

const CHUNK: usize = 16 << 20;

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmful("fork-bomb", "start processes without end", fork_bomb),
    harmful("thread-bomb", "start threads without end", thread_bomb),
    harmful("memory-bomb", "use memory without end", |facts| {
        let most = facts.number("memory")?;
        match wait(child(|| fill_memory(most))?)? {
            Death::Exit(0) => Ok(format!("used {} MiB", most >> 20)),
            Death::Exit(_) => Err(refused("there was no more")),
            Death::Signal { number, .. } => Err(refused(format!("it died of signal {number}"))),
        }
    }),
    harmful("memory-bomb-by-many", "use memory without end, in many processes", memory_bomb_by_many),
    harmful("memory-file-bomb", "use memory without end, in files that are in memory", |facts| {
        let in_memory = |_| {
            let file = call!(libc::SYS_memfd_create, c"bomb".as_ptr(), 0)?;
            Ok(unsafe { File::from_raw_fd(file as i32) })
        };
        fill_files(in_memory, facts.number("memory")?)
    }),
    harmful("tmp-bomb", "fill /tmp, /dev/shm and the like", |facts| {
        let most = facts.number("memory")?;
        any_of("directories", ["/tmp", "/dev/shm", "/var/tmp", "/run", "/dev", "/"], |directory| {
            let bomb = Path::new(directory).join("rath-bomb");
            fs::create_dir(&bomb)?;
            let filled = fill_files(|count| File::create(bomb.join(count.to_string())), most);
            let _ = fs::remove_dir_all(&bomb);
            filled.map(|what| format!("{what} in {directory}"))
        })
    }),
    harmful("disk-bomb", "fill the disk", disk_bomb),
    harmful("file-bomb", "make files without end", file_bomb),
    harmful("large-file", "make one file larger than any may be", |facts| {
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        let most = facts.number("file")?;
        let file = File::create("scratch/large-file")?;
        let written = file.write_all_at(b"x", most);
        let _ = fs::remove_file("scratch/large-file");
        written?;
        Ok(format!("made one of {} GiB", most >> 30))
    }),
    harmful("open-bomb", "open files without end", |facts| {
        let (most, mut open) = (facts.number("files")?, Vec::new());
        for count in 0..most {
            open.push(File::open("/dev/null").map_err(|error| refused(format!("after {count} files: {error}")))?);
        }
        Ok(format!("opened {most} files"))
    }),
];

fn fork_bomb(facts: &Facts) -> Tried {
    let (most, mut children, mut stopped) = (facts.number("forks")?, Vec::<pid_t>::new(), None);
    while (children.len() as u64) < most && stopped.is_none() {
        match child(wait_forever) {
            Ok(pid) => children.push(pid),
            Err(error) => stopped = Some(refused(format!("after {} processes: {error}", children.len()))),
        }
    }
    for pid in children {
        let _ = kill(pid.into(), SIGKILL);
        let _ = wait(pid);
    }
    stopped.map_or_else(|| Ok(format!("started {most} processes")), Err)
}

/// Waits until it is killed.
fn wait_forever() -> i32 {
    let _ = call!(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    unsafe {
        libc::alarm(60);
        libc::pause()
    }
}

fn thread_bomb(facts: &Facts) -> Tried {
    let most = facts.number("forks")?;
    for count in 0..most {
        let thread = std::thread::Builder::new().stack_size(16 << 10);
        let spawned = thread.spawn(|| std::thread::sleep(Duration::from_secs(60)));
        spawned.map_err(|error| refused(format!("after {count} threads: {error}")))?;
    }
    Ok(format!("started {most} threads"))
}

/// Uses memory up to `most` bytes. Returns 3 if an allocation fails.
fn fill_memory(most: u64) -> i32 {
    for _ in 0..most / CHUNK as u64 {
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let at = unsafe { libc::mmap(std::ptr::null_mut(), CHUNK, rights, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return 3;
        }
        unsafe { at.cast::<u8>().write_bytes(1, CHUNK) };
    }
    0
}

/// Each process keeps its memory until all are done or one is stopped.
fn memory_bomb_by_many(facts: &Facts) -> Tried {
    const MANY: usize = 16;
    let most = facts.number("memory")?;
    let (mut done, done_pipe) = io::pipe()?;
    let fill_and_hold = || match fill_memory(most / MANY as u64) {
        0 if (&done_pipe).write_all(b"x").is_ok() => wait_forever(),
        _ => 3,
    };
    let children = (0..MANY).map(|_| child(fill_and_hold)).collect::<io::Result<Vec<_>>>();
    drop(done_pipe);
    let children = children?;
    let watcher = std::thread::spawn(move || done.read_exact(&mut [0; MANY]).is_ok());
    let ended =
        || children.iter().find(|pid| call!(libc::SYS_wait4, **pid, 0, libc::WNOHANG, 0).is_ok_and(|ended| ended > 0));
    let mut stopped = None;
    while !watcher.is_finished() && stopped.is_none() {
        stopped = ended();
        std::thread::sleep(Duration::from_millis(5));
    }
    for pid in &children {
        let _ = kill((*pid).into(), SIGKILL);
    }
    match stopped {
        Some(_) => Err(refused("one of them was stopped")),
        None => Ok(format!("used {} MiB together", most >> 20)),
    }
}

/// Fills many small files and keeps them open.
fn fill_files(make: impl Fn(u64) -> io::Result<File>, most: u64) -> Tried {
    const CHUNKS: u64 = 4;
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let (bytes, mut files) = (vec![1; CHUNK], Vec::new());
    for count in 0..most / CHUNK as u64 {
        let stopped = |error| refused(format!("after {} MiB: {error}", (count * CHUNK as u64) >> 20));
        if count % CHUNKS == 0 {
            files.push(make(count).map_err(stopped)?);
        }
        files.last_mut().map_or(Ok(()), |file| file.write_all(&bytes)).map_err(stopped)?;
    }
    Ok(format!("wrote {} MiB", most >> 20))
}

fn disk_bomb(facts: &Facts) -> Tried {
    fs::create_dir_all("scratch/disk-bomb")?;
    let filled = fill_files(|count| File::create(format!("scratch/disk-bomb/{count}")), facts.number("disk")?);
    let _ = fs::remove_dir_all("scratch/disk-bomb");
    filled
}

fn file_bomb(facts: &Facts) -> Tried {
    let most = facts.number("names")?;
    fs::create_dir_all("scratch/file-bomb")?;
    let make_all = || {
        for count in 0..most {
            let file = CString::new(format!("scratch/file-bomb/{count}")).unwrap_or_default();
            let made = call!(libc::SYS_mknodat, libc::AT_FDCWD, file.as_ptr(), libc::S_IFREG | 0o600, 0);
            made.map_err(|error| refused(format!("after {count} files: {error}")))?;
        }
        Ok(format!("made {most} files"))
    };
    let made = make_all();
    let _ = fs::remove_dir_all("scratch/file-bomb");
    made
}
