mod reach;
mod unfinished;

use anyhow::Result;
use rath::Point;
use rath::embedded::SearchHealth;
use rath::sandbox::{Diagnosis, Local};
use rath_audit::admin::StoreAdmin;
use rath_audit::bundle::PartialImport;
use serde::Serialize;
use serde_json::json;

use self::reach::ProviderChecks;
use self::unfinished::Unfinished;
use super::Answer;
use crate::output::{self, Page, bytes, style};
use crate::settings::Settings;
use crate::space;

/// Check the store, the sandbox and the providers
///
/// Asks every provider that has a key, and servers on this machine, for their models. Of the store it reports sizes, how far the
/// indexes lag behind, unfinished runs, erasures and imports, and files that do not belong there. Exits with code 3 if something
/// is wrong.
#[derive(clap::Args)]
pub(crate) struct Doctor {
    /// Also break down the disk use of the packs (reads all versions)
    #[arg(long)]
    space: bool,
    /// Do not contact the providers
    #[arg(long)]
    offline: bool,
    /// Rebuild the search index and the record id index from the records
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
            false => Some(ProviderChecks::run(settings).await?),
        };
        let out_of_reach = reach.as_ref().is_some_and(|reach| !reach.is_well());
        let store = settings.find_store();
        let Ok(Some(path)) = store else {
            let closed = store.err();
            match settings.json {
                true if closed.is_some() => {}
                true => output::json(
                    "rath.doctor/1",
                    &json!({ "sandbox": machine, "providers": reach, "well": !out_of_reach }),
                )?,
                false => {
                    let mut page = Page::default();
                    machine.describe(&mut page);
                    reach.iter().for_each(|reach| reach.describe(&mut page));
                    page.show(settings)?;
                    if closed.is_none() {
                        output::remark("no store found here; create one with `rath init`");
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
        let unfinished = Unfinished::find(&settings.store()?, &mut |sessions| progress.set_position(sessions)).await?;
        progress.finish_and_clear();
        let erasing = match StoreAdmin::new(settings.embedded()?, settings.actor()).unfinished().await {
            Ok(erasing) if erasing.is_empty() => None,
            Ok(erasing) => Some(super::store::unfinished(erasing.len() as u64)),
            Err(error) => Some(error.to_string()),
        };
        let cut_short = PartialImport::of(&settings.store()?).await.unwrap_or_default();
        let lost: Vec<_> =
            health.packs.iter().filter(|pack| pack.bytes.is_none_or(|bytes| bytes < pack.indexed)).collect();
        let closed: Vec<_> = health.packs.iter().filter(|pack| pack.unreadable.is_some()).collect();
        let is_full = health.free_disk.is_some_and(|free| free < MIN_FREE_DISK);
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
            output::json("rath.doctor/1", &value)?;
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
                format!(
                    "{} a restore in {name} was interrupted; the next command in that workspace finishes it",
                    style::label("!")
                ),
            );
        }
        for backup in &health.backups {
            let (name, format) = (settings.shown(&backup.path), backup.format);
            let when = "delete it after `rath verify` succeeds; it still contains data that was erased since";
            row("backup", format!("{name}, {}: database of format {format}; {when}", bytes(backup.bytes)));
        }
        if let Some(quota) = settings.config()?.workspace.quota {
            let held = space::store_bytes(&path);
            let over = if held > quota { style::bad("over") } else { style::good("within") };
            row("quota", format!("{} of {}: {over}", bytes(held), bytes(quota)));
        }
        if self.space {
            let garbage = settings.embedded()?.collect(true, &mut |_| {})?;
            let other = garbage.live_bytes - garbage.version_bytes;
            row("  versions", bytes(garbage.version_bytes));
            row("  contents", bytes(other));
            row("  unused", format!("{}; free it with `rath store gc`", bytes(garbage.dead_bytes)));
        }
        row(
            "id index",
            match health.ids_behind {
                0 => "up to date".into(),
                behind => format!("{}; it catches up at the next lookup by record id", lag(behind)),
            },
        );
        row("search", search(&health.search));
        let stopped = list(&unfinished.stopped);
        if !stopped.is_empty() {
            let mark = style::label("!");
            row("stopped", format!("{mark} unfinished runs: {stopped}; continue with `rath resume`"));
        }
        let waiting = list(&unfinished.waiting);
        if !waiting.is_empty() {
            row("waiting", format!("{} waiting for answers: {waiting}; see `rath inbox`", style::label("!")));
        }
        if unfinished.posts > 0 {
            let posts = output::count(unfinished.posts, "queued message");
            row("inboxes", format!("{posts} for sessions that are not open; `rath resume` delivers them"));
        }
        if health.orphaned > 0 || !health.dead_holders.is_empty() {
            let dead = output::count(health.dead_holders.len() as u64, "process");
            let free = output::count(health.orphaned, "session");
            row(
                "holders",
                format!("{dead} ended without releasing its sessions, {free} unlocked; the next write cleans this up"),
            );
        }
        if !health.unnamed_packs.is_empty() {
            let names = health.unnamed_packs.join(", ");
            row(
                "unused",
                format!("packs not in the index: {}; remove them with `rath store gc`", output::escaped(&names)),
            );
        }
        for pack in &health.packs {
            if let Some(extra) = pack.bytes.and_then(|bytes| bytes.checked_sub(pack.indexed)).filter(|extra| *extra > 0)
            {
                let what = "that the database does not reference: left by a crash, or appended by another program";
                row("unused", format!("{} at the end of pack {} {what}", bytes(extra), pack.name));
            }
        }
        if !health.unknown_files.is_empty() {
            let names = health.unknown_files.join(", ");
            row("unknown", format!("files that are not rath's: {}; move them elsewhere", output::escaped(&names)));
        }
        for line in &unfinished.unreadable {
            page.line(format_args!(
                "{} session {}; `rath verify` names the record or message",
                style::bad("✗"),
                output::escaped(line)
            ));
        }
        for pack in lost {
            page.line(format_args!(
                "{} pack {} is missing or truncated: restore it from a backup",
                style::bad("✗"),
                pack.name
            ));
        }
        for pack in closed {
            let why = pack.unreadable.as_deref().unwrap_or_default();
            page.line(format_args!("{} pack {} cannot be read: {why}", style::bad("✗"), pack.name));
        }
        if is_full {
            let room = bytes(health.free_disk.unwrap_or_default());
            page.line(format_args!("{} the disk is full ({room} left): nothing can be recorded", style::bad("✗")));
        }
        if !health.search.damage.is_empty() {
            page.line(format_args!("{} the search index is damaged: searches may miss records", style::bad("✗")));
        }
        for line in &health.damage {
            page.line(format_args!("{} {line}", style::bad("✗")));
        }
        if let Some(erasing) = &erasing {
            page.line(format_args!("{} {}", style::bad("✗"), output::escaped(erasing)));
        }
        for line in cut_short.iter().map(super::import::cut_short) {
            page.line(format_args!("{} {line}", style::bad("✗")));
        }
        match sick {
            false => {
                page.line(format_args!("{} no problems found; `rath verify` checks every record", style::good("✓")))
            }
            true if damaged => page.line("  help: copy the directory before anything else, then run `rath verify`"),
            true => {}
        }
        if out_of_reach {
            page.line(format_args!("{} a provider has a problem: see above", style::bad("✗")));
        }
        page.show(settings)?;
        Ok(if sick || out_of_reach { Answer::No } else { Answer::Yes })
    }
}

