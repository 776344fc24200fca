use anyhow::Result;
use rath::embedded::EraseReport;
use rath::store::Scan;
use rath::{Record, View};
use rath_audit::admin::{
    CompletedErasure, ErasureRequest, ErasureTarget, PlannedErasure, StoreAdmin, TargetReason, mentions,
};
use serde::Serialize;

use crate::commands::Answer;
use crate::expression;
use crate::output::{self, Page, count, style};
use crate::settings::Settings;

/// Erase the content of records: a record, a range (9f31@4..9), a session, or everything about a subject
///
/// Erases bodies, salts, the blobs that only these records reference, titles, labels and queued messages. Headers stay,
/// so the hash chain still verifies. Shows what would be erased and asks first. Reports success only when no file of the
/// store contains the bytes. It cannot be undone. Backups, exports and what providers were sent are not erased.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Erase {
    /// Records, ranges and sessions
    #[arg(required_unless_present_any = ["about", "finish"])]
    what: Vec<String>,
    /// Erase every record that contains this text, in any session; case, white space and Unicode form do not matter
    #[arg(long, value_name = "TEXT")]
    about: Option<String>,
    /// The reason; it stays on the record, so do not repeat there what is erased
    #[arg(long, value_name = "TEXT", required_unless_present = "finish", value_parser = crate::commands::reason)]
    why: Option<String>,
    /// Also erase known copies: raw responses, results, arguments, summaries, detached contexts
    #[arg(long)]
    derived: bool,
    /// Only show what would be erased
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Only finish interrupted erasures
    #[arg(long, conflicts_with_all = ["what", "about", "why", "derived", "dry_run"])]
    finish: bool,
}

/// What an erasure would do, and what it did.
#[derive(Serialize)]
struct Erasing<'a> {
    dry_run: bool,
    plan: &'a PlannedErasure,
    #[serde(skip_serializing_if = "Option::is_none")]
    done: Option<&'a CompletedErasure>,
}

impl Erase {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let admin = StoreAdmin::new(settings.embedded()?, settings.actor());
        if !self.dry_run {
            finish(settings, &admin, self.finish).await?;
        }
        if self.finish {
            return Ok(Answer::Yes);
        }
        let why = self.why.clone().unwrap_or_default();
        self.check_reason(&why)?;
        let request = self.request(&admin).await?;
        let progress = output::spinner(settings);
        let mut plan = admin.plan(request, &mut |records| progress.set_position(records)).await?;
        progress.finish_and_clear();
        if self.dry_run || plan.is_empty() {
            if settings.json {
                output::json("rath.store.erase/1", &Erasing { dry_run: self.dry_run, plan: &plan, done: None })?;
            } else {
                preview(&plan, settings)?;
                if plan.is_empty() {
                    output::remark(nothing(&plan));
                }
            }
            return Ok(answer(&plan));
        }
        if !settings.json {
            preview(&plan, settings)?;
        }
        if !self.yes && !output::confirm("Erase this? It cannot be undone.")? {
            output::remark("nothing was erased");
            return Ok(Answer::No);
        }
        let progress = output::spinner(settings);
        let done = admin.erase(&mut plan, &why, &mut |records| progress.set_position(records)).await?;
        progress.finish_and_clear();
        match done {
            Some(done) if settings.json => {
                output::json("rath.store.erase/1", &Erasing { dry_run: false, plan: &plan, done: Some(&done) })?;
            }
            Some(done) => report(&plan, &done, settings)?,
            None => output::remark(nothing(&plan)),
        }
        Ok(answer(&plan))
    }

    /// Refuses a reason that repeats the subject: the reason is never erased.
    fn check_reason(&self, why: &str) -> Result<()> {
        let Some(about) = &self.about else { return Ok(()) };
        if mentions("", about) {
            return Err(expression::usage_error("--about needs a text: every record contains the empty one"));
        }
        if mentions(why, about) {
            let text = "the reason contains what is to be erased, and it stays on the record\n  help: name a ticket or a date instead";
            return Err(expression::usage_error(text));
        }
        Ok(())
    }

    async fn request(&self, admin: &StoreAdmin) -> Result<ErasureRequest> {
        let mut request =
            ErasureRequest { about: self.about.clone(), derived: self.derived, ..ErasureRequest::default() };
        for text in &self.what {
            if let Some((from, to)) = text.split_once("..") {
                request.records.extend(range(admin, text, from, to).await?);
                continue;
            }
            let place = expression::resolve(admin.store(), text).await?;
            if place.exact {
                let view = View::of(admin.store(), place.session, Some(place.seq)).await?;
                request.records.push(view.record().clone());
            } else {
                request.sessions.push(place.session)
            }
        }
        Ok(request)
    }
}

