//! Memory and processes of a command, read from `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The total usage of a command's processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Bytes of memory, without mapped files.
    pub(super) memory: u64,
    /// Number of processes and threads.
    pub(super) processes: u64,
}

impl Usage {
    /// The total usage of these processes.
    pub(super) fn of(pids: impl Iterator<Item = i32>) -> Self {
        let all = pids.filter_map(usage_of);
        let (sum, shared) = all.fold((Self::default(), 0), |(sum, most), (usage, shared)| {
            let sum = Self { memory: sum.memory + usage.memory, processes: sum.processes + usage.processes };
            (sum, most.max(shared))
        });
        // Shared memory is counted once: the maximum over the processes.
        Self { memory: sum.memory + shared, ..sum }
    }
}

/// Bytes in memory files (`memfd_create`) that a process has open. They take memory even if they are not mapped.
pub(super) fn memfd_bytes(pids: impl Iterator<Item = i32>) -> u64 {
    let open = pids.flat_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten());
    let in_memory = open.filter(|file| fs::read_link(file.path()).is_ok_and(|name| is_memfd(&name)));
    let files = in_memory.filter_map(|file| fs::metadata(file.path()).ok());
    files.map(|meta| ((meta.dev(), meta.ino()), meta.blocks() * 512)).collect::<BTreeMap<_, _>>().into_values().sum()
}

fn is_memfd(name: &Path) -> bool {
    name.as_os_str().as_bytes().starts_with(b"/memfd:")
}

/// Available memory of the machine in bytes.
pub(super) fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// The usage of a process, and the bytes of its shared memory.
fn usage_of(pid: i32) -> Option<(Usage, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":"));
        line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok())
    };
    let kilobytes = |name| number(name).unwrap_or(0) << 10;
    let usage = Usage { memory: kilobytes("RssAnon"), processes: number("Threads").unwrap_or(1).max(1) };
    Some((usage, kilobytes("RssShmem")))
}

/// All processes in `/proc` except the first, which is the command init.
pub(super) fn namespace() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|pid| *pid != 1).collect()
}

/// The descendants of a process.
pub(super) fn descendants(pid: i32) -> Vec<i32> {
    let mut found = BTreeSet::new();
    let mut next = vec![pid];
    while let Some(pid) = next.pop() {
        next.extend(children(pid).into_iter().filter(|child| found.insert(*child)));
    }
    found.into_iter().collect()
}

/// The children of a process. The kernel lists them for each of its threads.
fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    lists
        .flat_map(|list| list.split_ascii_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<_>>())
        .collect()
}
