//! How much a sandbox's directories take on disk, looked at no more often than needed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::files::tree;

/// Holds directories to a limit. They are measured when their file systems lost as much space as they may still take,
/// and now and then besides: whoever frees space at the same time must not hide it.
pub(super) struct Quota {
    limit: u64,
    places: Vec<PathBuf>,
    /// Free space when they were last measured, and what they took.
    free: u64,
    taken: u64,
    /// When it was last looked at, when it was last measured, and how long that took.
    looked: Option<Instant>,
    measured: Option<Instant>,
    took: Duration,
}

impl Quota {
    /// How often the free space is looked at.
    pub(super) const LOOK: Duration = Duration::from_millis(100);

    /// How often the directories are measured at least, while a command runs.
    const MEASURE: Duration = Duration::from_secs(1);

    pub(super) fn begin(limit: u64, places: Vec<PathBuf>) -> Self {
        let free = free(&places);
        Self { limit, places, free, taken: 0, looked: None, measured: None, took: Duration::ZERO }
    }

    /// What they take, when that is too much.
    pub(super) fn exceeded(&mut self, now: Instant) -> Option<u64> {
        let past = |time: Option<Instant>| time.map_or(Duration::MAX, |time| now.saturating_duration_since(time));
        if past(self.looked) < Self::LOOK {
            return None;
        }
        self.looked = Some(now);
        let measured = past(Some(*self.measured.get_or_insert(now)));
        let free = free(&self.places);
        let lost = self.free.saturating_sub(free);
        // Large trees are measured less often: no more than a part of the time goes into it.
        let is_due = measured >= Self::MEASURE.max(self.took * 20);
        let is_near = lost + self.taken > self.limit && measured >= self.took * 4;
        if !is_due && !is_near {
            return None;
        }
        self.measured = Some(now);
        self.free = free;
        self.taken = self.places.iter().map(|place| tree::disk_use(place)).sum();
        self.took = now.elapsed();
        (self.taken > self.limit).then_some(self.taken)
    }
}

/// Of all file systems that they are in.
fn free(places: &[PathBuf]) -> u64 {
    let device = |place: &Path| fs::metadata(place).ok().map(|meta| meta.dev());
    let systems: BTreeMap<_, _> = places.iter().map(|place| (device(place), place)).collect();
    let free = |place: &PathBuf| {
        rustix::fs::statvfs(place).map_or(0, |stat| stat.f_bavail * stat.f_frsize + stat.f_ffree * tree::LEAST)
    };
    systems.into_values().map(free).sum()
}
