//! Sessions as files that somebody else can check and take in.
//!
//! A bundle is a directory, or a zip of one, with everything that a session stands on: `records.jsonl` (exact bytes),
//! `blobs/` (a file each, named by its digest), `graph.json` (sessions, heads, and what was left out), `SHA256SUMS`,
//! `verify.py` and a `README.md` that says how to check all of it by hand. [`Export`] writes one; [`Import`] reads one
//! and takes it into a store after everything in it was checked. `docs/ledger/bundles.md` fixes the format.

mod absent;
mod beside;
mod blobs;
mod blocks;
mod check;
mod cut_short;
mod export;
mod fork;
mod gaps;
mod graph;
mod import;
pub mod line;
mod notes;
mod places;
mod plan;
mod redact;
mod rows;
mod source;
mod target;
mod walk;
mod writing;

pub use absent::LeftOut;
pub(crate) use blobs::parts;
pub use check::{Contents, read_zip};
pub use cut_short::{Beginning, CutShort};
pub use export::{Export, Exported};
pub use graph::{Graph, Head, LeftOutBlob, LeftOutRecord, Merge};
pub use import::{Fate, Import, Imported, Worked};
pub use redact::Redaction;

use rath_core::store::{self, Trouble};
use rath_core::{Digest, Point, Reference};

/// The version of the format that is written. Those before it are read too. 2: header and body stand in a line as they are.
/// 3: the records have no sum of their file.
pub const FORMAT: u64 = 3;

/// From this format on `SHA256SUMS` does not list `records.jsonl`: every byte of it is hashed as a record's or can only be what
/// it is, and `graph.json` vouches for the heads and for the order.
const UNSUMMED: u64 = 3;

/// What stands in a bundle, besides blobs.
const RECORDS: &str = "records.jsonl";
const GRAPH: &str = "graph.json";
const SUMS: &str = "SHA256SUMS";
const VERIFIER: &str = "verify.py";
const README: &str = "README.md";
/// Where blobs are.
const BLOBS: &str = "blobs/";

/// The verifier that an auditor can read in ten minutes.
pub const VERIFY_PY: &str = include_str!("../../../../docs/verify.py");

/// The digests of the verifiers that earlier versions put into bundles.
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
];

/// Whether these bytes are a verifier that a version of rath wrote.
fn is_our_verifier(bytes: &[u8]) -> bool {
    bytes == VERIFY_PY.as_bytes() || EARLIER_VERIFIERS.contains(&Digest::of(bytes).hex().as_str())
}

/// Why a bundle was not written, read or taken in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What is in the bundle is not what was exported.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// A session went on here in another way than in the bundle.
    #[error(
        "session {} went on in two ways: record {} here is {}, in the bundle {}; both have the {} before it",
        .here.session.short(),
        .here.seq,
        .here.id.short(),
        .there.id.short(),
        .here.seq
    )]
    Diverged {
        /// The first record that only the store has.
        here: Box<Reference>,
        /// The one in its place in the bundle.
        there: Box<Reference>,
    },
    /// A session is not the same from its very first record.
    #[error("run {key:?} is session {} here and session {} in the bundle", .here.short(), .there.short())]
    RunTaken {
        /// The run's key.
        key: String,
        /// The store's.
        here: rath_core::SessionId,
        /// The bundle's.
        there: rath_core::SessionId,
    },
    /// The bundle brings the operator session of another store.
    #[error("session {} is the operator session of another store; this store has its own", .0.short())]
    Operator(rath_core::SessionId),
    /// A session was removed here: it does not come back by the way.
    #[error("session {} was removed here by {by} at {time}: {why}", .session.short())]
    Removed {
        /// The session.
        session: rath_core::SessionId,
        /// Who removed it.
        by: String,
        /// When.
        time: rath_core::Time,
        /// Why.
        why: String,
    },
    /// What diverged cannot be said again on a fork.
    #[error("{point} cannot be kept as a fork: {why}")]
    NoFork {
        /// The record.
        point: Point,
        /// The reason.
        why: String,
    },
    /// A record cannot be written down.
    #[error("{point} cannot be exported: {why}")]
    Unfit {
        /// Where.
        point: Point,
        /// The reason.
        why: String,
    },
    /// A record was to be left out that would not be in the bundle: it is another one that was meant.
    #[error("{0} was to be left out, and is not in the bundle; nothing was written")]
    NotInIt(Point),
    /// It was sound when it was checked, and another one when it was read again to be taken in.
    #[error("it changed while it was taken in: {0}")]
    Changed(Broken),
    /// The store refused in the middle.
    #[error(
        "{taken} of {of} records were taken in, then: {why}. When that is mended, import the bundle again: it goes on there"
    )]
    CutShort {
        /// Records that are acknowledged.
        taken: u64,
        /// Records that were to come.
        of: u64,
        /// What went wrong.
        why: Box<Error>,
    },
    /// There is something where the bundle would go.
    #[error("{0} is there already")]
    Exists(String),
    /// The machine refused.
    #[error("{doing}: {cause}")]
    Machine {
        /// What was being done.
        doing: String,
        /// What it said.
        cause: std::io::Error,
    },
    /// The store refused.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A session could not be read or written.
    #[error(transparent)]
    Session(#[from] rath_core::Error),
}

impl Error {
    /// The error's code; `docs/errors/CODE.md` says what to do.
    pub fn code(&self) -> &str {
        match self {
            Error::Broken(_) | Error::Changed(_) => "broken-bundle",
            Error::Diverged { .. } | Error::NoFork { .. } => "bundle-diverged",
            Error::RunTaken { .. } | Error::Operator(_) => "run-taken",
            Error::Removed { .. } => "erased",
            Error::Unfit { .. } => "tampered",
            Error::NotInIt(_) => "not-found",
            Error::Exists(_) => "bundle-exists",
            // Whatever else a machine says is not about the store.
            Error::Machine { cause, .. } => match Trouble::of(cause) {
                full @ Trouble::Full => full.code(),
                _ => Trouble::Other.code(),
            },
            Error::CutShort { why, .. } => why.code(),
            Error::Store(error) => error.code(),
            Error::Session(error) => error.code(),
        }
    }
}

/// What is wrong with a bundle. Nothing of it was taken in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// It is neither a directory nor a zip, or the zip cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// It holds something that is no part of a bundle, or lacks something that is.
    #[error("{name}: {why}")]
    File {
        /// The file in it.
        name: String,
        /// How it shows.
        why: String,
    },
    /// A line of its records cannot be read.
    #[error("line {line} of records.jsonl: {why}")]
    Line {
        /// From 1.
        line: u64,
        /// How it shows.
        why: String,
    },
    /// A record is not what was written.
    #[error("record {point} (line {line} of records.jsonl): {why}")]
    Record {
        /// Which.
        point: Point,
        /// The line, or the last one that was read.
        line: u64,
        /// How it shows.
        why: String,
    },
    /// A blob is not what its name says, or is not there.
    #[error("blob {digest}, which {point} names: {why}")]
    Blob {
        /// Its name.
        digest: Digest,
        /// The record that names it.
        point: Point,
        /// How it shows.
        why: String,
    },
}

/// Wraps what the machine said while `doing` something.
fn machine(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    let doing = doing.into();
    move |cause| Error::Machine { doing, cause }
}
