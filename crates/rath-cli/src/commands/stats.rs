use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use anyhow::Result;
use rath::body::ModelResponded;
use rath::store::{Query, Scan};
use rath::{Kind, Record, SessionId, Store, Time, Usage};
use serde::Serialize;

use super::Answer;
use super::log::clip;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::space;
use crate::time;

/// Days that are shown; with --json all are.
const DAYS: usize = 14;

/// Sessions that are shown.
const ACTIVE: usize = 10;

/// Count what the store holds: records by kind, tokens and cost by model and day, sizes, the most active sessions
#[derive(clap::Args)]
pub(crate) struct Stats {
    /// Only records since
    #[arg(long, value_name = "TIME", value_parser = time::since)]
    since: Option<Time>,
}

/// What was counted.
#[derive(Default, Serialize)]
struct Counted {
    since: Option<Time>,
    sessions: u64,
    closed: u64,
    records: u64,
    /// Bytes of records.
    bytes: u64,
    usage: Usage,
    kinds: BTreeMap<String, Amount>,
    models: BTreeMap<String, Usage>,
    days: BTreeMap<String, Amount>,
    /// The sessions with the most records, the most first.
    active: Vec<Active>,
    sizes: Sizes,
}

#[derive(Clone, Copy, Default, Serialize)]
struct Amount {
    records: u64,
    bytes: u64,
    usage: Usage,
}

#[derive(Serialize)]
struct Active {
    session: SessionId,
    title: Option<String>,
    #[serde(flatten)]
    amount: Amount,
}

/// Bytes on disk, whatever the time.
#[derive(Default, Serialize)]
struct Sizes {
    database: u64,
    packs: u64,
    search: u64,
    workspaces: u64,
}

impl Stats {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let path = settings.store_path()?;
        let progress = output::spinner(settings);
        let mut counted = count(&store, self.since, &mut |records| progress.set_position(records)).await?;
        progress.finish_and_clear();
        let file = |name: &str| std::fs::metadata(path.join(name)).map_or(0, |file| file.len());
        counted.sizes = Sizes {
            database: file("rath.db") + file("rath.db-wal"),
            packs: space::disk_use(&path.join("packs")),
            search: file("search.db") + file("search.db-wal"),
            workspaces: space::disk_use(&path.join("workspaces")),
        };
        match settings.json {
            true => output::json(&counted)?,
            false => counted.page(settings).show(settings)?,
        }
        Ok(Answer::Yes)
    }
}

async fn count(store: &Arc<dyn Store>, since: Option<Time>, progress: &mut dyn FnMut(u64)) -> Result<Counted> {
    let mut counted = Counted { since, ..Counted::default() };
    let mut sessions: HashMap<SessionId, Amount> = HashMap::new();
    let mut day = Day::default();
    let (mut scan, mut seen) = (Scan::all(), 0);
    loop {
        let page = store.scan(scan).await?;
        seen += page.records.len() as u64;
        progress(seen);
        for record in &page.records {
            let time = record.time()?;
            if since.is_some_and(|since| time < since) {
                continue;
            }
            let (model, amount) = Amount::of(record);
            counted.records += 1;
            counted.bytes += amount.bytes;
            counted.usage += amount.usage;
            counted.kinds.entry(record.kind().to_string()).or_default().add(amount);
            counted.days.entry(day.of(time).to_owned()).or_default().add(amount);
            sessions.entry(record.session()).or_default().add(amount);
            if let Some(model) = model {
                *counted.models.entry(model).or_default() += amount.usage;
            }
        }
        if !page.more {
            break;
        }
        scan = Scan::store(page.cursor);
    }
    let rows = store.sessions(Query::default()).await?;
    counted.sessions = sessions.len() as u64;
    counted.closed = rows.iter().filter(|row| row.closed && sessions.contains_key(&row.id)).count() as u64;
    let mut active: Vec<Active> = rows
        .into_iter()
        .filter_map(|row| Some(Active { amount: *sessions.get(&row.id)?, session: row.id, title: row.title }))
        .collect();
    active.sort_by_key(|active| Reverse(active.amount.records));
    active.truncate(ACTIVE);
    counted.active = active;
    Ok(counted)
}

impl Amount {
    /// A record, and the model that answered, where it says one did.
    fn of(record: &Record) -> (Option<String>, Self) {
        let mut amount = Self { records: 1, bytes: record.size() as u64, usage: Usage::default() };
        if *record.kind() != Kind::ModelResponded {
            return (None, amount);
        }
        let Ok(body) = record.body::<ModelResponded>() else { return (None, amount) };
        amount.usage = body.usage;
        (Some(body.model.unwrap_or_else(|| "(unknown)".into())), amount)
    }

