mod reach;
mod unfinished;

use anyhow::Result;
use rath::sandbox::{Diagnosis, Local};
use rath::{Point, SearchHealth};
use rath_audit::bundle::CutShort;
use rath_audit::care::Care;
use serde::Serialize;
use serde_json::json;

use self::reach::Reach;
use self::unfinished::Unfinished;
use super::Answer;
use crate::output::{self, Page, bytes, style};
use crate::settings::Settings;
use crate::space;

/// Look at the store's health, at what this machine can isolate, and at the providers: what is wrong, what to do
///
/// Every provider whose key is at hand is asked which models it offers, and servers on this machine. Of the store: sizes,
/// how far its indexes lag, work that stopped and nobody holds, erasures and imports that did not come to their end, files that do
/// not belong there. Exit code 3 when something is wrong.
#[derive(clap::Args)]
pub(crate) struct Doctor {
    /// Walk all versions and say what takes the room in the packs
    #[arg(long)]
    space: bool,
    /// Do not ask the providers
    #[arg(long)]
    offline: bool,
    /// Make the indexes anew from the records: those of words and of record ids
    #[arg(long)]
    reindex: bool,
}

impl Doctor {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        if self.reindex {
            return reindex(settings);
        }
        let machine = Machine::look();
        let reach = match self.offline {
            true => None,
            false => Some(Reach::look(settings).await?),
        };
        let out_of_reach = reach.as_ref().is_some_and(|reach| !reach.is_well());
        let store = settings.find_store();
        let Ok(Some(path)) = store else {
            let closed = store.err();
            match settings.json {
                true if closed.is_some() => {}
                true => output::json(&json!({ "sandbox": machine, "providers": reach, "well": !out_of_reach }))?,
                false => {
                    let mut page = Page::default();
                    machine.describe(&mut page);
                    reach.iter().for_each(|reach| reach.describe(&mut page));
                    page.show(settings)?;
                    if closed.is_none() {
                        output::remark("there is no store here; `rath init` makes one");
                    }
                }
            }
            return match closed {
                Some(closed) => Err(closed),
                None if out_of_reach => Ok(Answer::No),
                None => Ok(Answer::Yes),
            };
        };
        let health = settings.embedded()?.health()?;
        let progress = output::spinner(settings);
        let unfinished = Unfinished::look(&settings.store()?, &mut |sessions| progress.set_position(sessions)).await?;
        progress.finish_and_clear();
        let erasing = match Care::new(settings.embedded()?, settings.actor()).unfinished().await {
            Ok(erasing) if erasing.is_empty() => None,
            Ok(erasing) => Some(super::erase::unfinished(erasing.len() as u64)),
            Err(error) => Some(error.to_string()),
        };
        let cut_short = CutShort::of(&settings.store()?).await.unwrap_or_default();
        let lost: Vec<_> =
            health.packs.iter().filter(|pack| pack.bytes.is_none_or(|bytes| bytes < pack.indexed)).collect();
        let closed: Vec<_> = health.packs.iter().filter(|pack| pack.unreadable.is_some()).collect();
        let is_full = health.room.is_some_and(|room| room < ROOM);
        let damaged = !health.damage.is_empty() || !lost.is_empty() || !unfinished.unreadable.is_empty();
        let unwell = erasing.is_some() || !cut_short.is_empty() || is_full || !closed.is_empty();
        let sick = damaged || unwell || !health.search.damage.is_empty();
        if settings.json {
            let mut value = serde_json::to_value(&health)?;
            value["store"] = serde_json::to_value(&path)?;
            value["well"] = (!sick && !out_of_reach).into();
            value["store_well"] = (!sick).into();
            value["unfinished"] = serde_json::to_value(&unfinished)?;
            value["unfinished_erasure"] = erasing.into();
            value["unfinished_imports"] = serde_json::to_value(&cut_short)?;
            value["providers"] = serde_json::to_value(&reach)?;
            value["sandbox"] = serde_json::to_value(&machine)?;
            value["open_sandboxes"] = serde_json::to_value(space::open_sandboxes(&path))?;
            value["workspaces_bytes"] = space::disk_use(&path.join("workspaces")).into();
            if self.space {
                value["space"] = serde_json::to_value(settings.embedded()?.collect(true, &mut |_| {})?)?;
            }
            output::json(&value)?;
            return Ok(if sick || out_of_reach { Answer::No } else { Answer::Yes });
        }
        let mut page = Page::default();
        let mut row = |name: &str, value: String| page.line(format_args!("{:<12} {value}", name));
        row("store", format!("{} (format {}, SQLite {})", settings.shown(&path), health.format, health.sqlite));
        machine.describe(&mut page);
        reach.iter().for_each(|reach| reach.describe(&mut page));
        let mut row = |name: &str, value: String| page.line(format_args!("{:<12} {value}", name));
        row("sessions", format!("{} ({} closed)", health.sessions, health.closed));
        row("records", format!("{} in {} segments", health.records, health.segments));
        row("database", format!("{}, log {}", bytes(health.database_bytes), bytes(health.log_bytes)));
        let packed: u64 = health.packs.iter().filter_map(|pack| pack.bytes).sum();
        row("packs", format!("{} with {}", health.packs.len(), bytes(packed)));
        let copies = space::disk_use(&path.join("workspaces"));
        if copies > 0 {
            row("workspaces", format!("{} of copies and indexes", bytes(copies)));
        }
        let open = space::open_sandboxes(&path);
        if !open.is_empty() {
            let processes: Vec<String> = open.iter().map(|open| open.process.to_string()).collect();
            row(
                "open",
                format!("{} in use, by process {}", output::count(open.len() as u64, "sandbox"), processes.join(", ")),
            );
        }
        for unfinished in space::unfinished(&path) {
            let name = settings.shown(&unfinished);
            row(
                "restore",
                format!("{} one in {name} was interrupted; the next command there ends it", style::label("!")),
            );
        }
        for backup in &health.backups {
            let (name, format) = (settings.shown(&backup.path), backup.format);
            let when = "delete it when `rath verify` finds the store sound: it still has what was erased since";
            row("backup", format!("{name}, {}: the database of format {format}; {when}", bytes(backup.bytes)));
        }
        if let Some(quota) = settings.config()?.workspace.quota {
            let held = space::held(&path);
            let over = if held > quota { style::bad("over") } else { style::good("within") };
            row("quota", format!("{} of {}: {over}", bytes(held), bytes(quota)));
        }
        if self.space {
            let garbage = settings.embedded()?.collect(true, &mut |_| {})?;
            let other = garbage.live_bytes - garbage.version_bytes;
            row("  versions", bytes(garbage.version_bytes));
            row("  contents", bytes(other));
            row("  unnamed", format!("{}; `rath gc` gives it back", bytes(garbage.dead_bytes)));
        }
        row(
            "id index",
            match health.ids_behind {
                0 => "up to date".into(),
                behind => format!("{}; it catches up when a record is asked for by id", lag(behind)),
            },
        );
        row("search", search(&health.search));
        let stopped = list(&unfinished.stopped);
        if !stopped.is_empty() {
            let mark = style::label("!");
            row("stopped", format!("{mark} work is not done and nobody is at it: {stopped}; `rath resume` goes on"));
        }
        let waiting = list(&unfinished.waiting);
        if !waiting.is_empty() {
            row("waiting", format!("{} a person is asked: {waiting}; `rath inbox` shows what", style::label("!")));
        }
        if unfinished.posts > 0 {
            let posts = output::count(unfinished.posts, "post");
            row("inboxes", format!("{posts} for sessions that nobody holds; `rath resume` takes them in"));
        }
        if health.orphaned > 0 || !health.dead_holders.is_empty() {
            let dead = output::count(health.dead_holders.len() as u64, "holder");
            let free = output::count(health.orphaned, "session");
            row(
                "holders",
                format!("{dead} gone without leave, {free} free to take; the next who writes clears that up"),
            );
        }
        if !health.unnamed_packs.is_empty() {
            let names = health.unnamed_packs.join(", ");
            row("unnamed", format!("packs that no index names: {}; `rath gc` removes them", output::harmless(&names)));
        }
        if !health.strangers.is_empty() {
            let names = health.strangers.join(", ");
            row("strangers", format!("not of rath: {}; move them elsewhere", output::harmless(&names)));
        }
        for line in &unfinished.unreadable {
            page.line(format_args!(
                "{} session {}; `rath verify` says which record or post it is",
                style::bad("✗"),
                output::harmless(line)
            ));
        }
        for pack in lost {
            page.line(format_args!(
                "{} pack {} is missing or cut: restore it from a backup",
                style::bad("✗"),
                pack.name
            ));
        }
        for pack in closed {
            let why = pack.unreadable.as_deref().unwrap_or_default();
            page.line(format_args!("{} pack {} cannot be read: {why}", style::bad("✗"), pack.name));
        }
        if is_full {
            let room = bytes(health.room.unwrap_or_default());
            page.line(format_args!("{} the disk is full, {room} are left: nothing can be recorded", style::bad("✗")));
        }
        if !health.search.damage.is_empty() {
            page.line(format_args!("{} searches may miss something: see above", style::bad("✗")));
        }
        for line in &health.damage {
            page.line(format_args!("{} {line}", style::bad("✗")));
        }
        if let Some(erasing) = &erasing {
            page.line(format_args!("{} {}", style::bad("✗"), output::harmless(erasing)));
        }
        for line in cut_short.iter().map(super::import::cut_short) {
            page.line(format_args!("{} {line}", style::bad("✗")));
        }
        match sick {
            false => {
                page.line(format_args!("{} the store is well; `rath verify` checks every record", style::good("✓")))
            }
            true if damaged => page.line("  help: copy the directory before anything else, then run `rath verify`"),
            true => {}
        }
        if out_of_reach {
            page.line(format_args!("{} a provider is not: see above", style::bad("✗")));
        }
        page.show(settings)?;
        Ok(if sick || out_of_reach { Answer::No } else { Answer::Yes })
    }
}

