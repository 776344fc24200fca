//! How much a command takes, read from `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// What the processes of a PID namespace, or of a tree, take together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Bytes of memory that are not a file's.
    pub(super) memory: u64,
    /// Processes and threads.
    pub(super) processes: u64,
}

impl Taken {
    /// Of these processes.
    pub(super) fn by(pids: impl Iterator<Item = i32>) -> Self {
        let all = pids.filter_map(taken_by);
        let (sum, shared) = all.fold((Self::default(), 0), |(sum, most), (taken, shared)| {
            let sum = Self { memory: sum.memory + taken.memory, processes: sum.processes + taken.processes };
            (sum, most.max(shared))
        });
        // What is shared is counted once: that of whoever has most of it.
        Self { memory: sum.memory + shared, ..sum }
    }
}

/// Bytes of files that are in memory only and that some process has open: nobody need have mapped them.
pub(super) fn held_in_files(pids: impl Iterator<Item = i32>) -> u64 {
    let open = pids.flat_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten());
    let in_memory = open.filter(|file| fs::read_link(file.path()).is_ok_and(|name| is_memfd(&name)));
    let files = in_memory.filter_map(|file| fs::metadata(file.path()).ok());
    files.map(|meta| ((meta.dev(), meta.ino()), meta.blocks() * 512)).collect::<BTreeMap<_, _>>().into_values().sum()
}

fn is_memfd(name: &Path) -> bool {
    name.as_os_str().as_bytes().starts_with(b"/memfd:")
}

/// Bytes that the machine could still give.
pub(super) fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// What a process takes: memory of its own, its threads; and memory that it may share.
fn taken_by(pid: i32) -> Option<(Taken, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":"));
        line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok())
    };
    let kilobytes = |name| number(name).unwrap_or(0) << 10;
    let taken = Taken { memory: kilobytes("RssAnon"), processes: number("Threads").unwrap_or(1).max(1) };
    Some((taken, kilobytes("RssShmem")))
}

/// Everything in `/proc` but its first process, the keeper.
pub(super) fn namespace() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|pid| *pid != 1).collect()
}

/// The processes below one.
pub(super) fn descendants(pid: i32) -> Vec<i32> {
    let mut found = BTreeSet::new();
    let mut next = vec![pid];
    while let Some(pid) = next.pop() {
        next.extend(children(pid).into_iter().filter(|child| found.insert(*child)));
    }
    found.into_iter().collect()
}

/// The children of a process: each is its parent thread's.
fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    lists
        .flat_map(|list| list.split_ascii_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<_>>())
        .collect()
}
