//! What a process did to its files, as `rath-faults` wrote it down.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::chance::Chance;
use super::disk::Disk;

/// The file in the root whose lines say what was acknowledged.
const ACKNOWLEDGED: &str = "acknowledged";

/// One change, or sync.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) inode: u64,
    pub(super) what: What,
}

/// What happened.
#[derive(Clone, Debug)]
pub(super) enum What {
    Write { offset: u64, data: Range<usize> },
    Truncate { length: u64 },
    Sync { failed: bool },
    Create { parent: u64, name: String, directory: bool },
    Link { parent: u64, name: String },
    Unlink { parent: u64, name: String },
    Rename { from: u64, old: String, to: u64, new: String },
}

/// All that happened below a root that was empty when it began.
pub struct Trace {
    bytes: Vec<u8>,
    events: Vec<Event>,
    root: u64,
}

/// A power cut.
pub struct Cut {
    /// What was acknowledged before it, a line each.
    pub acknowledged: Vec<String>,
    /// After how many events it came.
    pub after: usize,
}

impl Trace {
    /// Where a traced process writes what it acknowledges.
    pub fn acknowledged(root: &Path) -> PathBuf {
        root.join(ACKNOWLEDGED)
    }

    /// Reads what was written down.
    pub fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let mut events = Vec::new();
        let mut at = 0;
        // A process that was killed may have left a part of an event.
        while let Some((event, next)) = read_event(&bytes, at) {
            events.push(event);
            at = next;
        }
        // Where there was nothing, the first thing is made in the root.
        let root = match events.first().map(|event: &Event| &event.what) {
            Some(What::Create { parent, .. }) => *parent,
            first => panic!("the trace of {} begins with {first:?}", path.display()),
        };
        Self { bytes, events, root }
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Builds, in the empty directory `to`, what the disk may hold after a power cut. The seed says when, and what of
    /// that which nobody synced.
    pub fn image(&self, seed: u64, to: &Path) -> Cut {
        let mut chance = Chance::new(seed);
        let after = 1 + chance.below(self.events.len() as u64) as usize;
        let mut disk = Disk::new(self.root);
        let mut said = Vec::new();
        let mut acknowledged = None;
        for event in &self.events[..after] {
            match &event.what {
                What::Create { name, .. } if name == ACKNOWLEDGED => acknowledged = Some(event.inode),
                What::Write { data, .. } if acknowledged == Some(event.inode) => {
                    said.extend_from_slice(&self.bytes[data.clone()]);
                }
                _ if acknowledged == Some(event.inode) => {}
                _ => disk.apply(event, &self.bytes),
            }
        }
        disk.write(&mut chance, to);
        let lines = said.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
        let acknowledged = lines.map(|line| String::from_utf8_lossy(line).trim_end().to_owned()).collect();
        Cut { acknowledged, after }
    }
}

fn read_event(bytes: &[u8], at: usize) -> Option<(Event, usize)> {
    let number = |n: usize| {
        let number = bytes.get(at + n * 8..at + n * 8 + 8)?;
        Some(u64::from_le_bytes(number.try_into().ok()?))
    };
    let (code, inode, a, b) = (number(0)?, number(1)?, number(2)?, number(3)?);
    let name_at = at + 48;
    let data_at = name_at + number(4)? as usize;
    let end = data_at + number(5)? as usize;
    bytes.get(..end)?;
    let name = String::from_utf8_lossy(&bytes[name_at..data_at]).into_owned();
    let what = match code {
        1 => What::Write { offset: a, data: data_at..end },
        2 => What::Truncate { length: a },
        3 => What::Sync { failed: a == 1 },
        4 => What::Create { parent: a, name, directory: b == 1 },
        5 => What::Link { parent: a, name },
        6 => What::Unlink { parent: a, name },
        7 => {
            let (old, new) = name.split_once('/')?;
            What::Rename { from: a, old: old.into(), to: b, new: new.into() }
        }
        _ => panic!("event {code} at byte {at} of the trace is none"),
    };
    Some((Event { inode, what }, end))
}
