//! What goes by itself: sessions that have rested for longer than a policy keeps them.
//!
//! A session goes whole or not at all, and only with every session that stands on it: what was forked from it or took
//! it in. So nothing that stays ever loses what it stands on.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use rath_core::body::{Erased, Merged, Removed};
use rath_core::store::{Cursor, Lookup, Row, Scan};
use rath_core::{Kind, Result, SessionId, Time, View};
use rath_store::{Destroyed, Doomed};
use serde::{Deserialize, Serialize};

use super::holds::has_label;
use super::{Care, Done, Hold};
use crate::operator::operator;

/// How long something is kept: `90d`, `12h`, `2w`, `1y`, or `forever`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Age(Option<u64>);

/// An amount of bytes: `10GB`, `500MB`, `4GiB`, or a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Size(pub u64);

/// A text that is no age or size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not {expected}")]
pub struct NotAPolicy {
    given: String,
    expected: &'static str,
}

/// Digits, and the word behind them.
fn number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim()))
}

impl Age {
    /// The time so long after `now`; `None` for ever.
    pub fn from(self, now: Time) -> Option<Time> {
        Some(Time(now.0.saturating_add(self.0?)))
    }
}

impl FromStr for Age {
    type Err = NotAPolicy;

    fn from_str(text: &str) -> Result<Self, NotAPolicy> {
        let bad = || NotAPolicy { given: text.into(), expected: "an age: 12h, 90d, 2w, 1y or forever" };
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
    type Err = NotAPolicy;

    fn from_str(text: &str) -> Result<Self, NotAPolicy> {
        let bad = || NotAPolicy { given: text.into(), expected: "a size: 500MB, 10GB, 4GiB or a number of bytes" };
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
    type Error = NotAPolicy;
    fn try_from(text: String) -> Result<Self, NotAPolicy> {
        text.parse()
    }
}

impl TryFrom<String> for Size {
    type Error = NotAPolicy;
    fn try_from(text: String) -> Result<Self, NotAPolicy> {
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

/// What is kept, and for how long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Sessions that no rule is about.
    pub keep: Option<Age>,
    /// Sessions with a label. Of several that fit, the longest counts.
    #[serde(rename = "rule")]
    pub rules: Vec<Rule>,
    /// The most that the store may take: the sessions that rested longest go until it fits.
    pub size: Option<Size>,
    /// Only sessions with this label go.
    #[serde(skip)]
    pub only: Option<String>,
}

/// How long sessions with a label are kept.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// NAME or NAME=VALUE.
    pub label: String,
    /// How long.
    pub keep: Age,
}

impl Policy {
    /// Whether nothing goes by it.
    pub fn is_empty(&self) -> bool {
        self.keep.is_none() && self.rules.is_empty() && self.size.is_none()
    }

    /// The rule by which a session's time is over.
    fn over(&self, row: &Row, now: Time) -> Option<String> {
        let fits = self.rules.iter().filter(|rule| has_label(&row.labels, &rule.label));
        // Forever is longer than any age.
        let longest = fits.max_by_key(|rule| (rule.keep.0.is_none(), rule.keep));
        let (keep, name) = match longest {
            Some(rule) => (rule.keep, format!("label {} keep {}", rule.label, rule.keep)),
            None => (self.keep?, format!("keep {}", self.keep?)),
        };
        (now.micros_since(row.time) > keep.0?).then_some(name)
    }

    /// Whether a rule about one of its labels says that it stays for now, however full the store is.
    fn keeps(&self, row: &Row, now: Time) -> bool {
        self.rules.iter().any(|rule| has_label(&row.labels, &rule.label)) && self.over(row, now).is_none()
    }

    fn may_touch(&self, row: &Row) -> bool {
        self.only.as_ref().is_none_or(|label| has_label(&row.labels, label))
    }
}

/// A session that goes.
#[derive(Clone, Debug, Serialize)]
pub struct Due {
    /// It.
    pub session: Row,
    /// The rule by which.
    pub rule: String,
}

/// A session that stays although its time is over.
#[derive(Clone, Debug, Serialize)]
pub struct Kept {
    /// It.
    pub session: SessionId,
    /// Why.
    pub why: Stays,
}

/// Why a session stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stays {
    /// A hold covers it.
    OnHold(Box<Hold>),
    /// This one, which stays, stands on it.
    StoodOn(SessionId),
    /// It is being worked on, or not finished.
    NotAtRest(String),
}

impl fmt::Display for Stays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnHold(hold) => hold.fmt(f),
            Self::StoodOn(session) => write!(f, "session {}, which stays, stands on it", session.short()),
            Self::NotAtRest(why) => f.write_str(why),
        }
    }
}