/// Free disk space, in bytes, below which the disk counts as full: a commit may need several pages of the log.
const MIN_FREE_DISK: u64 = 256 * 1024;

/// Rebuilds the indexes.
fn reindex(settings: &Settings) -> Result<Answer> {
    let store = settings.embedded()?;
    let progress = output::spinner(settings);
    let mut records = 0;
    store.reindex(&mut |seen| {
        records = seen;
        progress.set_position(seen);
    })?;
    let ids = store.rebuild_id_index()?;
    progress.finish_and_clear();
    match settings.json {
        true => output::json("rath.doctor.reindex/1", &json!({ "search": records, "ids": ids }))?,
        false => output::answer(format_args!(
            "rebuilt the search index ({}) and the record id index ({})",
            output::count(records, "record"),
            output::count(ids, "record")
        ))?,
    }
    Ok(Answer::Yes)
}

/// Describes the state of the search index.
fn search(search: &SearchHealth) -> String {
    let cut = match search.cut {
        0 => String::new(),
        cut => format!("; only the first megabyte of each text of {} is indexed", output::count(cut, "record")),
    };
    match (search.bytes, search.behind) {
        _ if !search.damage.is_empty() => {
            format!(
                "{} damaged ({}); rebuild it with `rath doctor --reindex`",
                style::label("!"),
                output::escaped(&search.damage.join("; "))
            )
        }
        (None, _) => "none yet; the first `rath grep` creates it".into(),
        (Some(size), 0) if !search.compared => {
            format!("up to date, {}; too large to compare with the records here{cut}", bytes(size))
        }
        (Some(size), 0) => format!("up to date, {}{cut}", bytes(size)),
        (Some(size), behind) => format!("{}, {}; it catches up at the next `rath grep`{cut}", lag(behind), bytes(size)),
    }
}

fn lag(segments: u64) -> String {
    format!("{} behind", output::count(segments, "segment"))
}

/// Formats the first few sessions, and how many more there are.
fn list(points: &[Point]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<String> = points.iter().take(SHOWN).map(|point| point.session.short()).collect();
    match points.len() {
        more if more > SHOWN => format!("{} and {} more", shown.join(", "), more - SHOWN),
        _ => shown.join(", "),
    }
}

/// The sandbox isolation that works on this machine, found by trying.
#[derive(Serialize)]
struct Machine {
    /// Isolation level of the `local` backend; `None` if it cannot isolate.
    tier: Option<String>,
    refusals: Vec<String>,
    not_enforced: Vec<String>,
}

impl Machine {
    fn look() -> Self {
        let local = Local::new();
        let Diagnosis { level: tier, refusals, not_enforced } = local.diagnose();
        Self {
            tier: tier.map(|tier| tier.to_string()),
            refusals: refusals.iter().map(ToString::to_string).collect(),
            not_enforced: not_enforced.clone(),
        }
    }

    fn describe(&self, page: &mut Page) {
        let (mark, tier) = match self.tier.as_deref() {
            Some("ns") => (style::good("✓"), "namespaces, Landlock and seccomp (level ns)"),
            Some(_) => (style::label("!"), "Landlock and seccomp, no namespaces (level landlock)"),
            None => (style::bad("✗"), "nothing: commands run only on `host`, not isolated"),
        };
        page.line(format_args!("{:<12} {mark} `local` isolates with {tier}", "sandbox"));
        for refusal in &self.refusals {
            page.line(format_args!("{:<12} not available: {}", "", output::escaped(refusal)));
        }
        for lack in &self.not_enforced {
            page.line(format_args!("{:<12} {}", "", style::dim(format!("limited: {lack}"))));
        }
    }
}
