use anyhow::Result;
use rath_audit::care::{Age, Care, Collection, Policy, Size};
use serde_json::json;

use super::{Answer, erase};
use crate::expression;
use crate::output::{self, Page, bytes, count, style};
use crate::settings::Settings;
use crate::time;

/// Remove sessions that the retention policy does not keep, and give back the room of blobs that no record names
///
/// The policy is in the configuration ([retention]) or in the flags below, which then are the whole policy. Without one,
/// no session goes. A session goes whole, and only with everything that stands on it: forks, and what took it in. Never
/// one that is held, at work, waiting or not finished. What went is on the record of the store's operator session.
#[derive(clap::Args)]
pub(crate) struct Gc {
    /// Sessions that have not changed for longer than this: 12h, 90d, 2w, 1y
    #[arg(long, value_name = "AGE")]
    older_than: Option<Age>,
    /// Only sessions with this label (NAME or NAME=VALUE)
    #[arg(long, value_name = "LABEL")]
    label: Option<String>,
    /// The sessions that rested longest, until records, blobs and copies of files take no more than this: 500MB, 10GB
    #[arg(long, value_name = "SIZE")]
    to_size: Option<Size>,
    /// The reason that goes on the record
    #[arg(long, value_name = "TEXT", default_value = "retention", value_parser = super::reason)]
    why: String,
    /// Only say what would go, and why
    #[arg(long)]
    dry_run: bool,
    /// Do not ask before sessions go
    #[arg(long, short)]
    yes: bool,
}

impl Gc {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let care = Care::new(settings.embedded()?, settings.actor());
        if !self.dry_run {
            erase::finish(settings, &care, false).await?;
        }
        let policy = self.policy(settings)?;
        let mut collection = Collection::default();
        let mut removed = None;
        let mut answer = Answer::Yes;
        if !policy.is_empty() {
            let progress = output::spinner(settings);
            collection = care.due(&policy, &mut |records| progress.set_position(records)).await?;
            progress.finish_and_clear();
            if !settings.json {
                tell(&collection, settings)?;
            }
            if !self.dry_run && !collection.due.is_empty() {
                if !self.yes && !output::confirm("Remove these sessions? It cannot be undone.")? {
                    output::remark("nothing was removed");
                    return Ok(Answer::No);
                }
                let progress = output::spinner(settings);
                removed = care.collect(&mut collection, &self.why, &mut |n| progress.set_position(n)).await?;
                progress.finish_and_clear();
                match &removed {
                    Some(done) if !settings.json => {
                        output::remark(format_args!(
                            "removed {}, {} and {} went back to the disk; on the record at {}",
                            count(collection.due.len() as u64, "session"),
                            count(done.destroyed.blobs, "blob"),
                            bytes(done.destroyed.freed),
                            done.record.point()
                        ));
                        erase::tell_backups(settings, &done.destroyed);
                    }
                    Some(_) => {}
                    None => {
                        answer = Answer::No;
                        output::remark("a hold was placed meanwhile: no session went\n  help: try again");
                    }
                }
            }
        }
        drop(care);
        let progress = output::spinner(settings);
        let garbage = settings.embedded()?.collect(self.dry_run, &mut |records| progress.set_position(records))?;
        progress.finish_and_clear();
        if settings.json {
            let mut value = serde_json::to_value(&garbage)?;
            if let Some(fields) = value.as_object_mut().filter(|_| !policy.is_empty()) {
                fields.insert("retention".into(), json!({ "plan": collection, "done": removed }));
            }
            output::json(&value)?;
            return Ok(answer);
        }
        let (dead, size) = (count(garbage.dead, "blob"), bytes(garbage.dead_bytes));
        match self.dry_run {
            true => output::answer(format_args!("{dead} that no record names, {size}"))?,
            false => {
                output::answer(format_args!("removed {dead}, {size}; {} went back to the disk", bytes(garbage.freed)))?
            }
        }
        output::remark(format_args!(
            "{} live, {}; of that, versions of files: {}",
            count(garbage.live, "blob"),
            bytes(garbage.live_bytes),
            bytes(garbage.version_bytes)
        ));
        Ok(answer)
    }

    fn policy(&self, settings: &Settings) -> Result<Policy> {
        match (self.older_than, self.to_size) {
            (None, None) if self.label.is_some() => Err(expression::unclear(
                "--label says which sessions, not when they go\n  help: add --older-than AGE or --to-size SIZE",
            )),
            (None, None) => Ok(settings.config()?.retention),
            (keep, size) => Ok(Policy { keep, size, only: self.label.clone(), ..Policy::default() }),
        }
    }
}

/// What goes and what stays, and why.
fn tell(collection: &Collection, settings: &Settings) -> Result<()> {
    let mut page = Page::default();
    for due in &collection.due {
        let row = &due.session;
        page.line(format_args!(
            "{}  {:<11}  {}  {}",
            style::session(row.id.short()),
            time::ago(row.time),
            style::title(super::log::clip(&rath::inspect::session_title(row), 50)),
            style::dim(format!("({})", due.rule))
        ));
    }
    page.show(settings)?;
    for kept in &collection.kept {
        let why = output::harmless(&kept.why.to_string());
        output::remark(format_args!("{} stays: {why}", kept.session.short()));
    }
    let room = collection.record_bytes + collection.weight.blob_bytes + collection.weight.place_bytes;
    output::remark(match collection.due.len() {
        0 => "no session goes".to_owned(),
        due => format!("{}, about {}", count(due as u64, "session"), bytes(room)),
    });
    if collection.short_by > 0 {
        let more = bytes(collection.short_by);
        output::remark(format_args!("the store stays {more} above that size: what is left is held or not at rest"));
    }
    Ok(())
}
