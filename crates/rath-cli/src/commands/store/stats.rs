use std::cmp::Reverse;

use anyhow::Result;
use rath::inspect::{ActiveSession, RecordTotals, StoreStatistics};
use rath::{Time, Usage};
use serde::Serialize;

use crate::commands::Answer;
use crate::commands::log::clip;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::space;
use crate::time;

/// How many days are shown; --json has all of them.
const DAYS: usize = 14;

/// Show totals: records by kind, tokens and cost by model and day, sizes, the most active sessions
#[derive(clap::Args)]
pub(crate) struct Stats {
    /// Only records since: 2h, 3d, yesterday, 2026-11-16
    #[arg(long, value_name = "TIME", value_parser = time::since)]
    since: Option<Time>,
}

/// Totals, and bytes on disk, which `--since` does not limit.
#[derive(Serialize)]
struct Counted {
    #[serde(flatten)]
    counted: StoreStatistics,
    sizes: Sizes,
}

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
        let counted =
            StoreStatistics::count(&store, self.since, time::day, &mut |records| progress.set_position(records))
                .await?;
        progress.finish_and_clear();
        let file = |name: &str| std::fs::metadata(path.join(name)).map_or(0, |file| file.len());
        let sizes = Sizes {
            database: file("rath.db") + file("rath.db-wal"),
            packs: space::disk_use(&path.join("packs")),
            search: file("search.db") + file("search.db-wal"),
            workspaces: space::disk_use(&path.join("workspaces")),
        };
        let counted = Counted { counted, sizes };
        if settings.json {
            output::json("rath.store.stats/1", &counted)?;
        } else {
            counted.page(settings).show(settings)?;
        }
        Ok(Answer::Yes)
    }
}

impl Counted {
    fn page(&self, settings: &Settings) -> Page {
        let (Sizes { database, packs, search, workspaces }, counted) = (&self.sizes, &self.counted);
        let mut page = Page::default();
        let mut row =
            |name: &str, value: String| page.line(format_args!("{} {value}", style::dim(format!("{name:<9}"))));
        if let Some(since) = counted.since {
            row("since", time::local(since));
        }
        row("sessions", format!("{} ({} closed)", output::whole(counted.sessions), output::whole(counted.closed)));
        row("records", format!("{}, {}", output::whole(counted.records), output::bytes(counted.bytes)));
        row("models", usage(&counted.usage));
        row(
            "on disk",
            format!(
                "{}: database {}, packs {}, search {}, workspaces {}",
                output::bytes(database + packs + search + workspaces),
                output::bytes(*database),
                output::bytes(*packs),
                output::bytes(*search),
                output::bytes(*workspaces)
            ),
        );
        if counted.records == 0 {
            return page;
        }
        let mut kinds: Vec<_> = counted.kinds.iter().collect();
        kinds.sort_by_key(|(name, amount)| (Reverse(amount.records), (*name).clone()));
        page.line(style::dim(format!("\n{:<16} {:>10} {:>9}", "KIND", "RECORDS", "SIZE")));
        for (kind, RecordTotals { records, bytes, .. }) in kinds {
            page.line(format_args!(
                "{:<16} {:>10} {:>9}",
                clip(kind, 30),
                output::whole(*records),
                output::bytes(*bytes)
            ));
        }
        if !counted.models.is_empty() {
            let mut models: Vec<_> = counted.models.iter().collect();
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
        let earlier = counted.days.len().saturating_sub(DAYS);
        for (day, RecordTotals { records, bytes, usage }) in counted.days.iter().skip(earlier) {
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
        for ActiveSession { session, title, amount } in &counted.active {
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
