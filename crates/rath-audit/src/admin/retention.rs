//! Retention: removes sessions that have been inactive for longer than a policy keeps them.
//!
//! A session is removed completely or not at all, and only together with every session that depends on it: its forks,
//! and the sessions that merged it. So a session that stays never loses a session that it depends on.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use rath_core::body::{Erased, Merged, RemovedSession};
use rath_core::store::{Cursor, Lookup, Scan, SessionInfo};
use rath_core::{Kind, Result, SessionId, Time, View};
use rath_store::{ErasePlan, EraseReport};
use serde::{Deserialize, Serialize};

use super::holds::has_label;
use super::{CompletedErasure, Hold, StoreAdmin};
use crate::operator::operator;

/// How long sessions are kept: `90d`, `12h`, `2w`, `1y`, or `forever`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Age(Option<u64>);

/// A number of bytes: `10GB`, `500MB`, `4GiB`, or a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Size(pub u64);

/// A text that is not a valid age or size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not {expected}")]
pub struct InvalidRetentionValue {
    given: String,
    expected: &'static str,
}

/// Splits a text into a number and its unit.
fn number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim()))
}

impl Age {
    /// The time `now` plus the age; `None` for `forever`.
    pub fn from(self, now: Time) -> Option<Time> {
        Some(Time(now.0.saturating_add(self.0?)))
    }
}

impl FromStr for Age {
    type Err = InvalidRetentionValue;

    fn from_str(text: &str) -> Result<Self, InvalidRetentionValue> {
        let bad = || InvalidRetentionValue { given: text.into(), expected: "an age: 12h, 90d, 2w, 1y or forever" };
        if text == "forever" {
            return Ok(Self(None));
        }
        let (count, unit) = number(text).ok_or_else(bad)?;
        let hours = match unit {
            "h" => 1,
            "d" => 24,
            "w" => 24 * 7,
            "y" => 24 * 365,
            _ => return Err(bad()),
        };
        let micros = count.checked_mul(hours * 3_600_000_000).ok_or_else(bad)?;
        Ok(Self(Some(micros)))
    }
}

impl FromStr for Size {
    type Err = InvalidRetentionValue;

    fn from_str(text: &str) -> Result<Self, InvalidRetentionValue> {
        let bad =
            || InvalidRetentionValue { given: text.into(), expected: "a size: 500MB, 10GB, 4GiB or a number of bytes" };
        let (count, unit) = number(text).ok_or_else(bad)?;
        let bytes = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "kb" => 1000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            "kib" => 1 << 10,
            "mib" => 1 << 20,
            "gib" => 1 << 30,
            "tib" => 1 << 40,
            _ => return Err(bad()),
        };
        count.checked_mul(bytes).map(Self).ok_or_else(bad)
    }
}

impl TryFrom<String> for Age {
    type Error = InvalidRetentionValue;
    fn try_from(text: String) -> Result<Self, InvalidRetentionValue> {
        text.parse()
    }
}

impl TryFrom<String> for Size {
    type Error = InvalidRetentionValue;
    fn try_from(text: String) -> Result<Self, InvalidRetentionValue> {
        text.parse()
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.map(|micros| micros / 3_600_000_000) {
            None => f.write_str("forever"),
            Some(hours) if hours.is_multiple_of(24) && hours > 0 => write!(f, "{}d", hours / 24),
            Some(hours) => write!(f, "{hours}h"),
        }
    }
}

/// A retention policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionPolicy {
    /// How long sessions without a matching rule are kept. `None`: forever.
    pub keep: Option<Age>,
    /// Rules for sessions with labels. If several match, the longest age counts.
    #[serde(rename = "rule")]
    pub rules: Vec<RetentionRule>,
    /// The size limit of the store: the sessions that were inactive longest are removed until the store fits.
    pub size: Option<Size>,
    /// Remove only sessions with this label.
    #[serde(skip)]
    pub only: Option<String>,
}

/// How long sessions with a label are kept.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionRule {
    /// The label: NAME or NAME=VALUE.
    pub label: String,
    /// How long they are kept.
    pub keep: Age,
}

impl RetentionPolicy {
    /// Whether the policy removes nothing.
    pub fn is_empty(&self) -> bool {
        self.keep.is_none() && self.rules.is_empty() && self.size.is_none()
    }

