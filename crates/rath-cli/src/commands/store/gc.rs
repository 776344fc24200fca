use anyhow::Result;
use rath::embedded::GcReport;
use rath_audit::admin::{Age, Collection, CompletedErasure, RetentionPolicy, Size, StoreAdmin};
use serde::Serialize;

use super::erase;
use crate::commands::Answer;
use crate::expression;
use crate::output::{self, Page, bytes, count, style};
use crate::settings::Settings;
use crate::time;

/// Delete expired sessions and unreferenced blobs
///
/// The retention policy is in the configuration ([retention]). Flags that name a policy replace it. Without a policy, no
/// session is deleted. A session is deleted whole, together with everything that is based on it: its forks, and sessions
/// that merged it. A session under a legal hold, at work, waiting or unfinished is kept. The store's audit session
/// records what was deleted.
#[derive(clap::Args)]
pub(crate) struct Gc {
    /// Delete sessions that have not changed for longer than this: 12h, 90d, 2w, 1y
    #[arg(long, value_name = "AGE")]
    older_than: Option<Age>,
    /// Only sessions with this label, NAME or NAME=VALUE
    #[arg(long, value_name = "LABEL")]
    label: Option<String>,
    /// Delete the least recently changed sessions until the store takes no more than this: 500MB, 10GB
    #[arg(long, value_name = "SIZE")]
    to_size: Option<Size>,
    /// The reason, which is recorded
    #[arg(long, value_name = "TEXT", default_value = "retention", value_parser = crate::commands::reason)]
    why: String,
    /// Only show what would be deleted, and why
    #[arg(long)]
    dry_run: bool,
    /// Do not ask before sessions are deleted
    #[arg(long, short)]
    yes: bool,
}

/// What was deleted.
#[derive(Serialize)]
struct Collected {
    #[serde(flatten)]
    garbage: GcReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    retention: Option<Retention>,
}

#[derive(Serialize)]
struct Retention {
    plan: Collection,
    done: Option<CompletedErasure>,
}

impl Gc {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let admin = StoreAdmin::new(settings.embedded()?, settings.actor());
        if !self.dry_run {
            erase::finish(settings, &admin, false).await?;
        }
        let policy = self.policy(settings)?;
        let mut collection = Collection::default();
        let mut removed = None;
        let mut answer = Answer::Yes;
        if !policy.is_empty() {
            let progress = output::spinner(settings);
            collection = admin.due(&policy, &mut |records| progress.set_position(records)).await?;
            progress.finish_and_clear();
            if !settings.json {
                preview(&collection, settings)?;
            }
            if !self.dry_run && !collection.due.is_empty() {
                if !self.yes && !output::confirm("Delete these sessions? It cannot be undone.")? {
                    output::remark("nothing was deleted");
                    return Ok(Answer::No);
                }
                let progress = output::spinner(settings);
                removed = admin.collect(&mut collection, &self.why, &mut |n| progress.set_position(n)).await?;
                progress.finish_and_clear();
                match &removed {
                    Some(done) if !settings.json => {
                        output::remark(format_args!(
                            "deleted {} and {}, freed {}; recorded at {}",
                            count(collection.due.len() as u64, "session"),
                            count(done.destroyed.blobs, "blob"),
                            bytes(done.destroyed.freed),
                            done.record.point()
                        ));
                        erase::remark_backups(settings, &done.destroyed);
                    }
                    Some(_) => {}
                    None => {
                        answer = Answer::No;
                        output::remark("aborted: a hold was added; no sessions were deleted\n  help: try again");
                    }
                }
            }
        }
        drop(admin);
        let progress = output::spinner(settings);
        let garbage = settings.embedded()?.collect(self.dry_run, &mut |records| progress.set_position(records))?;
        progress.finish_and_clear();
        if settings.json {
            let retention = Retention { plan: collection, done: removed };
            let collected = Collected { garbage, retention: Some(retention).filter(|_| !policy.is_empty()) };
            output::json("rath.store.gc/1", &collected)?;
            return Ok(answer);
        }
        let (dead, size) = (count(garbage.dead, "blob"), bytes(garbage.dead_bytes));
        match self.dry_run {
            true => output::answer(format_args!("{dead} unreferenced, {size}"))?,
            false => output::answer(format_args!("deleted {dead}, {size}; freed {}", bytes(garbage.freed)))?,
        }
        output::remark(format_args!(
            "{} live, {}; of that, versions of files: {}",
            count(garbage.live, "blob"),
            bytes(garbage.live_bytes),
            bytes(garbage.version_bytes)
        ));
        Ok(answer)
    }

    fn policy(&self, settings: &Settings) -> Result<RetentionPolicy> {
        match (self.older_than, self.to_size) {
            (None, None) if self.label.is_some() => Err(expression::usage_error(
                "--label selects sessions but gives no age or size\n  help: add --older-than AGE or --to-size SIZE",
            )),
            (None, None) => Ok(settings.config()?.retention),
            (keep, size) => Ok(RetentionPolicy { keep, size, only: self.label.clone(), ..RetentionPolicy::default() }),
        }
    }
}

/// Prints what would be deleted and what stays, and why.
fn preview(collection: &Collection, settings: &Settings) -> Result<()> {
    let mut page = Page::default();
    for due in &collection.due {
        let row = &due.session;
        page.line(format_args!(
            "{}  {:<11}  {}  {}",
            style::session(row.id.short()),
            time::ago(row.time),
            style::title(crate::commands::log::clip(&rath::inspect::session_title(row), 50)),
            style::dim(format!("({})", due.rule))
        ));
    }
    page.show(settings)?;
    for kept in &collection.kept {
        let why = output::escaped(&kept.why.to_string());
        output::remark(format_args!("{} stays: {why}", kept.session.short()));
    }
    let room = collection.record_bytes + collection.effects.blob_bytes + collection.effects.workspace_bytes;
    output::remark(match collection.due.len() {
        0 => "no session is deleted".to_owned(),
        due => format!("{}, about {}", count(due as u64, "session"), bytes(room)),
    });
    if collection.short_by > 0 {
        let more = bytes(collection.short_by);
        output::remark(format_args!(
            "the store stays {more} above that size: the other sessions are under a hold or not idle"
        ));
    }
    Ok(())
}
