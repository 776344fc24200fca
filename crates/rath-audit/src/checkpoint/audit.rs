//! Verifies a store against its checkpoints, and against copies of checkpoints that were kept elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rath_core::checkpoint::{Checkpoint, Heads, PublicKey};
use rath_core::store::{Cursor, Error as StoreError, Lookup, Query, Scan};
use rath_core::verify::{Finding, FindingKind};
use rath_core::{Digest, Kind, Point, RecordId, SessionId, Store};
use serde::Deserialize;

use super::key::is_signed;
use super::stored::{self, CheckpointChain, StoredCheckpoint, chain};

/// The result of an audit.
#[derive(Clone, Debug, Default)]
pub struct AuditReport {
    /// The number of checkpoints in the store.
    pub stored: u64,
    /// The oldest checkpoint that the store was verified against.
    pub since: Option<Checkpoint>,
    /// The number of heads that were looked up.
    pub heads: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Remarks that do not indicate an error.
    pub remarks: Vec<String>,
}

/// Verifies the store against its own checkpoints from number `since` on, and against `copies`, external copies of
/// checkpoints with valid signatures. The first key in `trusted` must have signed the latest checkpoints; the others
/// are its predecessors.
pub async fn audit(
    store: &Arc<dyn Store>,
    copies: &[Checkpoint],
    since: u64,
    trusted: &[PublicKey],
) -> rath_core::Result<AuditReport> {
    let chain = chain(store).await?;
    let removed = match chain.store {
        Some(operator) => removed(store, operator).await?,
        None => BTreeMap::new(),
    };
    let mut auditor = Auditor::new(store, &chain, removed);
    auditor.audit.stored = chain.stored.len() as u64;
    auditor.audit.findings.extend(chain.findings.iter().cloned());
    auditor.links(&chain).await;
    auditor.keys(&chain, trusted);
    auditor.external_copies(&chain, copies);
    // Oldest first, so that a finding names the first checkpoint that it violates.
    let first = copies.iter().map(|copy| copy.no).min().unwrap_or(since);
    let mut all: Vec<&Checkpoint> =
        chain.stored.iter().map(|it| &it.checkpoint).filter(|checkpoint| checkpoint.no >= first).collect();
    for copy in copies.iter().filter(|copy| chain.store == Some(copy.store)) {
        if !all.contains(&copy) {
            all.push(copy);
        }
    }
    all.sort_by_key(|checkpoint| checkpoint.no);
    auditor.audit.since = all.first().map(|checkpoint| Checkpoint::clone(checkpoint));
    for checkpoint in all {
        auditor.heads(checkpoint).await?;
    }
    if !auditor.excused.is_empty() {
        let count = auditor.excused.len();
        auditor.audit.remarks.push(format!(
            "{count} of the sessions were removed since; the removals are recorded in the operator session"
        ));
    }
    Ok(auditor.audit)
}

/// Checks that a copy of a store has everything that these checkpoints cover, and returns the findings. Lists of heads
/// that the copy lacks are read from `other`.
pub(super) async fn missing(
    store: &Arc<dyn Store>,
    chain: &CheckpointChain,
    checkpoints: &[&Checkpoint],
    other: &Arc<dyn Store>,
) -> rath_core::Result<Vec<Finding>> {
    let removed = match chain.store {
        Some(operator) => removed(store, operator).await?,
        None => BTreeMap::new(),
    };
    let mut auditor = Auditor { other: Some(other), ..Auditor::new(store, chain, removed) };
    for checkpoint in checkpoints {
        auditor.heads(checkpoint).await?;
    }
    Ok(auditor.audit.findings)
}

/// The part of an `erased` record that lists removed sessions.
#[derive(Deserialize)]
struct Removals {
    #[serde(default)]
    sessions: Vec<Removal>,
}

#[derive(Deserialize)]
struct Removal {
    session: SessionId,
    records: u64,
}

/// The removed sessions, according to the operator session. By session: how many records it had, and the number of the
/// `erased` record. The order of records shows what happened before a checkpoint; their times do not.
async fn removed(store: &Arc<dyn Store>, operator: SessionId) -> rath_core::Result<BTreeMap<SessionId, (u64, u64)>> {
    let (mut removed, mut from) = (BTreeMap::new(), 0);
    loop {
        let page = store.scan(Scan::session(operator, from, u64::MAX).kinds(&[Kind::Erased])).await?;
        for record in &page.records {
            let said = record.body_bytes().and_then(|body| serde_json::from_slice::<Removals>(body).ok());
            let gone = said.into_iter().flat_map(|said| said.sessions);
            removed.extend(gone.map(|gone| (gone.session, (gone.records, record.seq()))));
        }
        from = page.position;
        if !page.more {
            return Ok(removed);
        }
    }
}

