//! Something to write.

use futures_channel::oneshot;
use rath_core::store::{Change, Error, Fence, Holder, Post, Result};
use rath_core::{Record, SessionId};

use super::commit::Committer;
use super::ids;
use crate::packing::Prepared;
use crate::packs::Squeezed;

/// As many bytes are little.
const LITTLE: usize = 256 << 10;

type Reply<T> = oneshot::Sender<Result<T>>;

/// Something to write, and whom to tell.
pub(super) enum Job {
    Commit {
        parts: Vec<Prepared>,
        taken: Vec<String>,
        reply: Reply<()>,
    },
    Blobs {
        blobs: Vec<Squeezed>,
        reply: Reply<()>,
    },
    Lease {
        session: SessionId,
        reply: Reply<Fence>,
    },
    Release {
        session: SessionId,
        fence: Fence,
    },
    Take {
        session: SessionId,
        reply: Reply<Option<Holder>>,
    },
    Post {
        post: Box<Post>,
        reply: Reply<()>,
    },
    /// Brings the index of record ids up to date.
    CatchUpIds {
        reply: Reply<()>,
    },
}

impl Job {
    /// The session that it gives back.
    pub(super) fn gives_back(&self) -> Option<(SessionId, Fence)> {
        match self {
            Job::Release { session, fence } => Some((*session, *fence)),
            _ => None,
        }
    }

    /// Whether what it does must outlive a power cut. Leases die with their process anyway, and blobs last with the
    /// commit that names them: what they wrote to a pack is synced before the index knows of it.
    pub(super) fn must_last(&self) -> bool {
        !matches!(
            self,
            Job::Blobs { .. } | Job::Lease { .. } | Job::Release { .. } | Job::Take { .. } | Job::CatchUpIds { .. }
        )
    }

    /// Whether it brings records or blobs.
    pub(super) fn brings(&self) -> bool {
        matches!(self, Job::Commit { .. } | Job::Blobs { .. })
    }

    /// What others may wait for that it does.
    pub(super) fn makes(&self) -> Option<Change> {
        match self {
            Job::Commit { .. } => Some(Change::Commits),
            Job::Post { .. } => Some(Change::Posts),
            _ => None,
        }
    }

    /// The session whose records it brings, if it brings any.
    pub(super) fn writes(&self) -> Option<SessionId> {
        match self {
            Job::Commit { parts, .. } => parts.first().map(|prepared| prepared.part.session),
            _ => None,
        }
    }

    /// Whether it brings records or blobs, and little of them.
    pub(super) fn is_little(&self) -> bool {
        match self {
            Job::Commit { parts, .. } => {
                let records = parts.iter().flat_map(|prepared| &prepared.part.records);
                let brought = |record: &Record| record.blobs().iter().map(|blob| blob.bytes.len()).sum::<usize>();
                let snapshots = parts.iter().filter_map(|prepared| prepared.part.snapshot.as_ref()).map(Vec::len);
                records.map(|record| record.size() + brought(record)).chain(snapshots).sum::<usize>() <= LITTLE
            }
            Job::Blobs { blobs, .. } => blobs.iter().map(Squeezed::len).sum::<usize>() <= LITTLE,
            _ => false,
        }
    }

    /// Does it. The answer is given when the fate of the whole group is known.
    pub(super) fn work(self, committer: &mut Committer) -> (Option<Error>, Answer) {
        fn answer<T: Send + 'static>(reply: Reply<T>, done: Result<T>) -> (Option<Error>, Answer) {
            let failed = done.as_ref().err().map(again);
            let answer = move |commit_failed: Option<&Error>| {
                let done = match commit_failed {
                    Some(error) if done.is_ok() => Err(again(error)),
                    _ => done,
                };
                let _ = reply.send(done);
            };
            (failed, Box::new(answer))
        }
        match self {
            Job::Commit { parts, taken, reply } => answer(reply, committer.commit(parts, &taken)),
            Job::Blobs { blobs, reply } => answer(reply, committer.put_squeezed(&blobs)),
            Job::Lease { session, reply } => answer(reply, committer.lease(session)),
            Job::Release { session, fence } => {
                let failed = committer.release(session, fence).err();
                committer.kept.extend(failed.is_some().then_some((session, fence)));
                (failed, Box::new(|_| {}))
            }
            Job::Take { session, reply } => answer(reply, committer.take(session)),
            Job::Post { post, reply } => answer(reply, committer.post(&post)),
            Job::CatchUpIds { reply } => answer(reply, ids::catch_up(&committer.db)),
        }
    }

    /// Says that it was not done.
    pub(super) fn refuse(self, error: &Error) {
        match self {
            Job::Commit { reply, .. }
            | Job::Blobs { reply, .. }
            | Job::Post { reply, .. }
            | Job::CatchUpIds { reply } => {
                let _ = reply.send(Err(again(error)));
            }
            Job::Lease { reply, .. } => {
                let _ = reply.send(Err(again(error)));
            }
            Job::Take { reply, .. } => {
                let _ = reply.send(Err(again(error)));
            }
            Job::Release { .. } => {}
        }
    }
}

/// What is said to a job's sender after the commit.
pub(super) type Answer = Box<dyn FnOnce(Option<&Error>)>;

/// One failure, said to several.
fn again(error: &Error) -> Error {
    match error {
        Error::Machine { doing, trouble, cause } => Error::trouble(doing, *trouble, cause.to_string()),
        error => Error::machine("writing", error.to_string()),
    }
}
