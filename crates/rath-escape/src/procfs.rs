//! Attempts to get information about the host from `/proc`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::attempt::{Attempt, Failed, Tried, harmful, harmless, refused};
use crate::facts::{Facts, OUTSIDER_MARK};
use crate::secrets::{holds, read_planted};
use crate::sys::{any_of, c_path, call, parent};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmless("see-outsiders", "find a process of the outside in /proc", see_outsiders),
    harmful("root-of-first", "read a planted file through /proc/1/root", |facts| through("/proc/1/root", facts)),
    harmless("root-of-any", "read a planted file through any /proc/*/root", |facts| {
        any_of("roots", processes(facts)?, |pid| through(&format!("/proc/{pid}/root"), facts))
    }),
    harmless("directory-of-any", "read a planted file through any /proc/*/cwd", |facts| {
        any_of("directories", processes(facts)?, |pid| read_planted(Path::new(&format!("/proc/{pid}/cwd/secret"))))
    }),
    harmless("files-of-any", "read a planted file through any /proc/*/fd", |facts| {
        any_of("open files", open_files(facts)?, |path| match fs::metadata(&path)?.is_file() {
            true => read_planted(&path),
            false => Err(refused(format!("{} is not a file", path.display()))),
        })
    }),
    harmless("up-from-directory", "read a planted file through /proc/self/cwd/../..", |facts| {
        through(&format!("/proc/self/cwd{}", "/..".repeat(40)), facts)
    }),
    harmless("up-from-root", "read a planted file through /proc/self/root/../..", |facts| {
        through(&format!("/proc/self/root{}", "/..".repeat(40)), facts)
    }),
    harmless("root-of-thread", "read a planted file through /proc/thread-self/root", |facts| {
        through("/proc/thread-self/root", facts)
    }),
    harmless("memory-of-outsider", "open the memory of a process outside", |facts| memory(outsider(facts)?)),
    harmless("memory-of-parent", "open the memory of the process that started it", |_| memory(parent()?.into())),
    harmless("program-of-parent", "open the parent's program for writing through /proc", |_| {
        program(&format!("/proc/{}/exe", parent()?))
    }),
    harmful("program-of-first", "open the first process's program for writing through /proc", |_| {
        if std::process::id() == 1 {
            return Err(refused("this is the first process here"));
        }
        program("/proc/1/exe")
    }),
    harmless("connections-of-host", "find the host's listeners in /proc/net", connections),
    harmful("kernel-memory", "open the kernel's memory and messages in /proc", |_| {
        let names = ["kcore", "kmsg", "vmcore", "kpageflags", "kpagecount", "kpagecgroup"];
        any_of("kernel files", names, |name| {
            let path = format!("/proc/{name}");
            let mut byte = [0];
            match name {
                "kmsg" => drop(File::open(&path)?),
                _ => io::Read::read_exact(&mut File::open(&path)?, &mut byte)?,
            }
            Ok(format!("opened {path}"))
        })
    }),
];

/// The visible processes. Without a sandbox, only those that the harness allows.
pub(crate) fn processes(facts: &Facts) -> Result<Vec<u32>, Failed> {
    if let Ok(allowed) = facts.text("look_at") {
        return Ok(allowed.split(',').filter_map(|pid| pid.parse().ok()).collect());
    }
    let names = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.parse().ok()).collect())
}

/// The process that the harness runs outside. `None` if its id belongs to another process here.
pub(crate) fn outsider(facts: &Facts) -> Result<i64, Failed> {
    let pid = facts.number("pid")?;
    match fs::read(format!("/proc/{pid}/cmdline")) {
        Ok(line) if !line.is_empty() && !holds(&line, OUTSIDER_MARK) => {
            Err(refused(format!("process {pid} is another one here")))
        }
        _ => Ok(pid as i64),
    }
}

fn see_outsiders(facts: &Facts) -> Tried {
    any_of("processes", processes(facts)?, |pid| {
        match holds(&fs::read(format!("/proc/{pid}/cmdline"))?, OUTSIDER_MARK) {
            true => Ok(format!("process {pid} is of the outside")),
            false => Err(refused(format!("process {pid} is not"))),
        }
    })
}

fn through(way: &str, facts: &Facts) -> Tried {
    // If the secret can be read by its own path, this attempt proves nothing: another attempt tests that.
    read_planted(Path::new(&format!("{way}{}", facts.text("secret")?)))
}

fn open_files(facts: &Facts) -> Result<Vec<PathBuf>, Failed> {
    let directories = processes(facts)?.into_iter().filter(|pid| *pid != std::process::id());
    let files = directories.filter_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).ok());
    Ok(files.flat_map(|files| files.flatten().map(|file| file.path())).collect())
}

fn memory(pid: i64) -> Tried {
    File::open(format!("/proc/{pid}/mem"))?;
    Ok(format!("opened the memory of process {pid}"))
}

/// Opening a running program for writing fails with ETXTBSY before permissions are checked, so permissions are checked
/// separately.
fn program(path: &str) -> Tried {
    let opened = File::options().write(true).open(path);
    let writable = c_path(path);
    match opened {
        Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) => {
            call!(libc::SYS_faccessat, libc::AT_FDCWD, writable.as_ptr(), libc::W_OK)?;
        }
        other => drop(other?),
    }
    Ok(format!("may write to {path}"))
}

fn connections(facts: &Facts) -> Tried {
    let port = format!(":{:04X} ", facts.number("port")?);
    let name = format!("@{}", facts.text("abstract")?);
    let looked_for = [("/proc/net/tcp", port), ("/proc/net/unix", name)];
    any_of("lists", looked_for, |(path, text)| match holds(&fs::read(path)?, &text) {
        true => Ok(format!("found {} in {path}", text.trim())),
        false => Err(refused(format!("{path} has not {}", text.trim()))),
    })
}