/// The records of `S@4..9`, both ends included.
async fn range(admin: &StoreAdmin, text: &str, from: &str, to: &str) -> Result<Vec<Record>> {
    let first = expression::resolve(admin.store(), from).await?;
    let bad = || {
        expression::usage_error(format!(
            "{text:?} is not a range of records\n  help: SESSION@4..9 names records 4 to 9"
        ))
    };
    let last: u64 = to.parse().map_err(|_| bad())?;
    if !first.exact || last < first.seq {
        return Err(bad());
    }
    expression::resolve(admin.store(), &format!("{}@{last}", first.session)).await?;
    let (mut records, mut seq) = (Vec::new(), first.seq);
    loop {
        let page = admin.store().scan(Scan::session(first.session, seq, last)).await?;
        records.extend(page.records);
        if !page.more {
            return Ok(records);
        }
        seq = page.position;
    }
}

/// Finishes interrupted erasures and reports how many there were.
pub(super) async fn finish(settings: &Settings, admin: &StoreAdmin, asked: bool) -> Result<()> {
    let progress = output::spinner(settings);
    let finished = admin.finish(&mut |records| progress.set_position(records)).await?;
    progress.finish_and_clear();
    if finished > 0 {
        output::remark(format_args!("finished {}", count(finished, "interrupted erasure")));
    } else if asked {
        output::remark("no erasure was interrupted");
    }
    Ok(())
}

/// The warning about erasures that are recorded and not finished.
pub(crate) fn unfinished(erasures: u64) -> String {
    let (erasures, are) = (count(erasures, "erasure"), if erasures == 1 { "is" } else { "are" });
    format!(
        "{erasures} {are} recorded but not finished: bytes that should be erased are still in the store; `rath store erase --finish` erases them"
    )
}

/// Yes if nothing was refused.
fn answer(plan: &PlannedErasure) -> Answer {
    if plan.refused.is_empty() { Answer::Yes } else { Answer::No }
}

/// `1 record stays`, `2 records stay`.
fn stays(records: u64) -> String {
    format!("{} {}", count(records, "record"), if records == 1 { "stays" } else { "stay" })
}

fn nothing(plan: &PlannedErasure) -> &'static str {
    match plan.refused.is_empty() {
        true if !plan.files.is_empty() => "no record contains it any more",
        true => "there is nothing to erase",
        false => "nothing was erased",
    }
}

/// Prints what would be erased, what stays, and what an erasure does not reach.
fn preview(plan: &PlannedErasure, settings: &Settings) -> Result<()> {
    const SHOWN: usize = 40;
    let mut page = Page::default();
    for target in plan.targets.iter().take(SHOWN) {
        let because = match target.reason {
            TargetReason::Named => String::new(),
            TargetReason::About => String::new(),
            TargetReason::CopyOf(point) => style::dim(format!("  (copy of {point})")),
        };
        let says = crate::commands::log::clip(&target.summary, 80);
        page.line(format_args!("{}  {says}{because}", style::record(target.record.point())));
    }
    if plan.targets.len() > SHOWN {
        page.line(style::dim(format!("and {} more", plan.targets.len() - SHOWN)));
    }
    for (session, _) in &plan.posts {
        page.line(format_args!("{}  a queued message", style::session(session.short())));
    }
    page.show(settings)?;
    let blobs = match plan.effects.blobs {
        0 => String::new(),
        blobs => format!(", with {} of {}", count(blobs, "blob"), output::bytes(plan.effects.blob_bytes)),
    };
    let sessions = count(plan.sessions().len() as u64, "session");
    if !plan.is_empty() {
        output::remark(format_args!("{} of {sessions}{blobs}", count(plan.targets.len() as u64, "record")));
    }
    for refused in &plan.refused {
        let (records, why) = (stays(refused.records), output::escaped(&refused.why.to_string()));
        output::remark(format_args!("{} of {}, {records}: {why}", style::bad("✗"), refused.session.short()));
    }
    for kept in plan.effects.kept.iter().take(5) {
        let by = match &kept.named_by[..] {
            [] => "a version of files references it".to_owned(),
            [one] => format!("{one} references it and stays"),
            [one, rest @ ..] => format!("{one} and {} more reference it and stay", rest.len()),
        };
        output::remark(format_args!("blob {} of {} stays: {by}", kept.digest, output::bytes(kept.bytes)));
    }
    if plan.effects.kept.len() > 5 {
        output::remark(format_args!("and {} more blobs stay", plan.effects.kept.len() - 5));
    }
    side_effects(plan);
    Ok(())
}

