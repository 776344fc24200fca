mod reach;

use anyhow::Result;
use rath::sandbox::{Diagnosis, Local};
use serde::Serialize;
use serde_json::json;

use self::reach::Reach;
use super::Answer;
use crate::output::{self, Page, bytes, style};
use crate::settings::Settings;
use crate::space;

/// Look at the store's health, at what this machine can isolate, and at the providers: what is wrong, what to do
///
/// Every provider whose key is at hand is asked which models it offers, and servers on this machine.
#[derive(clap::Args)]
pub(crate) struct Doctor {
    /// Walk all versions and say what takes the room in the packs
    #[arg(long)]
    space: bool,
    /// Do not ask the providers
    #[arg(long)]
    offline: bool,
}

impl Doctor {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let machine = Machine::look();
        let reach = match self.offline {
            true => None,
            false => Some(Reach::look(settings).await?),
        };
        let out_of_reach = reach.as_ref().is_some_and(|reach| !reach.is_well());
        if settings.store_path().is_err() && settings.named_store.is_none() {
            match settings.json {
                true => output::json(&json!({ "sandbox": machine, "providers": reach, "well": !out_of_reach }))?,
                false => {
                    let mut page = Page::default();
                    machine.describe(&mut page);
                    reach.iter().for_each(|reach| reach.describe(&mut page));
                    page.show(settings)?;
                    output::remark("there is no store here; `rath init` makes one");
                }
            }
            return Ok(if out_of_reach { Answer::No } else { Answer::Yes });
        }
        let path = settings.store_path()?;
        let health = settings.embedded()?.health()?;
        let lost: Vec<_> =
            health.packs.iter().filter(|pack| pack.bytes.is_none_or(|bytes| bytes < pack.indexed)).collect();
        let sick = !health.damage.is_empty() || !lost.is_empty();
        if settings.json {
            let mut value = serde_json::to_value(&health)?;
            value["store"] = serde_json::to_value(&path)?;
            value["well"] = (!sick && !out_of_reach).into();
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
            row("  versions", format!("{} in packs", bytes(garbage.version_bytes)));
            row("  contents", format!("{} in packs", bytes(other)));
            row("  unnamed", format!("{} in packs; `rath gc` gives it back", bytes(garbage.dead_bytes)));
        }
        row(
            "id index",
            match health.ids_behind {
                0 => "up to date".into(),
                behind => format!("{behind} segments behind; it catches up when a record is asked for by id"),
            },
        );
        if health.orphaned > 0 || !health.dead_holders.is_empty() {
            let dead = health.dead_holders.len();
            row("holders", format!("{dead} gone without leave, {} sessions free to take", health.orphaned));
        }
        for pack in lost {
            page.line(format_args!(
                "{} pack {} is missing or cut: restore it from a backup",
                style::bad("✗"),
                pack.name
            ));
        }
        for line in &health.damage {
            page.line(format_args!("{} {line}", style::bad("✗")));
        }
        match sick {
            false => page.line(format_args!("{} well; `rath verify` checks every record", style::good("✓"))),
            true => page.line("  help: copy the directory before anything else, then run `rath verify`"),
        }
        page.show(settings)?;
        Ok(if sick || out_of_reach { Answer::No } else { Answer::Yes })
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
