//! Named folds over all records of a store, each with storage of its own.

use std::collections::{BTreeMap, HashSet};
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Mutex, PoisonError};

use super::{BoxFuture, Error, Result, Store};
use crate::id::{Point, Reference, SessionId};
use crate::kind::Kind;
use crate::record::Record;

/// A named fold over all records of a store, in commit order, with storage of its own.
///
/// A store keeps the storage and how far the fold has come. It catches up before it answers
/// ([`Store::project`]), so committing knows nothing of projections and costs nothing for them. What is in the storage can
/// be folded from the records at any time: a store folds it again when the version changes or the storage is damaged
/// or lost.
pub trait Projection: Send + Sync {
    /// Its name, which is also that of its storage: lower-case letters, digits and hyphens, at most 64.
    fn name(&self) -> &str;

    /// Changes with what is stored and how. Storage of another version is emptied and filled again.
    fn version(&self) -> u32;

    /// The kinds of the records that it folds; empty for all.
    fn kinds(&self) -> &[Kind] {
        &[]
    }

    /// Takes records in. Each comes once, in commit order; one that was erased comes without its body.
    fn apply(&self, records: &[Record], storage: &mut dyn Storage) -> Result<()>;

    /// Takes out everything that came from these records. Their bodies are gone already, so whatever is
    /// stored must be found by session and seq. A program that does not know a projection removes its storage instead.
    fn forget(&self, erased: &Erased, storage: &mut dyn Storage) -> Result<()>;
}

/// What an erasure destroyed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Erased {
    /// Records that lost their bodies.
    pub records: Vec<Reference>,
    /// Sessions that went whole, with all their records.
    pub sessions: HashSet<SessionId>,
}

impl Erased {
    /// Whether the record at a place lost its body, or is gone.
    pub fn covers(&self, point: Point) -> bool {
        self.sessions.contains(&point.session) || self.records.iter().any(|record| record.point() == point)
    }
}

/// Is shown a key and its value, and says whether it wants the next one.
pub type EachEntry<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// Where a projection keeps its entries: keys in the order of their bytes, each with a value.
pub trait Storage {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Sets a key's value.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes a key.
    fn delete(&mut self, key: &[u8]) -> Result<()>;

    /// Shows the entries whose keys begin with `prefix`, in order, until `each` has enough.
    fn each(&self, prefix: &[u8], each: &mut EachEntry<'_>) -> Result<()>;
}

impl dyn Storage + '_ {
    /// The entries whose keys begin with `prefix`, in order.
    pub fn all(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut all = Vec::new();
        self.each(prefix, &mut |key, value| {
            all.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        Ok(all)
    }
}

/// Storage in memory.
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

    fn each(&self, prefix: &[u8], each: &mut EachEntry<'_>) -> Result<()> {
        let from = self.range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded));
        for (key, value) in from.take_while(|(key, _)| key.starts_with(prefix)) {
            if each(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Reads the storage of a projection that has caught up.
pub type Reading = Box<dyn FnOnce(&dyn Storage) -> Result<()> + Send>;

impl dyn Store {
    /// Brings a projection up to date and reads from its storage.
    pub fn projected<T: Send + 'static>(
        &self,
        projection: Arc<dyn Projection>,
        read: impl FnOnce(&dyn Storage) -> Result<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        let answer = Arc::new(Mutex::new(None));
        let place = answer.clone();
        let reading: Reading = Box::new(move |storage| {
            let read = read(storage)?;
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(read);
            Ok(())
        });
        Box::pin(async move {
            self.project(projection, reading).await?;
            let read = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
            read.ok_or_else(|| Error::machine("reading a projection", "the store did not read it"))
        })
    }
}

/// Fails when a projection's name cannot be that of its storage.
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
