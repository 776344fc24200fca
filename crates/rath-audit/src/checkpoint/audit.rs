//! Holding a store against its checkpoints, and against lines that were kept elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rath_core::checkpoint::{Checkpoint, Heads, PublicKey};
use rath_core::store::{Cursor, Error as StoreError, Lookup, Query, Scan};
use rath_core::verify::{Finding, What};
use rath_core::{Digest, Kind, Point, RecordId, SessionId, Store};
use serde::Deserialize;

use super::key::is_signed;
use super::stored::{self, Chain, Stored, chain};

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// The checkpoints that the store has.
    pub stored: u64,
    /// The oldest that the store was held against.
    pub since: Option<Checkpoint>,
    /// Heads that were looked up.
    pub heads: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// What a person should know, and is not wrong.
    pub remarks: Vec<String>,
}

/// Holds the store against its chain of checkpoints from `since` on (by number), and against `lines`, which somebody kept
/// elsewhere and whose signatures fit. The first of `trusted` is the key that must be behind the last of them; the others are
/// those before it.
pub async fn audit(
    store: &Arc<dyn Store>,
    lines: &[Checkpoint],
    since: u64,
    trusted: &[PublicKey],
) -> rath_core::Result<Audit> {
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
    auditor.given(&chain, lines);
    // Oldest first, so that what is named is named by the first that misses it.
    let first = lines.iter().map(|line| line.no).min().unwrap_or(since);
    let mut all: Vec<&Checkpoint> =
        chain.stored.iter().map(|it| &it.checkpoint).filter(|checkpoint| checkpoint.no >= first).collect();
    for line in lines.iter().filter(|line| chain.store == Some(line.store)) {
        if !all.contains(&line) {
            all.push(line);
        }
    }
    all.sort_by_key(|checkpoint| checkpoint.no);
    auditor.audit.since = all.first().map(|checkpoint| Checkpoint::clone(checkpoint));
    for checkpoint in all {
        auditor.heads(checkpoint).await?;
    }
    if !auditor.excused.is_empty() {
        let count = auditor.excused.len();
        auditor
            .audit
            .remarks
            .push(format!("{count} of the sessions were removed since, on the record of the operator session"));
    }
    Ok(auditor.audit)
}

/// What a copy of a store lacks of what these checkpoints vouch for; their lists of heads are looked for in `other` too.
pub(super) async fn missing(
    store: &Arc<dyn Store>,
    chain: &Chain,
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

/// What an `erased` record says of sessions that went whole.
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

/// Sessions that records on the operator session say were taken out of the store, with how many records they had, and where
/// that stands: places tell what was before a checkpoint, and no clock does.
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
    /// Another copy, which may have lists of heads that this one lacks.
    other: Option<&'a Arc<dyn Store>>,
    /// Sessions that were taken out on the record: how many records they had, and where on the operator session.
    removed: BTreeMap<SessionId, (u64, u64)>,
    /// Where the checkpoints stand on the operator session, by their numbers.
    places: BTreeMap<u64, u64>,
    /// The digests of the lists of heads that the store should have.
    lists: BTreeSet<Digest>,
    /// Those of them that a checkpoint has.
    excused: BTreeSet<SessionId>,
    audit: Audit,
    /// What stands at a place.
    known: BTreeMap<Point, Result<Option<RecordId>, String>>,
    /// Sessions that were named: once is enough.
    named: BTreeSet<SessionId>,
}

impl<'a> Auditor<'a> {
    fn new(store: &'a Arc<dyn Store>, chain: &Chain, removed: BTreeMap<SessionId, (u64, u64)>) -> Self {
        Self {
            store,
            other: None,
            removed,
            places: chain.stored.iter().map(|it| (it.checkpoint.no, it.record.seq)).collect(),
            lists: chain.stored.iter().map(|it| it.checkpoint.heads).collect(),
            excused: BTreeSet::new(),
            audit: Audit::default(),
            known: BTreeMap::new(),
            named: BTreeSet::new(),
        }
    }

    fn find(&mut self, what: What, why: String) {
        self.audit.findings.push(Finding { what, session: None, seq: None, why });
    }