/// Prints what else the erasure affects, and what in this store it does not reach.
fn side_effects(plan: &PlannedErasure) {
    let list = |all: &[String]| {
        let shown = all.iter().take(3).map(|one| output::escaped(one)).collect::<Vec<_>>().join(", ");
        if all.len() > 3 { format!("{shown} and {} more", all.len() - 3) } else { shown }
    };
    if !plan.copies.is_empty() {
        let places: Vec<_> = plan.copies.iter().map(|copy| copy.record.point().to_string()).collect();
        let copies = if places.len() == 1 { "copy stays" } else { "copies stay" };
        output::remark(format_args!(
            "{} known {copies}: {}\n  help: --derived erases them too",
            places.len(),
            list(&places)
        ));
    }
    if !plan.dependents.is_empty() {
        let forks: Vec<_> = plan.dependents.iter().map(|fork| fork.short()).collect();
        output::remark(format_args!(
            "descendants lose it too: {}\n  help: a run of theirs that depends on it cannot be continued",
            list(&forks)
        ));
    }
    if !plan.effects.workspaces.is_empty() {
        let copies = plan.effects.workspaces.len() as u64;
        let (goes, size) = (if copies == 1 { "goes" } else { "go" }, output::bytes(plan.effects.workspace_bytes));
        output::remark(format_args!("{} of files on disk {goes} too, {size}", count(copies, "copy")));
    }
    let is_first = |target: &&ErasureTarget| target.kind == "forked" && matches!(target.reason, TargetReason::About);
    let branches: Vec<_> = plan.targets.iter().filter(is_first).map(|target| target.record.session.short()).collect();
    if !branches.is_empty() {
        output::remark(format_args!(
            "the first records of {} are erased: a run that made or merged these sessions cannot be resumed or continued",
            list(&branches)
        ));
    }
    for backup in &plan.effects.backups {
        let name = backup.file_name().unwrap_or_default().to_string_lossy();
        output::remark(format_args!("{name} is removed too: the database of an older format contains it"));
    }
    if plan.actor_records > 0 {
        output::remark(format_args!(
            "{} by an actor of that name: headers name actors, and headers stay",
            count(plan.actor_records, "record")
        ));
    }
    if !plan.files.is_empty() {
        output::remark(format_args!(
            "versions of files contain it and stay: {}\n  help: a version is removed when every session that references it is erased whole, in one command",
            list(&plan.files)
        ));
    }
    if !plan.with_workspace.is_empty() {
        let placed: Vec<_> = plan.with_workspace.iter().map(|session| session.short()).collect();
        output::remark(format_args!(
            "not searched: workspace files of {}\n  help: `rath workspace ls` shows their directories; `rath workspace prune --all` removes copies",
            list(&placed)
        ));
    }
}

/// Reports the databases of older formats that were removed too.
pub(super) fn remark_backups(settings: &Settings, destroyed: &EraseReport) {
    for backup in &destroyed.backups {
        let name = settings.shown(backup);
        output::remark(format_args!("{name} was removed: the database of an older format contained it"));
    }
}

fn report(plan: &PlannedErasure, done: &CompletedErasure, settings: &Settings) -> Result<()> {
    let destroyed = &done.destroyed;
    output::answer(format_args!(
        "erased {} of {}, {}; freed {}",
        count(destroyed.records, "record"),
        count(plan.sessions().len() as u64, "session"),
        count(destroyed.blobs, "blob"),
        output::bytes(destroyed.freed)
    ))?;
    if destroyed.overwritten > 0 {
        output::remark(format_args!(
            "{} were overwritten in packs that another process writes to; `rath store gc` frees their space later",
            output::bytes(destroyed.overwritten)
        ));
    }
    remark_backups(settings, destroyed);
    if !plan.refused.is_empty() {
        let stay: u64 = plan.refused.iter().map(|refused| refused.records).sum();
        let sessions = count(plan.refused.len() as u64, "session");
        output::remark(format_args!("of {sessions}, {}, as listed above", stays(stay)));
    }
    output::remark(format_args!(
        "recorded at {}; backups, exports and what was sent elsewhere are not erased",
        done.record.point()
    ));
    Ok(())
}
