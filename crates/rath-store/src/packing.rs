//! Records on their way to the writer, laid out by several processors while it writes what came before.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};

use rath_core::Record;
use rath_core::protocol::{Offer, Offered};
use rath_core::store::{Error, Part, Result};

use crate::pool::SQUEEZERS;
use crate::segment::{Segment, cut};

/// As many segments are laid out before it is their turn.
const MANY: usize = 8;

/// A part of a batch, with what it is laid out as, where that was begun.
pub(crate) struct Prepared {
    pub(crate) part: Part,
    pub(crate) packing: Option<Packing>,
}

impl Prepared {
    pub(crate) fn new(part: Part) -> Self {
        Self { packing: Packing::begin(&part.records), part }
    }
}

impl Offered for Prepared {
    type Entry = Record;

    fn offer(&self) -> Offer<'_, Record> {
        self.part.offer()
    }
}

/// Segments that are being laid out.
pub(crate) struct Packing {
    /// Each with its place, as it is done.
    done: Receiver<(usize, Segment)>,
    count: usize,
}

impl Packing {
    /// Begins to lay records out, where they are many.
    fn begin(records: &[Record]) -> Option<Self> {
        let stretches = cut(records);
        let count = stretches.len();
        if count < MANY {
            return None;
        }
        let (send, done) = channel();
        for (at, stretch) in stretches.into_iter().enumerate() {
            let (send, stretch) = (send.clone(), stretch.to_vec());
            // Who does not want it any more is gone.
            SQUEEZERS.spawn(move || drop(send.send((at, Segment::of(&stretch)))))?;
        }
        Some(Self { done, count })
    }

    /// Hands over the segments, in order.
    pub(crate) fn each(self, mut take: impl FnMut(Segment) -> Result<()>) -> Result<()> {
        let (mut early, mut next) = (BTreeMap::new(), 0);
        for (at, segment) in self.done {
            early.insert(at, segment);
            while let Some(segment) = early.remove(&next) {
                take(segment)?;
                next += 1;
            }
        }
        match next == self.count {
            true => Ok(()),
            false => Err(Error::machine("laying out records", "a thread broke down")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use pollster::block_on;
    use rath_core::store::FIRST_FENCE;
    use rath_core::{Actor, Memory, Session};

    use super::*;
    use crate::segment::pack;
    use rath_workspace::FILES;

    /// As many notes as go into that many segments, each of which is long enough to be squeezed.
    fn records(segments: usize) -> Vec<Record> {
        let store = Memory::new();
        let mut session = Session::create(&store, Actor::program("test"));
        for n in 0..segments * 64 {
            session.note(format!("{n} {}", "x".repeat(4096))).unwrap();
        }
        block_on(session.publish()).unwrap();
        block_on(async { session.view().await?.own().await }).unwrap()
    }

    fn prepared(records: &[Record]) -> Prepared {
        let session = records[0].session();
        Prepared::new(Part { session, fence: FIRST_FENCE, hold: false, records: records.to_vec(), snapshot: None })
    }

    fn rows(segments: &[Segment]) -> Vec<(u64, u64, &[u8])> {
        segments.iter().map(|segment| (segment.first_seq, segment.count, segment.data.as_slice())).collect()
    }

    #[test]
    fn what_is_long_is_laid_out_ahead_and_as_the_writer_would() {
        let records = records(2 * MANY);
        let packing = prepared(&records).packing.expect("it is long");
        let mut segments = Vec::new();
        let push = |segment| {
            segments.push(segment);
            Ok(())
        };
        packing.each(push).unwrap();
        assert!(segments.len() >= MANY);
        assert_eq!(rows(&segments), rows(&pack(&records)));
        assert!(prepared(&records[..64]).packing.is_none());
    }

    #[test]
    fn what_cannot_be_put_ends_it() {
        let packing = prepared(&records(2 * MANY)).packing.expect("it is long");
        let mut put = 0;
        let full = |_| {
            put += 1;
            if put < 3 { Ok(()) } else { Err(Error::machine("writing", "the disk is full")) }
        };
        assert!(packing.each(full).is_err());
        assert_eq!(put, 3);
    }

    /// The writer waits for this while threads for files wait for the writer.
    #[test]
    fn nobody_who_waits_for_the_writer_is_waited_for() {
        let records = records(2 * MANY);
        let threads = FILES.run(rayon::current_num_threads);
        let barrier = Barrier::new(threads + 1);
        let mut count = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| FILES.run(|| rayon::broadcast(|_| (barrier.wait(), barrier.wait()))));
            barrier.wait();
            let packing = prepared(&records).packing.expect("it is long");
            let add = |segment: Segment| {
                count += segment.count;
                Ok(())
            };
            packing.each(add).unwrap();
            barrier.wait();
        });
        assert_eq!(count, records.len() as u64);
    }
}