    /// Every checkpoint is signed, follows the one before it, and counts no less.
    async fn links(&mut self, chain: &Chain) {
        let mut before: Option<&Stored> = None;
        for stored in &chain.stored {
            let (it, no) = (&stored.checkpoint, stored.checkpoint.no);
            if !is_signed(it) {
                self.find(
                    What::Checkpoint,
                    format!("checkpoint {no}: its signature does not fit; it was altered or forged"),
                );
            }
            if Some(it.store) != chain.store {
                self.find(What::Foreign, format!("checkpoint {no} is of another store: {}", it.store));
            }
            let expected = before.map_or(1, |before| before.checkpoint.no + 1);
            let digest = before.map(|before| before.checkpoint.digest());
            if no > expected {
                let why = format!("checkpoint {no} stands where {expected} should: what is between was taken out");
                self.find(What::Checkpoint, why);
            } else if no < expected {
                self.find(
                    What::Equivocation,
                    format!("two checkpoints {no} are in this store: two histories were signed"),
                );
            } else if it.previous != digest {
                let why = format!("checkpoint {no} does not follow checkpoint {}: two histories were signed", no - 1);
                self.find(What::Equivocation, why);
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

    /// Records and sessions only become more, but for sessions that were removed on the record.
    fn counts(&mut self, before: &Stored, heads: Option<Heads>, after: &Stored) {
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
            self.find(What::CutOff, why);
        }
        if after.time < before.time {
            let why = format!("checkpoint {} says that it is older than checkpoint {}", after.no, before.no);
            self.find(What::Checkpoint, why);
        }
    }

    /// Each key is vouched for by the one before it, or a person trusts it.
    fn keys(&mut self, chain: &Chain, trusted: &[PublicKey]) {
        let mut runs: Vec<Vec<&Checkpoint>> = Vec::new();
        for Stored { checkpoint, .. } in &chain.stored {
            match runs.last_mut().filter(|run| run.last().is_some_and(|before| vouches(before, checkpoint))) {
                Some(run) => run.push(checkpoint),
                None => runs.push(vec![checkpoint]),
            }
        }
        // A key that was replaced before it signed a checkpoint did sign the next key, where the one before leads there.
        let has = |run: &[&Checkpoint], keys: &[PublicKey]| {
            let between = run.iter().skip(1).flat_map(|it| &it.successions).map(|succession| succession.from);
            run.iter().map(|it| it.key).chain(between).any(|key| keys.contains(&key))
        };
        let (now, before) = trusted.split_at(trusted.len().min(1));
        for run in runs.iter().skip(1) {
            let (no, key) = (run[0].no, run[0].key);
            match run[0].anew {
                true if has(run, now) => self.audit.remarks.push(format!(
                    "checkpoint {no} begins anew with key {key}, which you trust: no earlier key vouches for it"
                )),
                true => self.find(What::Checkpoint, format!(
                    "checkpoint {no} begins anew with key {key}, and no earlier key vouches for it: if it is right, say `--key {key}`"
                )),
                false => self.find(What::Checkpoint, format!(
                    "checkpoint {no} is signed with key {key}, which the key before it does not vouch for"
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
                What::Checkpoint,
                format!("checkpoint {no} is signed with key {key}, not with the one that you trust, {trusted}"),
            ),
            [] => self.audit.remarks.push(format!(
                "nobody says that key {key} is the right one: compare it with the one that you were given, and say `--key`"
            )),
        }
    }

    /// Lines that were kept elsewhere are in the chain, as they are.
    fn given(&mut self, chain: &Chain, lines: &[Checkpoint]) {
        for line in lines {
            let (no, time) = (line.no, line.time);
            match chain.store {
                None => {
                    let why = format!(
                        "the store has no checkpoint at all, and checkpoint {no} ({time}) of store {} was given: its end was cut off, or it is another store",
                        line.store
                    );
                    self.find(What::CutOff, why);
                    continue;
                }
                Some(store) if store != line.store => {
                    let why = format!("checkpoint {no} ({time}) is of store {}, this is store {store}", line.store);
                    self.find(What::Foreign, why);
                    continue;
                }
                Some(_) => {}
            }
            match chain.stored.iter().find(|stored| stored.checkpoint.no == no) {
                Some(stored) if stored.checkpoint == *line => {}
                Some(Stored { checkpoint, .. }) if checkpoint.key == line.key => {
                    let why = format!(
                        "there are two checkpoints {no}, both signed with key {}: {} is in this store, {} was given. Two histories were signed",
                        line.key,
                        short(checkpoint),
                        short(line)
                    );
                    self.find(What::Equivocation, why);
                }
                Some(Stored { checkpoint, .. }) => {
                    let why = format!(
                        "this store has another checkpoint {no} than the one given: {} signed with key {}, not {} signed with key {}",
                        short(checkpoint),
                        checkpoint.key,
                        short(line),
                        line.key
                    );
                    self.find(What::Rewritten, why);
                }
                None => {
                    let why = format!(
                        "checkpoint {no} ({time}) is not in this store: its end was cut off, or this is an older copy"
                    );
                    self.find(What::CutOff, why);
                }
            }
        }
    }

    /// Every head that the checkpoint digests is a record of the store.
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
            let vouching = format!("checkpoint {} ({})", checkpoint.no, checkpoint.time);
            let (what, seq, why) = match self.at(point).await? {
                Ok(Some(found)) if found == id => continue,
                Ok(Some(_)) => {
                    let why = format!("it is not the record that {vouching} vouches for: the session was rewritten");
                    (What::Rewritten, Some(point.seq), why)
                }
                Ok(None) => match self.store.sessions(rath_core::store::Which::Id(point.session).into()).await?.first()
                {
                    None => {
                        let why = format!("the session is gone: {vouching} has {} records of it", point.seq + 1);
                        (What::Gone, None, why)
                    }
                    Some(row) => {
                        let which = match row.seq + 1 == point.seq {
                            true => format!("record {} is", point.seq),
                            false => format!("records {} to {} are", row.seq + 1, point.seq),
                        };
                        let why = format!("{which} cut off: {vouching} has the session up to record {}", point.seq);
                        (What::CutOff, Some(row.seq + 1), why)
                    }
                },
                Err(why) => (What::Unreadable, Some(point.seq), why),
            };
            self.named.insert(point.session);
            self.audit.findings.push(Finding { what, session: Some(point.session), seq, why });
        }
        Ok(())
    }

    /// Whether the session was taken out of the store after the checkpoint, on the record, and is not there.
    async fn is_removed(&self, point: Point, checkpoint: &Checkpoint) -> rath_core::Result<bool> {
        let on_record = self.removed.get(&point.session);
        // A line that was given and has no place here is found to have none.
        let place = self.places.get(&checkpoint.no).copied().unwrap_or(0);
        if !on_record.is_some_and(|(records, seq)| point.seq < *records && *seq > place) {
            return Ok(false);
        }
        Ok(self.store.sessions(rath_core::store::Which::Id(point.session).into()).await?.is_empty())
    }

    /// What stands at a place; one that cannot be read says why.
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

    /// The list of heads is not there. The store's commits in their order give the heads at the count of the checkpoint: if
    /// those have its digest, all is as it was.
    async fn without_list(&mut self, checkpoint: &Checkpoint) -> rath_core::Result<()> {
        let (no, time) = (checkpoint.no, checkpoint.time);
        // A line that was given may be of a history that was never here.
        let list = match self.lists.contains(&checkpoint.heads) {
            true => "is lost",
            false => "is not in this store",
        };
        let now = Heads::of(&self.store.sessions(Query::default()).await?);
        if now.digest() == checkpoint.heads || self.heads_at(checkpoint.records).await?.digest() == checkpoint.heads {
            self.audit
                .remarks
                .push(format!("the list of heads of checkpoint {no} {list}; all that it digests is there"));
            return Ok(());
        }
        let why = match now.records() < checkpoint.records {
            true => {
                let cut = match checkpoint.records - now.records() {
                    1 => "1 was".to_owned(),
                    cut => format!("{cut} were"),
                };
                format!(
                    "checkpoint {no} ({time}) counts {} records, {} are left: {cut} cut off. Which ones cannot be said, its list of heads {list}",
                    checkpoint.records,
                    now.records(),
                )
            }
            false => format!(
                "the store is not the one that checkpoint {no} ({time}) vouches for. What was changed cannot be said, its list of heads {list}"
            ),
        };
        self.find(What::CutOff, why);
        Ok(())
    }

    /// The heads when the store had so many records.
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

/// Whether the key of one checkpoint vouches for the next one's.
fn vouches(before: &Checkpoint, after: &Checkpoint) -> bool {
    let mut key = before.key;
    for succession in &after.successions {
        if succession.from != key {
            return false;
        }
        key = succession.key;
    }
    !after.anew && key == after.key
}

fn short(checkpoint: &Checkpoint) -> String {
    checkpoint.digest().to_string()[..12].to_owned()
}