    /// The rule by which a session has expired; `None` if it has not.
    fn over(&self, row: &SessionInfo, now: Time) -> Option<String> {
        let fits = self.rules.iter().filter(|rule| has_label(&row.labels, &rule.label));
        // `forever` is longer than any age.
        let longest = fits.max_by_key(|rule| (rule.keep.0.is_none(), rule.keep));
        let (keep, name) = match longest {
            Some(rule) => (rule.keep, format!("label {} keep {}", rule.label, rule.keep)),
            None => (self.keep?, format!("keep {}", self.keep?)),
        };
        (now.micros_since(row.time) > keep.0?).then_some(name)
    }

    /// Whether a rule about one of its labels keeps the session for now, even if the store is too large.
    fn keeps(&self, row: &SessionInfo, now: Time) -> bool {
        self.rules.iter().any(|rule| has_label(&row.labels, &rule.label)) && self.over(row, now).is_none()
    }

    fn may_touch(&self, row: &SessionInfo) -> bool {
        self.only.as_ref().is_none_or(|label| has_label(&row.labels, label))
    }
}

/// A session that is removed.
#[derive(Clone, Debug, Serialize)]
pub struct DueSession {
    /// The session.
    pub session: SessionInfo,
    /// The rule by which it is removed.
    pub rule: String,
}

/// An expired session that is kept.
#[derive(Clone, Debug, Serialize)]
pub struct KeptSession {
    /// The session.
    pub session: SessionId,
    /// Why it is kept.
    pub why: KeepReason,
}

/// Why an expired session is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepReason {
    /// A hold covers it.
    OnHold(Box<Hold>),
    /// This session, which is kept, depends on it.
    #[serde(rename = "stood_on")]
    NeededBy(SessionId),
    /// The session is in use or unfinished.
    #[serde(rename = "not_at_rest")]
    Active(String),
}

impl fmt::Display for KeepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnHold(hold) => hold.fmt(f),
            Self::NeededBy(session) => write!(f, "session {}, which stays, depends on it", session.short()),
            Self::Active(why) => f.write_str(why),
        }
    }
}

/// What a policy would remove now.
#[derive(Debug, Default, Serialize)]
pub struct Collection {
    /// The sessions to remove, longest inactive first.
    pub due: Vec<DueSession>,
    /// The expired sessions that are kept.
    pub kept: Vec<KeptSession>,
    /// What else is destroyed, and what stays.
    #[serde(rename = "weight")]
    pub effects: EraseReport,
    /// The size of the records to remove, in bytes.
    pub record_bytes: u64,
    /// How many bytes the store remains above the size limit.
    pub short_by: u64,
}

/// By session, the sessions that depend on it: its forks, and the sessions that merged it.
struct Dependents(HashMap<SessionId, BTreeSet<SessionId>>);

impl Dependents {
    async fn of(admin: &StoreAdmin, rows: &[SessionInfo]) -> Result<Self> {
        let mut on: HashMap<SessionId, BTreeSet<SessionId>> = HashMap::new();
        for row in rows {
            if let Some(origin) = row.origin {
                on.entry(origin.session).or_default().insert(row.id);
            }
        }
        let mut after = Cursor::start();
        loop {
            let page = admin.store.scan(Scan::store(after).kinds(&[Kind::Merged])).await?;
            for record in &page.records {
                let branches: Vec<SessionId> = match record.body::<Merged>() {
                    Ok(body) => body.branches.iter().map(|branch| branch.session).collect(),
                    // The body was erased; the header still names the parents.
                    Err(_) => {
                        let mut branches = Vec::new();
                        for parent in record.header().map(|header| header.parents).unwrap_or_default() {
                            let parents = admin.store.get(Lookup::Id(parent)).await?;
                            branches.extend(parents.iter().map(|parent| parent.session()));
                        }
                        branches
                    }
                };
                for branch in branches.into_iter().filter(|branch| *branch != record.session()) {
                    on.entry(branch).or_default().insert(record.session());
                }
            }
            if !page.more {
                return Ok(Self(on));
            }
            after = page.cursor;
        }
    }

    /// The sessions that depend on `session`, directly or not.
    fn all(&self, session: SessionId) -> BTreeSet<SessionId> {
        let (mut all, mut open) = (BTreeSet::new(), vec![session]);
        while let Some(session) = open.pop() {
            for on in self.0.get(&session).into_iter().flatten() {
                if all.insert(*on) {
                    open.push(*on);
                }
            }
        }
        all
    }
}

