//! Requests to the writer of a store.

use futures_channel::oneshot;
use rath_core::store::{Error, FencingToken, Holder, Post, Result, WatchTopic};
use rath_core::{Record, SessionId};

use super::commit::Committer;
use super::ids;
use crate::packing::Prepared;
use crate::packs::CompressedBlob;

/// The most bytes of a small request.
const SMALL: usize = 256 << 10;

type ReplySender<T> = oneshot::Sender<Result<T>>;

/// A request to the writer, with the channel for the reply.
pub(super) enum WriteRequest {
    Commit {
        parts: Vec<Prepared>,
        consumed: Vec<String>,
        reply: ReplySender<()>,
    },
    Blobs {
        blobs: Vec<CompressedBlob>,
        reply: ReplySender<()>,
    },
    Lease {
        session: SessionId,
        reply: ReplySender<FencingToken>,
    },
    Release {
        session: SessionId,
        fence: FencingToken,
    },
    Revoke {
        session: SessionId,
        reply: ReplySender<Option<Holder>>,
    },
    Post {
        post: Box<Post>,
        reply: ReplySender<()>,
    },
    /// Updates the index of record ids.
    CatchUpIds {
        reply: ReplySender<()>,
    },
}

impl WriteRequest {
    /// The lease that this request releases.
    pub(super) fn released_lease(&self) -> Option<(SessionId, FencingToken)> {
        match self {
            WriteRequest::Release { session, fence } => Some((*session, *fence)),
            _ => None,
        }
    }

    /// Whether its effect must survive a power cut. Leases end with their process anyway. Blobs become durable with the
    /// commit that refers to them; what was appended to a pack is synced before the commit that indexes it.
    pub(super) fn needs_fsync(&self) -> bool {
        !matches!(
            self,
            WriteRequest::Blobs { .. }
                | WriteRequest::Lease { .. }
                | WriteRequest::Release { .. }
                | WriteRequest::Revoke { .. }
                | WriteRequest::CatchUpIds { .. }
        )
    }

    /// Whether it stores records or blobs.
    pub(super) fn has_data(&self) -> bool {
        matches!(self, WriteRequest::Commit { .. } | WriteRequest::Blobs { .. })
    }

    /// The watch topic that it notifies.
    pub(super) fn topic(&self) -> Option<WatchTopic> {
        match self {
            WriteRequest::Commit { .. } => Some(WatchTopic::Commits),
            WriteRequest::Post { .. } => Some(WatchTopic::Posts),
            _ => None,
        }
    }

    /// The first session whose records it stores.
    pub(super) fn written_session(&self) -> Option<SessionId> {
        match self {
            WriteRequest::Commit { parts, .. } => parts.first().map(|prepared| prepared.part.session),
            _ => None,
        }
    }

    /// Whether it stores records or blobs, of at most [`SMALL`] bytes.
    pub(super) fn is_small(&self) -> bool {
        match self {
            WriteRequest::Commit { parts, .. } => {
                let records = parts.iter().flat_map(|prepared| &prepared.part.records);
                let blob_bytes = |record: &Record| record.blobs().iter().map(|blob| blob.bytes.len()).sum::<usize>();
                let snapshots = parts.iter().filter_map(|prepared| prepared.part.snapshot.as_ref()).map(Vec::len);
                records.map(|record| record.size() + blob_bytes(record)).chain(snapshots).sum::<usize>() <= SMALL
            }
            WriteRequest::Blobs { blobs, .. } => blobs.iter().map(CompressedBlob::len).sum::<usize>() <= SMALL,
            _ => false,
        }
    }

    /// Executes the request in the open transaction. Returns its error and its reply, to be sent when the transaction
    /// has ended.
    pub(super) fn execute(self, committer: &mut Committer) -> (Option<Error>, Reply) {
        fn reply_later<T: Send + 'static>(reply: ReplySender<T>, done: Result<T>) -> (Option<Error>, Reply) {
            let failed = done.as_ref().err().map(clone_error);
            let reply_later = move |commit_failed: Option<&Error>| {
                let done = match commit_failed {
                    Some(error) if done.is_ok() => Err(clone_error(error)),
                    _ => done,
                };
                let _ = reply.send(done);
            };
            (failed, Box::new(reply_later))
        }
        match self {
            WriteRequest::Commit { parts, consumed, reply } => reply_later(reply, committer.commit(parts, &consumed)),
            WriteRequest::Blobs { blobs, reply } => reply_later(reply, committer.put_compressed(&blobs)),
            WriteRequest::Lease { session, reply } => reply_later(reply, committer.lease(session)),
            WriteRequest::Release { session, fence } => {
                let failed = committer.release(session, fence).err();
                committer.unreleased.extend(failed.is_some().then_some((session, fence)));
                (failed, Box::new(|_| {}))
            }
            WriteRequest::Revoke { session, reply } => reply_later(reply, committer.revoke(session)),
            WriteRequest::Post { post, reply } => reply_later(reply, committer.post(&post)),
            WriteRequest::CatchUpIds { reply } => reply_later(reply, ids::catch_up(&committer.db)),
        }
    }

    /// Replies that the request was not executed.
    pub(super) fn reject(self, error: &Error) {
        match self {
            WriteRequest::Commit { reply, .. }
            | WriteRequest::Blobs { reply, .. }
            | WriteRequest::Post { reply, .. }
            | WriteRequest::CatchUpIds { reply } => {
                let _ = reply.send(Err(clone_error(error)));
            }
            WriteRequest::Lease { reply, .. } => {
                let _ = reply.send(Err(clone_error(error)));
            }
            WriteRequest::Revoke { reply, .. } => {
                let _ = reply.send(Err(clone_error(error)));
            }
            WriteRequest::Release { .. } => {}
        }
    }
}

/// Sends the reply of a request. The argument is the error of the commit, if it failed.
pub(super) type Reply = Box<dyn FnOnce(Option<&Error>)>;

/// A copy of an error, which several callers get. `Error` is not `Clone`.
fn clone_error(error: &Error) -> Error {
    match error {
        Error::Machine { doing, kind, cause } => Error::with_kind(doing, *kind, cause.to_string()),
        error => Error::machine("writing", error.to_string()),
    }
}
