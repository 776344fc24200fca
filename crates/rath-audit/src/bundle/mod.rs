//! Bundles: exported sessions that can be verified without Rath and imported into another store.
//!
//! A bundle is a directory, or a zip of one, with everything that a session depends on: `records.jsonl` (exact bytes),
//! `blobs/` (one file each, named by its digest), `graph.json` (sessions, heads, and what was omitted), `SHA256SUMS`,
//! `verify.py`, and a `README.md` that explains how to verify all of it by hand. [`Export`] writes a bundle. [`Import`]
//! reads one, checks everything in it, and only then writes to the store. `docs/guides/bundles.md` specifies the
//! format.

mod batch_writer;
mod blobs;
mod blocks;
mod bundle_writer;
mod check;
mod export;
mod fork;
mod gaps;
mod graph;
mod import;
pub mod line;
mod line_reader;
mod notes;
mod omissions;
mod ordered_workers;
mod partial_import;
mod plan;
mod record_index;
mod redact;
mod source;
mod walk;

pub(crate) use blobs::parts;
pub use check::{BundleContents, read_zip};
pub use export::{Export, Exported};
pub use graph::{BundleGraph, MergedHeads, OmittedBlob, OmittedRecord, SessionHead};
pub use import::{Import, ImportReport, OriginWorkspace, SessionImportOutcome};
pub use omissions::Omissions;
pub use partial_import::{PartialImport, PartialSession};
pub use redact::Redaction;

use rath_core::store::{self, IoErrorKind};
use rath_core::{Digest, Point, Reference};

/// The format version that is written. Earlier versions are still read. 2: header and body are verbatim in a line. 3:
/// `SHA256SUMS` does not list `records.jsonl`.
pub const FORMAT: u64 = 3;

/// The first format whose `SHA256SUMS` does not list `records.jsonl`: every byte of that file is hashed as part of a
/// record or has only one valid value, and `graph.json` covers the heads and the order.
const FIRST_UNSUMMED: u64 = 3;

/// File names in a bundle.
const RECORDS: &str = "records.jsonl";
const GRAPH: &str = "graph.json";
const SUMS: &str = "SHA256SUMS";
const VERIFIER: &str = "verify.py";
const README: &str = "README.md";
/// The directory of the blobs.
const BLOBS: &str = "blobs/";

/// The verification script in every bundle. It is short enough to be audited by reading.
pub const VERIFY_PY: &str = include_str!("../../../../docs/verify.py");

/// Digests of the verification scripts that earlier versions put into bundles.
const EARLIER_VERIFIERS: &[&str] = &[
    "a06fdd8c9e747b3a3ede7b598c9065c6e640e3696627eeb1372311453201db08",
    "a0d81dc61a61b1c90019ef8114477d7dd90fd8143c339de597e8d873c77d842c",
    "085edd63a5e1a36ef89353c61f84a790a5af5e026911dc797a2e08183c1f570c",
    "9d15d84e314bf4b00de4a4dd0a84c9225e4b280cd2f7005b761540d17a257f60",
    "7f6390266dea541df5af2d3150ddfd5ad9694ec2fc3733687adb363ddd219e5e",
    "e9f6bb91a17b33ae974d8130231ca05426dec78757d04ea1e4e2811cb642dec9",
    "c9e568cafa8bffd21909a716ed339a524acc577649a0d5f5e4dc3478f6b469d8",
    "d238aacdee4ef4717d2b62fe3dbdcc8fad0402f8c9bb1dd0b39254538617b868",
    "edab5e78edc47eecbce22130ee788fc8fe59d6dd3e3524c6fb4c4c99f24c0209",
    "208b011d707b14ad9100a5de2388c57733c5508e91d84958f25619e2fc0a6938",
    "1b9c9e60be2f77a689385ccab9c2cd592391c0bac97f311effcb88460ad1ed8a",
    "bba4cdf8fdaa6a9264ed3756ddccb961bc42348a9c9917414ec397745deed629",
    "dea3a56d4ebacea1dc980bd86fb18574972a15be3b34debbcb818c4bc042c1b9",
    "256da96722fba4e0572b5f2de9056f75e76aa0a67c496132ad61f858d82217a7",
    "0c196b08c3b12d51c5c8ad958acd8ce00764328e5e4d4351f31f90846f2e587b",
    "5e0fc1ec3b31f5f1a959719cb34bb392b1ded4d7c605fd0a8148579f7fa93f73",
    "eaf049f74242542ac21760d9db5d04d3dca7c85e9c468f0f90c370893fdd23e7",
];

/// Whether these bytes are a verification script that a version of rath wrote.
fn is_our_verifier(bytes: &[u8]) -> bool {
    bytes == VERIFY_PY.as_bytes() || EARLIER_VERIFIERS.contains(&Digest::of(bytes).hex().as_str())
}