impl StoreAdmin {
    /// Plans what `policy` would remove now and changes nothing. `progress` is called with the number of records read
    /// so far.
    pub async fn due(&self, policy: &RetentionPolicy, progress: &mut dyn FnMut(u64)) -> Result<Collection> {
        let obstacles = self.obstacles().await?;
        let now = Time::now();
        let rows: BTreeMap<SessionId, SessionInfo> = obstacles.rows().map(|row| (row.id, row.clone())).collect();
        let mut collection = Collection::default();
        let mut to_remove: BTreeMap<SessionId, String> = BTreeMap::new();
        for row in rows.values().filter(|row| policy.may_touch(row) && !obstacles.is_operator(row.id)) {
            if let Some(rule) = policy.over(row, now) {
                match self.keep_reason(&obstacles, row).await? {
                    None => drop(to_remove.insert(row.id, rule)),
                    Some(why) => collection.kept.push(KeptSession { session: row.id, why }),
                }
            }
        }
        let all: Vec<SessionInfo> = rows.values().cloned().collect();
        let dependents = Dependents::of(self, &all).await?;
        // A session stays if a session that depends on it stays. Repeated until nothing changes.
        loop {
            let kept = to_remove.keys().find_map(|session| {
                let dependent = dependents
                    .0
                    .get(session)
                    .into_iter()
                    .flatten()
                    .find(|dependent| !to_remove.contains_key(dependent))?;
                Some((*session, *dependent))
            });
            let Some((session, dependent)) = kept else { break };
            to_remove.remove(&session);
            collection.kept.push(KeptSession { session, why: KeepReason::NeededBy(dependent) });
        }
        if let Some(size) = policy.size {
            self.to_size(size, policy, &rows, &dependents, &obstacles, &mut to_remove, &mut collection).await?;
        }
        let due = to_remove
            .into_iter()
            .filter_map(|(session, rule)| Some(DueSession { session: rows.get(&session)?.clone(), rule }));
        collection.due = due.collect();
        collection.due.sort_by_key(|due| due.session.time);
        collection.effects = self.embedded.erase_dry_run(&collection.erase_plan(), progress)?;
        let weights = self.embedded.sizes()?;
        let weight = |due: &DueSession| weights.get(&due.session.id).copied().unwrap_or(0);
        collection.record_bytes = collection.due.iter().map(weight).sum();
        Ok(collection)
    }

    /// Adds the sessions that were inactive longest, each with all sessions that depend on it, until the store fits.
    #[allow(clippy::too_many_arguments, reason = "it is a part of `due`")]
    async fn to_size(
        &self,
        size: Size,
        policy: &RetentionPolicy,
        rows: &BTreeMap<SessionId, SessionInfo>,
        dependents: &Dependents,
        obstacles: &super::plan::Obstacles,
        to_remove: &mut BTreeMap<SessionId, String>,
        collection: &mut Collection,
    ) -> Result<()> {
        let now = self.embedded.size()?;
        let mut oldest: Vec<&SessionInfo> = rows.values().filter(|row| !to_remove.contains_key(&row.id)).collect();
        oldest.sort_by_key(|row| row.time);
        let mut groups: Vec<Vec<SessionId>> = Vec::new();
        let mut assigned: HashSet<SessionId> = to_remove.keys().copied().collect();
        for row in oldest {
            if assigned.contains(&row.id) {
                continue;
            }
            let mut group: Vec<SessionId> =
                dependents.all(row.id).into_iter().chain([row.id]).filter(|id| !assigned.contains(id)).collect();
            group.sort();
            let mut removable = true;
            for row in group.iter().filter_map(|id| rows.get(id)) {
                removable &= policy.may_touch(row)
                    && !policy.keeps(row, Time::now())
                    && !obstacles.is_operator(row.id)
                    && self.keep_reason(obstacles, row).await?.is_none();
            }
            if removable {
                assigned.extend(&group);
                groups.push(group);
            }
        }
        let weights = self.embedded.sizes()?;
        let left = |to_remove: &BTreeMap<SessionId, String>, groups: &[Vec<SessionId>]| -> Result<u64> {
            let all = to_remove.keys().copied().chain(groups.iter().flatten().copied());
            let heads: Vec<_> = all.filter_map(|id| rows.get(&id)).map(SessionInfo::head_reference).collect();
            let records: u64 = heads.iter().filter_map(|head| weights.get(&head.session)).sum();
            let erase_plan = ErasePlan { sessions: heads, ..ErasePlan::new() };
            let weight = self.embedded.erase_dry_run(&erase_plan, &mut |_| {})?;
            Ok(now.saturating_sub(records + weight.blob_bytes + weight.workspace_bytes))
        };
        // Binary search for the smallest number of groups that makes the store fit: removing more groups never frees
        // less.
        let (mut few, mut many) = (0, groups.len());
        if left(to_remove, &groups)? > size.0 {
            few = many;
        }
        while few < many {
            let half = few.midpoint(many);
            match left(to_remove, &groups[..half])? <= size.0 {
                true => many = half,
                false => few = half + 1,
            }
        }
        let rule = format!("size {} bytes", size.0);
        collection.short_by = left(to_remove, &groups[..few])?.saturating_sub(size.0);
        to_remove.extend(groups[..few].iter().flatten().map(|id| (*id, rule.clone())));
        Ok(())
    }

