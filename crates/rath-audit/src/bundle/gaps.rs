//! What a store has not of records that it has: bodies and blobs that a bundle came without, or that were erased.
//!
//! A blob that a body here names can be filled in by a later bundle. A body cannot: a record is written once.

use std::collections::VecDeque;
use std::sync::Arc;

use rath_core::store::{Scan, Store};
use rath_core::{Digest, Record, Reference};

use super::Error;
use super::blobs::Names;
use super::check::Contents;
use super::fork::Beyond;
use super::import::Records;
use super::source::Source;
use crate::care::Erasures;

/// What a bundle has, and the store has not, of records that both have.
#[derive(Default)]
pub(super) struct Gaps {
    /// Blobs that bodies in the store name. Nothing that stays names what was erased, so none of that is among them.
    pub(super) blobs: Vec<Digest>,
    /// Records that the store has without their bodies.
    pub(super) bodies: Vec<Reference>,
    /// How many bodies were erased in the store.
    pub(super) erased: u64,
}

impl Gaps {
    pub(super) async fn of(
        store: &Arc<dyn Store>,
        source: &mut Source,
        contents: &Contents,
        beyond: &Beyond<'_>,
    ) -> Result<Self, Error> {
        if beyond.known.is_empty() && beyond.parted.is_empty() {
            return Ok(Self::default());
        }
        let erasures = Erasures::of(store).await?;
        let (mut gaps, mut names) = (Self::default(), Names::default());
        let mut here: VecDeque<Record> = VecDeque::new();
        let mut records = Records::new(source, contents)?;
        while let Some(there) = records.next()? {
            if beyond.has(there.point()) {
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
