//! Compares two copies of a store.

use std::collections::BTreeMap;
use std::sync::Arc;

use rath_core::store::{Lookup, Query, SessionInfo};
use rath_core::verify::{Finding, FindingKind};
use rath_core::{Point, RecordId, SessionId, Store};

use super::key::is_signed;
use super::stored::{CheckpointChain, StoredCheckpoint, chain};
use super::{Checkpoint, audit};
use crate::admin::Erasures;

/// The result of comparing two copies.
#[derive(Clone, Debug, Default)]
pub struct StoreComparison {
    /// The number of sessions that both have.
    pub sessions: u64,
    /// The number of checkpoints that both have.
    pub checkpoints: u64,
    /// Contradictions between the copies.
    pub findings: Vec<Finding>,
    /// Differences that are no contradiction: what one copy has and the other does not have yet.
    pub remarks: Vec<String>,
}

/// Compares this copy (`here`) with another (`there`): their checkpoints, and every session that both have. A copy may
/// be behind. It must not contradict the other, and must not lack what its own checkpoints cover.
pub async fn compare(here: &Arc<dyn Store>, there: &Arc<dyn Store>) -> rath_core::Result<StoreComparison> {
    let mut comparison = StoreComparison::default();
    let (ours, theirs) = (chain(here).await?, chain(there).await?);
    let are_copies = comparison.chains(&ours, &theirs);
    comparison.sessions(here, there).await?;
    if are_copies {
        comparison.check_covered((here, &ours), (there, &theirs)).await?;
    }
    Ok(comparison)
}

impl StoreComparison {
    fn find(&mut self, what: FindingKind, point: Option<Point>, why: String) {
        let (session, seq) = (point.map(|point| point.session), point.map(|point| point.seq));
        self.findings.push(Finding { what, session, seq, why });
    }

    /// Compares the checkpoints. Returns whether the two are copies of one store.
    fn chains(&mut self, ours: &CheckpointChain, theirs: &CheckpointChain) -> bool {
        match (ours.store, theirs.store) {
            (Some(ours), Some(theirs)) if ours != theirs => {
                let why = format!("these are two different stores, not copies of one: {ours} here, {theirs} there");
                self.find(FindingKind::Foreign, None, why);
                return false;
            }
            (Some(_), Some(_)) => {}
            _ => {
                self.remarks.push("one of the copies never had a checkpoint: only the sessions were compared".into());
                return true;
            }
        }
        for (chain, whose) in [(ours, "this"), (theirs, "the other")] {
            for finding in &chain.findings {
                self.findings.push(Finding { why: format!("{whose} copy: {}", finding.why), ..finding.clone() });
            }
        }
        for (mine, other) in ours.stored.iter().zip(&theirs.stored) {
            let (mine, other) = (&mine.checkpoint, &other.checkpoint);
            for (it, whose) in [(mine, "this"), (other, "the other")] {
                if !is_signed(it) {
                    let why =
                        format!("checkpoint {} of {whose} copy: invalid signature; it was altered or forged", it.no);
                    self.find(FindingKind::Checkpoint, None, why);
                    return true;
                }
            }
            if mine == other {
                self.checkpoints += 1;
                continue;
            }
            let (no, what) =
                (mine.no, if mine.key == other.key { FindingKind::Equivocation } else { FindingKind::Rewritten });
            let signed = |it: &Checkpoint| format!("{} signed with key {}", &it.digest().to_string()[..12], it.key);
            let why = format!(
                "the two copies have different checkpoints {no}: {} here, {} there: two histories were signed",
                signed(mine),
                signed(other)
            );
            self.find(what, None, why);
            return true;
        }
        let (mine, other) = (ours.stored.len(), theirs.stored.len());
        if let Some(lacking) = theirs.stored.get(mine) {
            let why = format!(
                "checkpoint {} ({}) of the other copy is not here: this copy is older, or its end was cut off",
                lacking.checkpoint.no, lacking.checkpoint.time
            );
            self.find(FindingKind::CutOff, None, why);
        } else if mine > other {
            self.remarks.push(format!("the other copy is older: it has {other} of {mine} checkpoints"));
        }
        true
    }