/// With less room on the disk than this there is none: a commit takes a page or two of the log, and more.
const ROOM: u64 = 256 * 1024;

/// Makes the indexes anew.
fn reindex(settings: &Settings) -> Result<Answer> {
    let store = settings.embedded()?;
    let progress = output::spinner(settings);
    let mut records = 0;
    store.reindex(&mut |seen| {
        records = seen;
        progress.set_position(seen);
    })?;
    let ids = store.reindex_ids()?;
    progress.finish_and_clear();
    match settings.json {
        true => output::json(&json!({ "search": records, "ids": ids }))?,
        false => output::answer(format_args!(
            "made anew: the search index over {}, the index of record ids over {}",
            output::count(records, "record"),
            output::count(ids, "record")
        ))?,
    }
    Ok(Answer::Yes)
}

/// What is said of the search index.
fn search(search: &SearchHealth) -> String {
    let cut = match search.cut {
        0 => String::new(),
        cut => format!("; of {} only the first megabyte of a text is indexed", output::count(cut, "record")),
    };
    match (search.bytes, search.behind) {
        _ if !search.damage.is_empty() => {
            format!(
                "{} damaged ({}); `rath doctor --reindex` makes it anew",
                style::label("!"),
                output::harmless(&search.damage.join("; "))
            )
        }
        (None, _) => "none yet; the first `rath grep` makes it".into(),
        (Some(size), 0) if !search.compared => {
            format!("up to date, {}; too large to be held against the records here{cut}", bytes(size))
        }
        (Some(size), 0) => format!("up to date, {}{cut}", bytes(size)),
        (Some(size), behind) => format!("{}, {}; it catches up at the next `rath grep`{cut}", lag(behind), bytes(size)),
    }
}

