//! Reads the trace of file operations that `rath-faults` recorded.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::disk::Disk;
use super::seeded_rng::SeededRng;

/// The file in the root to which the traced process writes a line for each acknowledgement.
const ACKNOWLEDGED: &str = "acknowledged";

/// One file operation.
#[derive(Clone, Debug)]
pub(super) struct TraceEvent {
    pub(super) inode: u64,
    pub(super) what: Operation,
}

/// The operations.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    Write { offset: u64, data: Range<usize> },
    Truncate { length: u64 },
    Sync { failed: bool },
    Create { parent: u64, name: String, directory: bool },
    Link { parent: u64, name: String },
    Unlink { parent: u64, name: String },
    Rename { from: u64, old: String, to: u64, new: String },
}

/// All file operations below a root directory that was empty at the start.
pub struct Trace {
    bytes: Vec<u8>,
    events: Vec<TraceEvent>,
    root: u64,
}

/// A simulated power cut.
pub struct Cut {
    /// The lines that were acknowledged before the power cut.
    pub acknowledged: Vec<String>,
    /// The number of events before the power cut.
    pub after: usize,
}

impl Trace {
    /// The file to which a traced process writes its acknowledgements.
    pub fn acknowledged(root: &Path) -> PathBuf {
        root.join(ACKNOWLEDGED)
    }

    /// Reads a trace.
    pub fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let mut events = Vec::new();
        let mut at = 0;
        // If the process was killed, the last event may be incomplete.
        while let Some((event, next)) = read_event(&bytes, at) {
            events.push(event);
            at = next;
        }
        // The root was empty, so the first event creates something in it.
        let root = match events.first().map(|event: &TraceEvent| &event.what) {
            Some(Operation::Create { parent, .. }) => *parent,
            first => panic!("the trace {} starts with {first:?}", path.display()),
        };
        Self { bytes, events, root }
    }

    /// The number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Writes a possible content of the disk after a power cut to the empty directory `to`. The seed determines the
    /// time of the power cut, and which unsynced data is present.
    pub fn image(&self, seed: u64, to: &Path) -> Cut {
        let mut rng = SeededRng::new(seed);
        let after = 1 + rng.below(self.events.len() as u64) as usize;
        let mut disk = Disk::new(self.root);
        let mut lines = Vec::new();
        let mut acknowledged = None;
        for event in &self.events[..after] {
            match &event.what {
                Operation::Create { name, .. } if name == ACKNOWLEDGED => acknowledged = Some(event.inode),
                Operation::Write { data, .. } if acknowledged == Some(event.inode) => {
                    lines.extend_from_slice(&self.bytes[data.clone()]);
                }
                _ if acknowledged == Some(event.inode) => {}
                _ => disk.apply(event, &self.bytes),
            }
        }
        disk.write(&mut rng, to);
        let lines = lines.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
        let acknowledged = lines.map(|line| String::from_utf8_lossy(line).trim_end().to_owned()).collect();
        Cut { acknowledged, after }
    }
}

fn read_event(bytes: &[u8], at: usize) -> Option<(TraceEvent, usize)> {
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
        1 => Operation::Write { offset: a, data: data_at..end },
        2 => Operation::Truncate { length: a },
        3 => Operation::Sync { failed: a == 1 },
        4 => Operation::Create { parent: a, name, directory: b == 1 },
        5 => Operation::Link { parent: a, name },
        6 => Operation::Unlink { parent: a, name },
        7 => {
            let (old, new) = name.split_once('/')?;
            Operation::Rename { from: a, old: old.into(), to: b, new: new.into() }
        }
        _ => panic!("unknown event {code} at byte {at} of the trace"),
    };
    Some((TraceEvent { inode, what }, end))
}
