//! Attempts to open kernel settings for writing. They are not written.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::attempt::{Attempt, Tried, harmful, harmless};
use crate::sys::{any_of, named};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmless("core-pattern", "open /proc/sys/kernel/core_pattern for writing", |_| {
        open(Path::new("/proc/sys/kernel/core_pattern"))
    }),
    harmless("module-loader", "open /proc/sys/kernel/modprobe for writing", |_| {
        open(Path::new("/proc/sys/kernel/modprobe"))
    }),
    harmless("system-request", "open /proc/sysrq-trigger for writing", |_| open(Path::new("/proc/sysrq-trigger"))),
    harmless("program-formats", "register a program format", |_| open(Path::new("/proc/sys/fs/binfmt_misc/register"))),
    harmful("any-setting", "open any setting in /proc/sys for writing", |_| {
        any_of("settings", files_below("/proc/sys"), |path| open(&path))
    }),
    harmful("any-proc-file", "open any other file of /proc for writing", |_| {
        let here = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
        // All users may open the files of `pressure` for writing, to register a trigger.
        let known = ["self", "thread-self", "sys", "pressure"];
        let own = |path: &PathBuf| known.iter().any(|name| path.ends_with(name));
        let process =
            |path: &PathBuf| path.to_str().is_some_and(|path| path.ends_with(|end: char| end.is_ascii_digit()));
        let others = here.filter(|path| !own(path) && !process(path));
        let files = others.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] });
        any_of("files", files, |path| open(&path))
    }),
    harmful("any-device-setting", "open any file of /sys for writing", |_| {
        let safe = |path: &PathBuf| !path.starts_with("/sys/kernel/debug") && !path.starts_with("/sys/kernel/tracing");
        any_of("files", files_below("/sys").into_iter().filter(safe), |path| open(&path))
    }),
    harmful("release-agent", "have the kernel run a program when a control group ends", |_| {
        let files = files_below("/sys/fs/cgroup").into_iter();
        any_of("files", files.filter(|path| path.ends_with("release_agent")), |path| open(&path))
    }),
    harmful("leave-control-group", "leave the control group, and with it the limits", |_| {
        let files = files_below("/sys/fs/cgroup").into_iter();
        let doors = ["cgroup.procs", "tasks", "memory.max", "pids.max", "cgroup.kill", "memory.limit_in_bytes"];
        any_of("files", files.filter(|path| doors.iter().any(|door| path.ends_with(door))), |path| open(&path))
    }),
    harmless("uevent-helper", "have the kernel run a program for new devices", |_| {
        open(Path::new("/sys/kernel/uevent_helper"))
    }),
    harmless("debug-files", "look into the kernel's debug files", |_| {
        any_of("directories", ["/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security"], |path| {
            let mut names = fs::read_dir(path).map_err(named(path))?;
            match names.next() {
                Some(_) => Ok(format!("listed {path}")),
                None => Err(crate::attempt::refused(format!("{path} is empty here"))),
            }
        })
    }),
];

fn open(path: &Path) -> Tried {
    let file = File::options().write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path);
    file.map_err(named(&path.display().to_string()))?;
    Ok(format!("may write to {}", path.display()))
}

fn files_below(directory: impl AsRef<Path>) -> Vec<PathBuf> {
    let (mut open, mut files) = (vec![directory.as_ref().to_owned()], Vec::new());
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(entry.path()),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files
}