/// Why a bundle was not written, read or imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The bundle's content is not what was exported.
    #[error(transparent)]
    Invalid(#[from] BundleDefect),
    /// A session diverged: the store and the bundle have different records after a common one.
    #[error(
        "session {} diverged: record {} is {} in this store and {} in the bundle; both have the {} before it",
        .here.session.short(),
        .here.seq,
        .here.id.short(),
        .there.id.short(),
        .here.seq
    )]
    Diverged {
        /// The first record that only the store has.
        here: Box<Reference>,
        /// The bundle's record with the same number.
        there: Box<Reference>,
    },
    /// The store has another session for the same run key.
    #[error("run {key:?} is session {} in this store and session {} in the bundle", .here.short(), .there.short())]
    RunKeyTaken {
        /// The run's key.
        key: String,
        /// The session in the store.
        here: rath_core::SessionId,
        /// The session in the bundle.
        there: rath_core::SessionId,
    },
    /// The bundle contains the operator session of another store.
    #[error("session {} is the operator session of another store; this store has its own", .0.short())]
    ForeignOperator(rath_core::SessionId),
    /// A session was removed from this store; an import does not bring it back.
    #[error("session {} was removed from this store by {by} at {time}: {why}", .session.short())]
    Removed {
        /// The session.
        session: rath_core::SessionId,
        /// The actor who removed it.
        by: String,
        /// The time of the removal.
        time: rath_core::Time,
        /// The recorded reason of the removal.
        why: String,
    },
    /// The diverged records cannot be kept as a fork.
    #[error("{point} cannot be kept as a fork: {why}")]
    CannotFork {
        /// The record.
        point: Point,
        /// The reason.
        why: String,
    },
    /// A record cannot be exported.
    #[error("{point} cannot be exported: {why}")]
    NotExportable {
        /// The record.
        point: Point,
        /// The reason.
        why: String,
    },
    /// A record that was to be omitted is not in the bundle, so the request probably meant another record.
    #[error("cannot redact {0}: not in this export; nothing was written")]
    NotIncluded(Point),
    /// The bundle changed between being checked and being imported.
    #[error("the bundle changed during the import: {0}")]
    Changed(BundleDefect),
    /// The store failed in the middle of the import.
    #[error("imported {taken} of {of} records, then: {why}; fix that and import the bundle again to continue")]
    Interrupted {
        /// The number of records that were imported.
        taken: u64,
        /// The number of records to import.
        of: u64,
        /// The error.
        why: Box<BundleError>,
    },
    /// The path of the bundle already exists.
    #[error("{0} already exists")]
    Exists(String),
    /// An I/O error.
    #[error("{doing}: {cause}")]
    Io {
        /// The operation that failed.
        doing: String,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A session could not be read or written.
    #[error(transparent)]
    Session(#[from] rath_core::Error),
}

impl BundleError {
    /// The error's code. `docs/errors/CODE.md` explains what to do.
    pub fn code(&self) -> &str {
        match self {
            BundleError::Invalid(_) | BundleError::Changed(_) => "broken-bundle",
            BundleError::Diverged { .. } | BundleError::CannotFork { .. } => "bundle-diverged",
            BundleError::RunKeyTaken { .. } | BundleError::ForeignOperator(_) => "run-taken",
            BundleError::Removed { .. } => "erased",
            BundleError::NotExportable { .. } => "tampered",
            BundleError::NotIncluded(_) => "not-found",
            BundleError::Exists(_) => "bundle-exists",
            // Other I/O errors concern the bundle's files, not the store.
            BundleError::Io { cause, .. } => match IoErrorKind::of(cause) {
                full @ IoErrorKind::Full => full.code(),
                _ => IoErrorKind::Other.code(),
            },
            BundleError::Interrupted { why, .. } => why.code(),
            BundleError::Store(error) => error.code(),
            BundleError::Session(error) => error.code(),
        }
    }
}

/// What is wrong with a bundle. Nothing was imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleDefect {
    /// The bundle is neither a directory nor a zip, or the zip cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// A file is missing, unexpected or invalid.
    #[error("{name}: {why}")]
    File {
        /// The name of the file in the bundle.
        name: String,
        /// The reason.
        why: String,
    },
    /// A line of `records.jsonl` cannot be read.
    #[error("line {line} of records.jsonl: {why}")]
    Line {
        /// The line number, from 1.
        line: u64,
        /// The reason.
        why: String,
    },
    /// A record is not what was written.
    #[error("record {point} (line {line} of records.jsonl): {why}")]
    Record {
        /// The record.
        point: Point,
        /// The line number, or that of the last line that was read.
        line: u64,
        /// The reason.
        why: String,
    },
    /// A blob does not match its digest, or is missing.
    #[error("blob {digest} of record {point}: {why}")]
    Blob {
        /// The blob's digest.
        digest: Digest,
        /// The record that refers to the blob.
        point: Point,
        /// The reason.
        why: String,
    },
}

/// Wraps an I/O error of the operation `doing`.
fn io_error(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> BundleError {
    let doing = doing.into();
    move |cause| BundleError::Io { doing, cause }
}