    /// Why a session cannot be removed now.
    async fn keep_reason(&self, obstacles: &super::plan::Obstacles, row: &SessionInfo) -> Result<Option<KeepReason>> {
        if let Some(hold) = obstacles.hold_over(row.id) {
            return Ok(Some(KeepReason::OnHold(Box::new(hold.clone()))));
        }
        if let Some(holder) = &row.holder {
            return Ok(Some(KeepReason::Active(format!("{holder} is working on it"))));
        }
        if !self.store.posts(row.id).await?.is_empty() {
            return Ok(Some(KeepReason::Active("its inbox has queued messages".into())));
        }
        let pending = View::of(&self.store, row.id, None).await?.pending();
        Ok((!pending.is_empty()).then(|| KeepReason::Active("it is unfinished".into())))
    }

    /// Removes the sessions of a collection. Returns `None`, and removes nothing, if a hold was added to one of them
    /// since planning.
    pub async fn collect(
        &self,
        collection: &mut Collection,
        why: &str,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Option<CompletedErasure>> {
        let erase_lock = self.embedded.lock_for_erase()?;
        let mut operator = operator(&self.store, self.actor.clone()).await?;
        let holds = super::Holds::of(&self.store).await?;
        let held = |due: &DueSession| holds.over_session(due.session.id).is_some();
        if collection.due.iter().any(held) || collection.due.is_empty() {
            // A hold was added, so the plan has to be made again.
            collection.due.clear();
            return Ok(None);
        }
        let erase_plan = ErasePlan { recorded: true, held: holds.sessions(), ..collection.erase_plan() };
        self.embedded.check_removable(&erase_lock, &erase_plan)?;
        let mut by_rule: BTreeMap<&str, Vec<RemovedSession>> = BTreeMap::new();
        for DueSession { session, rule } in &collection.due {
            let removed = RemovedSession { session: session.id, head: session.head, records: session.seq + 1 };
            by_rule.entry(rule).or_default().push(removed);
        }
        let erased = by_rule.into_iter().map(|(rule, sessions)| Erased {
            erasure: erase_plan.name.clone(),
            why: why.into(),
            rule: Some(rule.into()),
            records: Vec::new(),
            sessions,
            posts: 0,
            blobs: 0,
        });
        self.execute(&erase_lock, &mut operator, &erase_plan, erased.collect(), progress).await.map(Some)
    }
}

impl Collection {
    fn erase_plan(&self) -> ErasePlan {
        let sessions = self.due.iter().map(|due| due.session.head_reference()).collect();
        ErasePlan { sessions, ..ErasePlan::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_sizes_are_parsed() {
        assert_eq!("90d".parse::<Age>().unwrap().to_string(), "90d");
        assert_eq!("2w".parse::<Age>().unwrap(), "14d".parse().unwrap());
        assert_eq!("forever".parse::<Age>().unwrap().to_string(), "forever");
        assert_eq!("10GB".parse::<Size>(), Ok(Size(10_000_000_000)));
        assert_eq!("4 GiB".parse::<Size>(), Ok(Size(4 << 30)));
        for bad in ["", "d", "90", "-1d", "90 fortnights", "99999999999999999999d"] {
            assert!(bad.parse::<Age>().is_err(), "{bad}");
        }
        for bad in ["", "GB", "10 elephants", "99999999999999999999"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }
}