/// What a policy collects now.
#[derive(Debug, Default, Serialize)]
pub struct Collection {
    /// What goes, longest at rest first.
    pub due: Vec<Due>,
    /// What stays although its time is over.
    pub kept: Vec<Kept>,
    /// What else goes, and what stays.
    pub weight: Destroyed,
    /// Bytes of the records that go.
    pub record_bytes: u64,
    /// How far the store stays above the size that was asked for.
    pub short_by: u64,
}

/// Who stands on whom: what was forked from a session, or took it in.
struct Dependents(HashMap<SessionId, BTreeSet<SessionId>>);

impl Dependents {
    async fn of(care: &Care, rows: &[Row]) -> Result<Self> {
        let mut on: HashMap<SessionId, BTreeSet<SessionId>> = HashMap::new();
        for row in rows {
            if let Some(origin) = row.origin {
                on.entry(origin.session).or_default().insert(row.id);
            }
        }
        let mut after = Cursor::start();
        loop {
            let page = care.store.scan(Scan::store(after).kinds(&[Kind::Merged])).await?;
            for record in &page.records {
                let branches: Vec<SessionId> = match record.body::<Merged>() {
                    Ok(body) => body.branches.iter().map(|branch| branch.session).collect(),
                    // The header still names the parents.
                    Err(_) => {
                        let mut branches = Vec::new();
                        for parent in record.header().map(|header| header.parents).unwrap_or_default() {
                            let parents = care.store.get(Lookup::Id(parent)).await?;
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

    /// Those that stand on `session`, directly or not.
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

impl Care {
    /// Works out what goes by `policy` now, and changes nothing.
    pub async fn due(&self, policy: &Policy, progress: &mut dyn FnMut(u64)) -> Result<Collection> {
        let obstacles = self.obstacles().await?;
        let now = Time::now();
        let rows: BTreeMap<SessionId, Row> = obstacles.rows().map(|row| (row.id, row.clone())).collect();
        let mut collection = Collection::default();
        let mut going: BTreeMap<SessionId, String> = BTreeMap::new();
        for row in rows.values().filter(|row| policy.may_touch(row) && !obstacles.is_operator(row.id)) {
            if let Some(rule) = policy.over(row, now) {
                match self.at_rest(&obstacles, row).await? {
                    None => drop(going.insert(row.id, rule)),
                    Some(why) => collection.kept.push(Kept { session: row.id, why }),
                }
            }
        }
        let all: Vec<Row> = rows.values().cloned().collect();
        let dependents = Dependents::of(self, &all).await?;
        // Whoever stands on one that stays stays too, until nothing changes.
        loop {
            let stays = going.keys().find_map(|session| {
                let on = dependents.0.get(session).into_iter().flatten().find(|on| !going.contains_key(on))?;
                Some((*session, *on))
            });
            let Some((session, on)) = stays else { break };
            going.remove(&session);
            collection.kept.push(Kept { session, why: Stays::StoodOn(on) });
        }
        if let Some(size) = policy.size {
            self.to_size(size, policy, &rows, &dependents, &obstacles, &mut going, &mut collection).await?;
        }
        let due =
            going.into_iter().filter_map(|(session, rule)| Some(Due { session: rows.get(&session)?.clone(), rule }));
        collection.due = due.collect();
        collection.due.sort_by_key(|due| due.session.time);
        collection.weight = self.embedded.weigh(&collection.doomed(), progress)?;
        let weights = self.embedded.sizes()?;
        let weight = |due: &Due| weights.get(&due.session.id).copied().unwrap_or(0);
        collection.record_bytes = collection.due.iter().map(weight).sum();
        Ok(collection)
    }

    /// Adds the sessions that rested longest, each with all that stand on it, until the store fits.
    #[allow(clippy::too_many_arguments, reason = "it goes on where `due` stands")]
    async fn to_size(
        &self,
        size: Size,
        policy: &Policy,
        rows: &BTreeMap<SessionId, Row>,
        dependents: &Dependents,
        obstacles: &super::plan::Obstacles,
        going: &mut BTreeMap<SessionId, String>,
        collection: &mut Collection,
    ) -> Result<()> {
        let now = self.embedded.size()?;
        let mut oldest: Vec<&Row> = rows.values().filter(|row| !going.contains_key(&row.id)).collect();
        oldest.sort_by_key(|row| row.time);
        let mut groups: Vec<Vec<SessionId>> = Vec::new();
        let mut taken: HashSet<SessionId> = going.keys().copied().collect();
        for row in oldest {
            if taken.contains(&row.id) {
                continue;
            }
            let mut group: Vec<SessionId> =
                dependents.all(row.id).into_iter().chain([row.id]).filter(|id| !taken.contains(id)).collect();
            group.sort();
            let mut at_rest = true;
            for row in group.iter().filter_map(|id| rows.get(id)) {
                at_rest &= policy.may_touch(row)
                    && !policy.keeps(row, Time::now())
                    && !obstacles.is_operator(row.id)
                    && self.at_rest(obstacles, row).await?.is_none();
            }
            if at_rest {
                taken.extend(&group);
                groups.push(group);
            }
        }
        let weights = self.embedded.sizes()?;
        let left = |going: &BTreeMap<SessionId, String>, groups: &[Vec<SessionId>]| -> Result<u64> {
            let all = going.keys().copied().chain(groups.iter().flatten().copied());
            let heads: Vec<_> = all.filter_map(|id| rows.get(&id)).map(Row::head_reference).collect();
            let records: u64 = heads.iter().filter_map(|head| weights.get(&head.session)).sum();
            let doomed = Doomed { sessions: heads, ..Doomed::new() };
            let weight = self.embedded.weigh(&doomed, &mut |_| {})?;
            Ok(now.saturating_sub(records + weight.blob_bytes + weight.place_bytes))
        };
        // The fewest that make it fit: more of them never take less away.
        let (mut few, mut many) = (0, groups.len());
        if left(going, &groups)? > size.0 {
            few = many;
        }
        while few < many {
            let half = few.midpoint(many);
            match left(going, &groups[..half])? <= size.0 {
                true => many = half,
                false => few = half + 1,
            }
        }
        let rule = format!("size {} bytes", size.0);
        collection.short_by = left(going, &groups[..few])?.saturating_sub(size.0);
        going.extend(groups[..few].iter().flatten().map(|id| (*id, rule.clone())));
        Ok(())
    }

    /// Why a session may not go now.
    async fn at_rest(&self, obstacles: &super::plan::Obstacles, row: &Row) -> Result<Option<Stays>> {
        if let Some(hold) = obstacles.hold_over(row.id) {
            return Ok(Some(Stays::OnHold(Box::new(hold.clone()))));
        }
        if let Some(holder) = &row.holder {
            return Ok(Some(Stays::NotAtRest(format!("{holder} works on it"))));
        }
        if !self.store.posts(row.id).await?.is_empty() {
            return Ok(Some(Stays::NotAtRest("something waits in its inbox".into())));
        }
        let pending = View::of(&self.store, row.id, None).await?.pending();
        Ok((!pending.is_empty()).then(|| Stays::NotAtRest("it is not finished".into())))
    }

    /// Removes what is due. Nothing of it goes if any of it moved meanwhile.
    pub async fn collect(
        &self,
        collection: &mut Collection,
        why: &str,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Option<Done>> {
        let quiet = self.embedded.quiet()?;
        let mut operator = operator(&self.store, self.actor.clone()).await?;
        let holds = super::Holds::of(&self.store).await?;
        let held = |due: &Due| holds.over_session(due.session.id).is_some();
        if collection.due.iter().any(held) || collection.due.is_empty() {
            // A hold came in between: what stands on what has to be worked out again.
            collection.due.clear();
            return Ok(None);
        }
        let doomed = Doomed { recorded: true, held: holds.sessions(), ..collection.doomed() };
        self.embedded.may_go(&quiet, &doomed)?;
        let mut by_rule: BTreeMap<&str, Vec<Removed>> = BTreeMap::new();
        for Due { session, rule } in &collection.due {
            let removed = Removed { session: session.id, head: session.head, records: session.seq + 1 };
            by_rule.entry(rule).or_default().push(removed);
        }
        let erased = by_rule.into_iter().map(|(rule, sessions)| Erased {
            erasure: doomed.name.clone(),
            why: why.into(),
            rule: Some(rule.into()),
            records: Vec::new(),
            sessions,
            posts: 0,
            blobs: 0,
        });
        self.carry_out(&quiet, &mut operator, &doomed, erased.collect(), progress).await.map(Some)
    }
}

impl Collection {
    fn doomed(&self) -> Doomed {
        let sessions = self.due.iter().map(|due| due.session.head_reference()).collect();
        Doomed { sessions, ..Doomed::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_sizes_are_read_as_people_write_them() {
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