    fn add(&mut self, other: Self) {
        self.records += other.records;
        self.bytes += other.bytes;
        self.usage += other.usage;
    }
}

/// Remembers the last hour, and which day it is of: neighbours are of the same, mostly.
#[derive(Default)]
struct Day {
    hour: u64,
    name: String,
}

impl Day {
    fn of(&mut self, time: Time) -> &str {
        // Time zones differ by quarters of an hour.
        let hour = time.0 / 900_000_000;
        if self.name.is_empty() || hour != self.hour {
            *self = Self { hour, name: time::day(time) };
        }
        &self.name
    }
}

impl Counted {
    fn page(&self, settings: &Settings) -> Page {
        let mut page = Page::default();
        let mut row =
            |name: &str, value: String| page.line(format_args!("{} {value}", style::dim(format!("{name:<9}"))));
        if let Some(since) = self.since {
            row("since", time::local(since));
        }
        row("sessions", format!("{} ({} closed)", output::whole(self.sessions), output::whole(self.closed)));
        row("records", format!("{}, {}", output::whole(self.records), output::bytes(self.bytes)));
        row("models", usage(&self.usage));
        let Sizes { database, packs, search, workspaces } = self.sizes;
        row(
            "on disk",
            format!(
                "{}: database {}, packs {}, search {}, workspaces {}",
                output::bytes(database + packs + search + workspaces),
                output::bytes(database),
                output::bytes(packs),
                output::bytes(search),
                output::bytes(workspaces)
            ),
        );
        if self.records == 0 {
            return page;
        }
        let mut kinds: Vec<_> = self.kinds.iter().collect();
        kinds.sort_by_key(|(name, amount)| (Reverse(amount.records), (*name).clone()));
        page.line(style::dim(format!("\n{:<16} {:>10} {:>9}", "KIND", "RECORDS", "SIZE")));
        for (kind, Amount { records, bytes, .. }) in kinds {
            page.line(format_args!(
                "{:<16} {:>10} {:>9}",
                clip(kind, 30),
                output::whole(*records),
                output::bytes(*bytes)
            ));
        }
        if !self.models.is_empty() {
            let mut models: Vec<_> = self.models.iter().collect();
            models.sort_by_key(|(name, usage)| {
                (Reverse(usage.cost_nano_usd), Reverse(usage.input_tokens), (*name).clone())
            });
            page.line(style::dim(format!(
                "\n{:>8} {:>12} {:>12} {:>9}  MODEL",
                "ANSWERS", "TOKENS IN", "TOKENS OUT", "COST"
            )));
            for (model, usage) in models {
                page.line(format_args!(
                    "{:>8} {:>12} {:>12} {:>9}  {}",
                    output::whole(usage.requests),
                    output::whole(usage.input_tokens),
                    output::whole(usage.output_tokens),
                    output::dollars(usage.cost_nano_usd),
                    clip(model, 60)
                ));
            }
        }
        page.line(style::dim(format!(
            "\n{:<10} {:>10} {:>9} {:>12} {:>12} {:>9}",
            "DAY", "RECORDS", "SIZE", "TOKENS IN", "TOKENS OUT", "COST"
        )));
        let earlier = self.days.len().saturating_sub(DAYS);
        for (day, Amount { records, bytes, usage }) in self.days.iter().skip(earlier) {
            page.line(format_args!(
                "{day:<10} {:>10} {:>9} {:>12} {:>12} {:>9}",
                output::whole(*records),
                output::bytes(*bytes),
                output::whole(usage.input_tokens),
                output::whole(usage.output_tokens),
                output::dollars(usage.cost_nano_usd)
            ));
        }
        if earlier > 0 {
            page.line(style::dim(format!("and {} before; --json has all", output::count(earlier as u64, "day"))));
        }
        page.line(style::dim(format!("\n{:<8} {:>10} {:>9} {:>9}  MOST ACTIVE", "SESSION", "RECORDS", "SIZE", "COST")));
        for Active { session, title, amount } in &self.active {
            page.line(format_args!(
                "{} {:>10} {:>9} {:>9}  {}",
                style::session(session.short()),
                output::whole(amount.records),
                output::bytes(amount.bytes),
                output::dollars(amount.usage.cost_nano_usd),
                style::title(clip(title.as_deref().unwrap_or("(untitled)"), settings.width.saturating_sub(42).max(12)))
            ));
        }
        page
    }
}

fn usage(usage: &Usage) -> String {
    let answers = output::count(usage.requests, "answer");
    let tokens = format!("{} tokens in, {} out", output::whole(usage.input_tokens), output::whole(usage.output_tokens));
    match usage.cost_nano_usd {
        0 => format!("{answers}, {tokens}"),
        cost => format!("{answers}, {tokens}, {}", output::dollars(cost)),
    }
}