fn lag(segments: u64) -> String {
    format!("{} behind", output::count(segments, "segment"))
}

/// Some places, and how many more.
fn list(points: &[Point]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<String> = points.iter().take(SHOWN).map(|point| point.session.short()).collect();
    match points.len() {
        more if more > SHOWN => format!("{} and {} more", shown.join(", "), more - SHOWN),
        _ => shown.join(", "),
    }
}

/// What this machine can isolate, found by trying.
#[derive(Serialize)]
struct Machine {
    /// The tier that `local` gives; none when it gives nothing.
    tier: Option<String>,
    refusals: Vec<String>,
    not_enforced: Vec<String>,
}

impl Machine {
    fn look() -> Self {
        let local = Local::new();
        let Diagnosis { tier, refusals, not_enforced } = local.diagnose();
        Self {
            tier: tier.map(|tier| tier.to_string()),
            refusals: refusals.iter().map(ToString::to_string).collect(),
            not_enforced: not_enforced.clone(),
        }
    }

    fn describe(&self, page: &mut Page) {
        let (mark, tier) = match self.tier.as_deref() {
            Some("ns") => (style::good("✓"), "namespaces, Landlock and seccomp (tier ns)"),
            Some(_) => (style::label("!"), "Landlock and seccomp, no namespaces (tier landlock)"),
            None => (style::bad("✗"), "nothing: commands run only with `--on host`, unisolated"),
        };
        page.line(format_args!("{:<12} {mark} `local` isolates by {tier}", "sandbox"));
        for refusal in &self.refusals {
            page.line(format_args!("{:<12} refused here: {}", "", output::harmless(refusal)));
        }
        for lack in &self.not_enforced {
            page.line(format_args!("{:<12} {}", "", style::dim(format!("not exact: {lack}"))));
        }
    }
}