struct Auditor<'a> {
    store: &'a Arc<dyn Store>,
    /// Another copy of the store, which may have lists of heads that this one lacks.
    other: Option<&'a Arc<dyn Store>>,
    /// Removed sessions: the number of their records, and of the `erased` record in the operator session.
    removed: BTreeMap<SessionId, (u64, u64)>,
    /// By checkpoint number, the number of its record in the operator session.
    positions: BTreeMap<u64, u64>,
    /// The digests of the lists of heads that the store should have.
    lists: BTreeSet<Digest>,
    /// Removed sessions that a checkpoint covers.
    excused: BTreeSet<SessionId>,
    audit: AuditReport,
    /// Record ids by point, cached.
    known: BTreeMap<Point, Result<Option<RecordId>, String>>,
    /// Sessions that already have a finding; one is enough.
    named: BTreeSet<SessionId>,
}

impl<'a> Auditor<'a> {
    fn new(store: &'a Arc<dyn Store>, chain: &CheckpointChain, removed: BTreeMap<SessionId, (u64, u64)>) -> Self {
        Self {
            store,
            other: None,
            removed,
            positions: chain.stored.iter().map(|it| (it.checkpoint.no, it.record.seq)).collect(),
            lists: chain.stored.iter().map(|it| it.checkpoint.heads).collect(),
            excused: BTreeSet::new(),
            audit: AuditReport::default(),
            known: BTreeMap::new(),
            named: BTreeSet::new(),
        }
    }

    fn find(&mut self, what: FindingKind, why: String) {
        self.audit.findings.push(Finding { what, session: None, seq: None, why });
    }

    /// Checks that every checkpoint is signed, follows the previous one, and does not count fewer records.
    async fn links(&mut self, chain: &CheckpointChain) {
        let mut before: Option<&StoredCheckpoint> = None;
        for stored in &chain.stored {
            let (it, no) = (&stored.checkpoint, stored.checkpoint.no);
            if !is_signed(it) {
                self.find(
                    FindingKind::Checkpoint,
                    format!("checkpoint {no}: invalid signature; it was altered or forged"),
                );
            }
            if Some(it.store) != chain.store {
                self.find(FindingKind::Foreign, format!("checkpoint {no} is of another store: {}", it.store));
            }
            let expected = before.map_or(1, |before| before.checkpoint.no + 1);
            let digest = before.map(|before| before.checkpoint.digest());
            if no > expected {
                let why = format!("found checkpoint {no} instead of {expected}: the ones between were removed");
                self.find(FindingKind::Checkpoint, why);
            } else if no < expected {
                self.find(
                    FindingKind::Equivocation,
                    format!("two checkpoints {no} are in this store: two histories were signed"),
                );
            } else if it.previous != digest {
                let why = format!("checkpoint {no} does not follow checkpoint {}: two histories were signed", no - 1);
                self.find(FindingKind::Equivocation, why);
            }
            if let Some(before) = before {
                let heads = match self.removed.is_empty() {
                    true => None,
                    false => before.heads(self.store).await,
                };
                self.counts(before, heads, stored);
            }
            before = Some(stored);
        }
    }

    /// Checks that the numbers of records and sessions only decrease by recorded removals.
    fn counts(&mut self, before: &StoredCheckpoint, heads: Option<Heads>, after: &StoredCheckpoint) {
        let between = before.record.seq..after.record.seq;
        let gone = |(point, _): &(Point, RecordId)| {
            self.removed.get(&point.session).is_some_and(|(_, seq)| between.contains(seq))
        };
        let (mut sessions, mut records) = (0, 0);
        for (point, _) in heads.iter().flat_map(Heads::iter).filter(gone) {
            sessions += 1;
            records += point.seq + 1;
        }
        let (before, after) = (&before.checkpoint, &after.checkpoint);
        if after.records + records < before.records || after.sessions + sessions < before.sessions {
            let why = format!(
                "checkpoint {} counts {} records in {} sessions, checkpoint {} before it {} in {}: some were lost between",
                after.no, after.records, after.sessions, before.no, before.records, before.sessions
            );
            self.find(FindingKind::CutOff, why);
        }
        if after.time < before.time {
            let why = format!("checkpoint {} has an earlier time than checkpoint {}", after.no, before.no);
            self.find(FindingKind::Checkpoint, why);
        }
    }

