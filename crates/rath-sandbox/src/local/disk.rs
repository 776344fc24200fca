//! The disk quota of a sandbox.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::files::tree;

/// A limit for the total disk usage of directories.
///
/// Measuring large trees is slow. So the directories are measured when the free space of their file systems has shrunk
/// by what they may still use, and in addition at intervals, because other programs may free space at the same time.
pub(super) struct Quota {
    limit: u64,
    directories: Vec<PathBuf>,
    /// Free space and usage at the last measurement.
    free: u64,
    usage: u64,
    /// Time of the last check of the free space, time of the last measurement, and its duration.
    looked: Option<Instant>,
    measured: Option<Instant>,
    took: Duration,
}

impl Quota {
    /// Minimum interval between two checks of the free space.
    pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(100);

    /// Normal interval between two measurements while a command runs.
    const MEASURE_INTERVAL: Duration = Duration::from_secs(1);

    pub(super) fn begin(limit: u64, directories: Vec<PathBuf>) -> Self {
        let free = free(&directories);
        Self { limit, directories, free, usage: 0, looked: None, measured: None, took: Duration::ZERO }
    }

    /// The usage if it exceeds the limit. `None` if it does not, or if no measurement is due.
    pub(super) fn exceeded(&mut self, now: Instant) -> Option<u64> {
        let past = |time: Option<Instant>| time.map_or(Duration::MAX, |time| now.saturating_duration_since(time));
        if past(self.looked) < Self::LOOK_INTERVAL {
            return None;
        }
        self.looked = Some(now);
        let measured = past(Some(*self.measured.get_or_insert(now)));
        let free = free(&self.directories);
        let lost = self.free.saturating_sub(free);
        // Large trees are measured less often: measuring takes at most 1/20 of the time, or 1/4 near the limit.
        let is_due = measured >= Self::MEASURE_INTERVAL.max(self.took * 20);
        let is_near = lost + self.usage > self.limit && measured >= self.took * 4;
        if !is_due && !is_near {
            return None;
        }
        self.measured = Some(now);
        self.free = free;
        self.usage = self.directories.iter().map(|place| tree::disk_use(place)).sum();
        self.took = now.elapsed();
        (self.usage > self.limit).then_some(self.usage)
    }
}

/// Total free space of the file systems that contain the directories. A free inode counts like an empty file.
fn free(directories: &[PathBuf]) -> u64 {
    let device = |place: &Path| fs::metadata(place).ok().map(|meta| meta.dev());
    let systems: BTreeMap<_, _> = directories.iter().map(|place| (device(place), place)).collect();
    let free = |place: &PathBuf| {
        rustix::fs::statvfs(place).map_or(0, |stat| stat.f_bavail * stat.f_frsize + stat.f_ffree * tree::LEAST)
    };
    systems.into_values().map(free).sum()
}