    /// Checks that each copy has what its own checkpoints cover. This copy must also have what later checkpoints of the
    /// other cover; the other copy may be older than this copy's later checkpoints.
    async fn check_covered(
        &mut self,
        (here, ours): (&Arc<dyn Store>, &CheckpointChain),
        (there, theirs): (&Arc<dyn Store>, &CheckpointChain),
    ) -> rath_core::Result<()> {
        fn signed(stored: &[StoredCheckpoint]) -> Vec<&Checkpoint> {
            stored.iter().map(|it| &it.checkpoint).filter(|it| is_signed(it)).collect()
        }
        let is_behind = ours.stored.iter().zip(&theirs.stored).all(|(mine, other)| mine.checkpoint == other.checkpoint);
        let later = theirs.stored.get(ours.stored.len()..).filter(|_| is_behind).unwrap_or_default();
        let (all, own) = ([signed(&ours.stored), signed(later)].concat(), signed(&theirs.stored));
        let copies = [("this copy", here, ours, all, there), ("the other copy", there, theirs, own, here)];
        for (whose, store, chain, checkpoints, other) in copies {
            for finding in audit::missing(store, chain, &checkpoints, other).await? {
                self.findings.push(Finding { why: format!("{whose}: {}", finding.why), ..finding });
            }
        }
        Ok(())
    }

    async fn sessions(&mut self, here: &Arc<dyn Store>, there: &Arc<dyn Store>) -> rath_core::Result<()> {
        let mut theirs: BTreeMap<SessionId, SessionInfo> =
            there.sessions(Query::default()).await?.into_iter().map(|row| (row.id, row)).collect();
        let mut ours = here.sessions(Query::default()).await?;
        ours.sort_by_key(|row| row.id);
        let (mut only_here, mut behind, mut ahead) = (Vec::new(), Vec::new(), Vec::new());
        for row in ours {
            let Some(other) = theirs.remove(&row.id) else {
                only_here.push(row.id);
                continue;
            };
            self.sessions += 1;
            match row.seq.cmp(&other.seq) {
                std::cmp::Ordering::Less => behind.push(row.id),
                std::cmp::Ordering::Greater => ahead.push(row.id),
                std::cmp::Ordering::Equal => {}
            }
            if let Some(seq) = first_difference(here, there, row.id, row.seq.min(other.seq)).await? {
                let after = match seq {
                    0 => "they have nothing in common".to_owned(),
                    seq => format!("they are the same up to record {}", seq - 1),
                };
                let why = format!("the other copy has another record {seq}: {after}");
                self.find(FindingKind::Rewritten, Some(Point { session: row.id, seq }), why);
            }
        }
        let erasures = Erasures::of(here).await?;
        let (removed, only_there): (Vec<SessionId>, Vec<SessionId>) =
            theirs.into_keys().partition(|session| erasures.removed(&session.to_string()).next().is_some());
        let lists = [
            (only_here, "only here"),
            (only_there, "only in the other copy"),
            (removed, "only in the other copy, and erased here"),
            (ahead, "longer here"),
            (behind, "longer in the other copy"),
        ];
        let lists = lists.iter().filter(|(sessions, _)| !sessions.is_empty());
        self.remarks.extend(lists.map(|(sessions, what)| format!("{what}: {}", named(sessions))));
        Ok(())
    }
}

/// The short ids of the first few sessions, and the number of the others.
fn named(sessions: &[SessionId]) -> String {
    const SHOWN: usize = 5;
    let mut names: Vec<String> = sessions.iter().take(SHOWN).map(|session| session.short().to_string()).collect();
    if sessions.len() > SHOWN {
        names.push(format!("and {} more", sessions.len() - SHOWN));
    }
    names.join(", ")
}

/// The number of the first record that differs in two copies of a session, up to `last`. A record id covers all records
/// before it, so binary search works: after the first difference all records differ.
async fn first_difference(
    here: &Arc<dyn Store>,
    there: &Arc<dyn Store>,
    session: SessionId,
    last: u64,
) -> rath_core::Result<Option<u64>> {
    if same(here, there, Point { session, seq: last }).await? {
        return Ok(None);
    }
    let (mut low, mut high) = (0, last);
    while low < high {
        let middle = low + (high - low) / 2;
        match same(here, there, Point { session, seq: middle }).await? {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    Ok(Some(low))
}

async fn same(here: &Arc<dyn Store>, there: &Arc<dyn Store>, point: Point) -> rath_core::Result<bool> {
    let ours = id_at(here, point).await?;
    Ok(ours.is_some() && ours == id_at(there, point).await?)
}

async fn id_at(store: &Arc<dyn Store>, point: Point) -> rath_core::Result<Option<RecordId>> {
    Ok(store.get(Lookup::At(point)).await?.first().map(|record| record.id()))
}