    /// Checks that each key was signed by the previous key, or is trusted.
    fn keys(&mut self, chain: &CheckpointChain, trusted: &[PublicKey]) {
        let mut runs: Vec<Vec<&Checkpoint>> = Vec::new();
        for StoredCheckpoint { checkpoint, .. } in &chain.stored {
            match runs.last_mut().filter(|run| run.last().is_some_and(|before| leads_to(before, checkpoint))) {
                Some(run) => run.push(checkpoint),
                None => runs.push(vec![checkpoint]),
            }
        }
        // A key that was rotated before it signed a checkpoint did sign the next key.
        let has = |run: &[&Checkpoint], keys: &[PublicKey]| {
            let between = run.iter().skip(1).flat_map(|it| &it.successions).map(|succession| succession.from);
            run.iter().map(|it| it.key).chain(between).any(|key| keys.contains(&key))
        };
        let (now, before) = trusted.split_at(trusted.len().min(1));
        for run in runs.iter().skip(1) {
            let (no, key) = (run[0].no, run[0].key);
            match run[0].previous_key_lost {
                true if has(run, now) => self.audit.remarks.push(format!(
                    "checkpoint {no} starts a new chain with key {key}, which you trust: no earlier key signed it"
                )),
                true => self.find(FindingKind::Checkpoint, format!(
                    "checkpoint {no} starts a new chain with key {key}, and no earlier key signed it: if the key is right, use `--key {key}`"
                )),
                false => self.find(FindingKind::Checkpoint, format!(
                    "checkpoint {no} is signed with key {key}, which the key before it did not sign"
                )),
            }
        }
        let Some(last) = runs.last() else { return };
        let (no, key) = (last[last.len() - 1].no, last[last.len() - 1].key);
        match now {
            [_] if has(last, now) => {}
            [_] if has(last, before) => self.audit.remarks.push(format!(
                "checkpoint {no} is signed with key {key}, which you have replaced since: `rath checkpoint` makes one with the new key"
            )),
            [trusted, ..] => self.find(
                FindingKind::Checkpoint,
                format!("checkpoint {no} is signed with key {key}, not with the one that you trust, {trusted}"),
            ),
            [] => self.audit.remarks.push(format!(
                "key {key} is not trusted: compare it with the key that you were given, and use `--key`"
            )),
        }
    }

    /// Checks that the external copies are in the store's chain, unchanged.
    fn external_copies(&mut self, chain: &CheckpointChain, copies: &[Checkpoint]) {
        for copy in copies {
            let (no, time) = (copy.no, copy.time);
            match chain.store {
                None => {
                    let why = format!(
                        "the store has no checkpoint, and checkpoint {no} ({time}) of store {} was given: its end was cut off, or it is another store",
                        copy.store
                    );
                    self.find(FindingKind::CutOff, why);
                    continue;
                }
                Some(store) if store != copy.store => {
                    let why = format!("checkpoint {no} ({time}) is of store {}, this is store {store}", copy.store);
                    self.find(FindingKind::Foreign, why);
                    continue;
                }
                Some(_) => {}
            }
            match chain.stored.iter().find(|stored| stored.checkpoint.no == no) {
                Some(stored) if stored.checkpoint == *copy => {}
                Some(StoredCheckpoint { checkpoint, .. }) if checkpoint.key == copy.key => {
                    let why = format!(
                        "there are two checkpoints {no}, both signed with key {}: {} is in this store, {} was given: two histories were signed",
                        copy.key,
                        short(checkpoint),
                        short(copy)
                    );
                    self.find(FindingKind::Equivocation, why);
                }
                Some(StoredCheckpoint { checkpoint, .. }) => {
                    let why = format!(
                        "this store has another checkpoint {no} than the one given: {} signed with key {}, not {} signed with key {}",
                        short(checkpoint),
                        checkpoint.key,
                        short(copy),
                        copy.key
                    );
                    self.find(FindingKind::Rewritten, why);
                }
                None => {
                    let why = format!(
                        "checkpoint {no} ({time}) is not in this store: its end was cut off, or this is an older copy"
                    );
                    self.find(FindingKind::CutOff, why);
                }
            }
        }
    }

