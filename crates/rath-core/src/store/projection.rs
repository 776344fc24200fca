//! Projections: named folds over all records of a store, each with its own storage.

use std::collections::{BTreeMap, HashSet};
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Mutex, PoisonError};

use super::{BoxFuture, Error, Result, Store};
use crate::id::{Point, Reference, SessionId};
use crate::kind::Kind;
use crate::record::Record;

/// A named fold over all records of a store, in commit order, with its own storage.
///
/// The store keeps the storage and the position of the fold. It folds new records before each read
/// ([`Store::project`]), so commits do no work for projections. The content of the storage is derived from the records:
/// a store rebuilds it when the version changes or the storage is damaged or lost.
pub trait Projection: Send + Sync {
    /// The name of the projection and its storage: 1 to 64 lower-case letters, digits and hyphens.
    fn name(&self) -> &str;

    /// The version of the stored format. Storage of another version is cleared and rebuilt.
    fn version(&self) -> u32;

    /// The kinds of records to fold; empty for all kinds.
    fn kinds(&self) -> &[Kind] {
        &[]
    }

    /// Folds records. Each record is passed once, in commit order; an erased record has no body.
    fn apply(&self, records: &[Record], storage: &mut dyn Storage) -> Result<()>;

    /// Removes everything that was derived from these records. Their bodies are gone already, so the stored entries
    /// must be found by session and sequence number. A program that does not know a projection deletes its whole
    /// storage instead.
    fn forget(&self, erased: &ErasedSet, storage: &mut dyn Storage) -> Result<()>;
}

/// The records and sessions that an erasure destroyed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErasedSet {
    /// The records that lost their bodies.
    pub records: Vec<Reference>,
    /// The sessions that were removed with all their records.
    pub sessions: HashSet<SessionId>,
}

impl ErasedSet {
    /// Whether the record at `point` lost its body or was removed.
    pub fn covers(&self, point: Point) -> bool {
        self.sessions.contains(&point.session) || self.records.iter().any(|record| record.point() == point)
    }
}

/// A callback that gets a key and its value, and decides whether to continue.
pub type EntryVisitor<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// The storage of a projection: keys with values, ordered by the bytes of the keys.
pub trait Storage {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Sets a key's value.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes a key.
    fn delete(&mut self, key: &[u8]) -> Result<()>;

    /// Calls `each` for the entries whose keys start with `prefix`, in order, until it returns `Break`.
    fn each(&self, prefix: &[u8], each: &mut EntryVisitor<'_>) -> Result<()>;
}

impl dyn Storage + '_ {
    /// The entries whose keys start with `prefix`, in order.
    pub fn all(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut all = Vec::new();
        self.each(prefix, &mut |key, value| {
            all.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        Ok(all)
    }
}

/// In-memory storage.
impl Storage for BTreeMap<Vec<u8>, Vec<u8>> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.get(key).cloned())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.remove(key);
        Ok(())
    }

    fn each(&self, prefix: &[u8], each: &mut EntryVisitor<'_>) -> Result<()> {
        let from = self.range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded));
        for (key, value) in from.take_while(|(key, _)| key.starts_with(prefix)) {
            if each(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// A callback that reads the storage of an up-to-date projection.
pub type ReadFn = Box<dyn FnOnce(&dyn Storage) -> Result<()> + Send>;

impl dyn Store {
    /// Brings a projection up to date and returns the result of `read` on its storage.
    pub fn projected<T: Send + 'static>(
        &self,
        projection: Arc<dyn Projection>,
        read: impl FnOnce(&dyn Storage) -> Result<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let reading: ReadFn = Box::new(move |storage| {
            let value = read(storage)?;
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            Ok(())
        });
        Box::pin(async move {
            self.project(projection, reading).await?;
            let value = result.lock().unwrap_or_else(PoisonError::into_inner).take();
            value.ok_or_else(|| Error::machine("reading a projection", "the store did not call the reader"))
        })
    }
}

/// Fails when the name of a projection is not valid.
pub fn check_name(projection: &dyn Projection) -> Result<()> {
    let name = projection.name();
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    match (1..=64).contains(&name.len()) && name.bytes().all(fits) {
        true => Ok(()),
        false => Err(Error::machine(
            format!("opening the projection {name:?}"),
            "its name is not 1 to 64 lower-case letters, digits and hyphens",
        )),
    }
}
