//! Finds what the store lacks of records that it has: bodies and blobs that an earlier bundle omitted, or that were
//! erased.
//!
//! A later bundle can fill in a missing blob that a body in the store refers to. It cannot fill in a missing body: a
//! record is written once.

use std::collections::VecDeque;
use std::sync::Arc;

use rath_core::store::{Scan, Store};
use rath_core::{Digest, Record, Reference};

use super::BundleError;
use super::blobs::NamedBlobs;
use super::check::BundleContents;
use super::fork::UnsharedRecords;
use super::import::Records;
use super::source::BundleSource;
use crate::admin::Erasures;

/// What the bundle has and the store lacks, of records that both have.
#[derive(Default)]
pub(super) struct Gaps {
    /// Blobs that bodies in the store refer to. Erased blobs are not among them: no remaining body refers to those.
    pub(super) blobs: Vec<Digest>,
    /// Records whose bodies the store lacks.
    pub(super) bodies: Vec<Reference>,
    /// The number of bodies that were erased in the store.
    pub(super) erased: u64,
}

impl Gaps {
    pub(super) async fn of(
        store: &Arc<dyn Store>,
        source: &mut BundleSource,
        contents: &BundleContents,
        unshared: &UnsharedRecords<'_>,
    ) -> Result<Self, BundleError> {
        if unshared.known.is_empty() && unshared.diverged_at.is_empty() {
            return Ok(Self::default());
        }
        let erasures = Erasures::of(store).await?;
        let (mut gaps, mut names) = (Self::default(), NamedBlobs::default());
        let mut here: VecDeque<Record> = VecDeque::new();
        let mut records = Records::new(source, contents)?;
        while let Some(there) = records.next()? {
            if unshared.has(there.point()) {
                continue;
            }
            while here.front().is_some_and(|here| here.point() != there.point()) {
                here.pop_front();
            }
            if here.is_empty() {
                here = store.scan(Scan::session(there.session(), there.seq(), u64::MAX)).await?.records.into();
            }
            match here.pop_front().filter(|_| there.body_bytes().is_some()) {
                Some(here) if here.body_bytes().is_some() => names.of(&here),
                Some(here) if erasures.over(here.point()).is_some() => gaps.erased += 1,
                Some(here) => gaps.bodies.push(here.reference()),
                None => {}
            }
        }
        drop(records);
        names.walk(source)?;
        for digest in source.blobs().filter(|digest| names.all.contains_key(digest)) {
            if !store.blob_has(digest).await? {
                gaps.blobs.push(digest);
            }
        }
        Ok(gaps)
    }
}