    /// Checks that every head of the checkpoint is a record of the store.
    async fn heads(&mut self, checkpoint: &Checkpoint) -> rath_core::Result<()> {
        let heads = match (stored::heads(self.store, checkpoint).await, self.other) {
            (None, Some(other)) => stored::heads(other, checkpoint).await,
            (heads, _) => heads,
        };
        let Some(heads) = heads else { return self.without_list(checkpoint).await };
        for (point, id) in heads.iter() {
            self.audit.heads += 1;
            if self.named.contains(&point.session) {
                continue;
            }
            if self.is_removed(point, checkpoint).await? {
                self.excused.insert(point.session);
                continue;
            }
            let name = format!("checkpoint {} ({})", checkpoint.no, checkpoint.time);
            let (what, seq, why) = match self.at(point).await? {
                Ok(Some(found)) if found == id => continue,
                Ok(Some(_)) => {
                    let why = format!("it is not the record that {name} covers: the session was rewritten");
                    (FindingKind::Rewritten, Some(point.seq), why)
                }
                Ok(None) => {
                    match self.store.sessions(rath_core::store::SessionFilter::Id(point.session).into()).await?.first()
                    {
                        None => {
                            let why = format!("the session is gone: {name} has {} records of it", point.seq + 1);
                            (FindingKind::Gone, None, why)
                        }
                        Some(row) => {
                            let which = match row.seq + 1 == point.seq {
                                true => format!("record {} is", point.seq),
                                false => format!("records {} to {} are", row.seq + 1, point.seq),
                            };
                            let why = format!("{which} cut off: {name} has the session up to record {}", point.seq);
                            (FindingKind::CutOff, Some(row.seq + 1), why)
                        }
                    }
                }
                Err(why) => (FindingKind::Unreadable, Some(point.seq), why),
            };
            self.named.insert(point.session);
            self.audit.findings.push(Finding { what, session: Some(point.session), seq, why });
        }
        Ok(())
    }

    /// Whether the session was removed after the checkpoint, according to the operator session, and is not in the
    /// store.
    async fn is_removed(&self, point: Point, checkpoint: &Checkpoint) -> rath_core::Result<bool> {
        let on_record = self.removed.get(&point.session);
        // An external copy that is not in the store has no position; it counts as before all removals.
        let position = self.positions.get(&checkpoint.no).copied().unwrap_or(0);
        if !on_record.is_some_and(|(records, seq)| point.seq < *records && *seq > position) {
            return Ok(false);
        }
        Ok(self.store.sessions(rath_core::store::SessionFilter::Id(point.session).into()).await?.is_empty())
    }

    /// The id of the record at a point; the inner `Err` says why the record cannot be read.
    async fn at(&mut self, point: Point) -> rath_core::Result<Result<Option<RecordId>, String>> {
        if let Some(known) = self.known.get(&point) {
            return Ok(known.clone());
        }
        let found = match self.store.get(Lookup::At(point)).await {
            Ok(records) => Ok(records.first().map(|record| record.id())),
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(error @ StoreError::Tampered { .. }) => Err(error.to_string()),
            Err(error) => return Err(error.into()),
        };
        self.known.insert(point, found.clone());
        Ok(found)
    }

    /// Verifies a checkpoint whose list of heads is missing. The order of commits gives the heads at the checkpoint's
    /// record count: if they have the checkpoint's digest, nothing is missing.
    async fn without_list(&mut self, checkpoint: &Checkpoint) -> rath_core::Result<()> {
        let (no, time) = (checkpoint.no, checkpoint.time);
        // An external copy may be of a history that this store never had.
        let list = match self.lists.contains(&checkpoint.heads) {
            true => "is lost",
            false => "is not in this store",
        };
        let now = Heads::of(&self.store.sessions(Query::default()).await?);
        if now.digest() == checkpoint.heads || self.heads_at(checkpoint.records).await?.digest() == checkpoint.heads {
            self.audit
                .remarks
                .push(format!("the list of heads of checkpoint {no} {list}; all its records are in the store"));
            return Ok(());
        }
        let why = match now.records() < checkpoint.records {
            true => {
                let cut = match checkpoint.records - now.records() {
                    1 => "1 was".to_owned(),
                    cut => format!("{cut} were"),
                };
                format!(
                    "checkpoint {no} ({time}) counts {} records, {} are left: {cut} cut off; which ones is unknown because its list of heads {list}",
                    checkpoint.records,
                    now.records(),
                )
            }
            false => format!(
                "the store does not match checkpoint {no} ({time}); what was changed is unknown because its list of heads {list}"
            ),
        };
        self.find(FindingKind::CutOff, why);
        Ok(())
    }

    /// The heads at the time when the store had this many records.
    async fn heads_at(&self, records: u64) -> rath_core::Result<Heads> {
        let (mut heads, mut after, mut seen) = (Heads::default(), Cursor::start(), 0);
        loop {
            let page = self.store.scan(Scan::store(after)).await?;
            for record in &page.records {
                if seen == records {
                    return Ok(heads);
                }
                heads.set(record.point(), record.id());
                seen += 1;
            }
            after = page.cursor;
            if !page.more {
                return Ok(heads);
            }
        }
    }
}

/// Whether the key of one checkpoint signed the key of the next, directly or through rotations.
fn leads_to(before: &Checkpoint, after: &Checkpoint) -> bool {
    let mut key = before.key;
    for succession in &after.successions {
        if succession.from != key {
            return false;
        }
        key = succession.key;
    }
    !after.previous_key_lost && key == after.key
}

fn short(checkpoint: &Checkpoint) -> String {
    checkpoint.digest().to_string()[..12].to_owned()
}
