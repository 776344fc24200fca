//! Encodes the records of a commit into segments on several processors, while the writer still executes earlier
//! requests.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};

use rath_core::Record;
use rath_core::protocol::{Proposal, Propose};
use rath_core::store::{BatchPart, Error, Result};

use crate::pool::COMPRESSION_POOL;
use crate::segment::{Segment, cut};

/// The least number of segments for which the thread pool is used.
const MIN_SEGMENTS: usize = 8;

/// A session's part of a batch. `packing` is its segments, if their encoding was started in the pool.
pub(crate) struct Prepared {
    pub(crate) part: BatchPart,
    pub(crate) packing: Option<Packing>,
}

impl Prepared {
    pub(crate) fn new(part: BatchPart) -> Self {
        Self { packing: Packing::start(&part.records), part }
    }
}

impl Propose for Prepared {
    type Entry = Record;

    fn proposal(&self) -> Proposal<'_, Record> {
        self.part.proposal()
    }
}

/// Segments that the pool is encoding.
pub(crate) struct Packing {
    /// The finished segments with their indexes, in the order in which they are finished.
    done: Receiver<(usize, Segment)>,
    count: usize,
}

impl Packing {
    /// Starts to encode records; `None` if they are few.
    fn start(records: &[Record]) -> Option<Self> {
        let runs = cut(records);
        let count = runs.len();
        if count < MIN_SEGMENTS {
            return None;
        }
        let (send, done) = channel();
        for (at, run) in runs.into_iter().enumerate() {
            let (send, run) = (send.clone(), run.to_vec());
            // The send fails if the commit was abandoned.
            COMPRESSION_POOL.spawn(move || drop(send.send((at, Segment::of(&run)))))?;
        }
        Some(Self { done, count })
    }

    /// Calls `take` with each segment, in order.
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
            false => Err(Error::machine("encoding records", "a thread of the pool panicked")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use pollster::block_on;
    use rath_core::store::FIRST_FENCING_TOKEN;
    use rath_core::{Actor, InMemory, Session};

    use super::*;
    use crate::segment::pack;
    use rath_workspace::FILES;

    /// Notes that fill this many segments, each long enough to be compressed.
    fn records(segments: usize) -> Vec<Record> {
        let store = InMemory::new();
        let mut session = Session::create(&store, Actor::program("test"));
        for n in 0..segments * 64 {
            session.note(format!("{n} {}", "x".repeat(4096))).unwrap();
        }
        block_on(session.publish()).unwrap();
        block_on(async { session.view().await?.own_records().await }).unwrap()
    }

    fn prepared(records: &[Record]) -> Prepared {
        let session = records[0].session();
        Prepared::new(BatchPart {
            session,
            fence: FIRST_FENCING_TOKEN,
            keep_lease: false,
            records: records.to_vec(),
            snapshot: None,
        })
    }

    fn rows(segments: &[Segment]) -> Vec<(u64, u64, &[u8])> {
        segments.iter().map(|segment| (segment.first_seq, segment.count, segment.data.as_slice())).collect()
    }

    #[test]
    fn the_pool_encodes_long_batches_as_the_writer_would() {
        let records = records(2 * MIN_SEGMENTS);
        let packing = prepared(&records).packing.expect("the batch is long");
        let mut segments = Vec::new();
        let push = |segment| {
            segments.push(segment);
            Ok(())
        };
        packing.each(push).unwrap();
        assert!(segments.len() >= MIN_SEGMENTS);
        assert_eq!(rows(&segments), rows(&pack(&records)));
        assert!(prepared(&records[..64]).packing.is_none());
    }

    #[test]
    fn a_failing_write_stops_the_packing() {
        let packing = prepared(&records(2 * MIN_SEGMENTS)).packing.expect("the batch is long");
        let mut put = 0;
        let full = |_| {
            put += 1;
            if put < 3 { Ok(()) } else { Err(Error::machine("writing", "the disk is full")) }
        };
        assert!(packing.each(full).is_err());
        assert_eq!(put, 3);
    }

    /// Encoding must not need the threads for files: all of them may be waiting for the writer, which waits for the
    /// encoding.
    #[test]
    fn encoding_does_not_use_threads_that_wait_for_the_writer() {
        let records = records(2 * MIN_SEGMENTS);
        let threads = FILES.run(rayon::current_num_threads);
        let barrier = Barrier::new(threads + 1);
        let mut count = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| FILES.run(|| rayon::broadcast(|_| (barrier.wait(), barrier.wait()))));
            barrier.wait();
            let packing = prepared(&records).packing.expect("the batch is long");
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
