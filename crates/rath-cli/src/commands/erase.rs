use anyhow::Result;
use rath::store::Scan;
use rath::{Destroyed, Record, View};
use rath_audit::care::{Because, Care, Done, Plan, Wish, says};
use serde_json::json;

use super::Answer;
use crate::expression;
use crate::output::{self, Page, count, style};
use crate::settings::Settings;

/// Destroy what records say: a record, a range (9f31@4..9), a session, or everything about a subject
///
/// Headers stay, so the chain still verifies; salts go, so nothing can be guessed. Blobs that nothing else names go with
/// the records, and so do titles, labels and waiting messages. Shows what would go, asks, and says it is done when no
/// file of the store holds the bytes any more. It cannot be undone. Backups, exports and what a provider was sent are
/// out of reach: docs/ledger/erasure.md.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Erase {
    /// Records, ranges and sessions
    #[arg(required_unless_present_any = ["about", "finish"])]
    what: Vec<String>,
    /// Everything that says this, in any session: in letters of either case, any white space, any form of Unicode
    #[arg(long, value_name = "TEXT")]
    about: Option<String>,
    /// The reason. It stays on the record: do not write there what is to be erased
    #[arg(long, value_name = "TEXT", required_unless_present = "finish", value_parser = super::reason)]
    why: Option<String>,
    /// Known copies too: raw responses, results, arguments, summaries, detached contexts
    #[arg(long)]
    derived: bool,
    /// Only say what would go
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Only finish erasures that were interrupted
    #[arg(long, conflicts_with_all = ["what", "about", "why", "derived", "dry_run"])]
    finish: bool,
}

impl Erase {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let care = Care::new(settings.embedded()?, settings.actor());
        if !self.dry_run {
            finish(settings, &care, self.finish).await?;
        }
        if self.finish {
            return Ok(Answer::Yes);
        }
        let why = self.why.clone().unwrap_or_default();
        self.check_words(&why)?;
        let wish = self.wish(&care).await?;
        let progress = output::spinner(settings);
        let mut plan = care.plan(wish, &mut |records| progress.set_position(records)).await?;
        progress.finish_and_clear();
        if self.dry_run || plan.is_empty() {
            if settings.json {
                output::json(&json!({ "dry_run": self.dry_run, "plan": plan }))?;
            } else {
                tell(&plan, settings)?;
                if plan.is_empty() {
                    output::remark(nothing(&plan));
                }
            }
            return Ok(answer(&plan));
        }
        if !settings.json {
            tell(&plan, settings)?;
        }
        if !self.yes && !output::confirm("Erase this? It cannot be undone.")? {
            output::remark("nothing was erased");
            return Ok(Answer::No);
        }
        let progress = output::spinner(settings);
        let done = care.erase(&mut plan, &why, &mut |records| progress.set_position(records)).await?;
        progress.finish_and_clear();
        match done {
            Some(done) if settings.json => output::json(&json!({ "done": done, "plan": plan }))?,
            Some(done) => said(&plan, &done, settings)?,
            None => output::remark(nothing(&plan)),
        }
        Ok(answer(&plan))
    }

    /// The reason stays for ever, and so would what is in it.
    fn check_words(&self, why: &str) -> Result<()> {
        let Some(about) = &self.about else { return Ok(()) };
        if says("", about) {
            return Err(expression::unclear("--about needs words: everything has nothing in it"));
        }
        if says(why, about) {
            let text = "the reason says what is to be erased, and it stays on the record\n  help: name a ticket or a date instead";
            return Err(expression::unclear(text));
        }
        Ok(())
    }

    async fn wish(&self, care: &Care) -> Result<Wish> {
        let mut wish = Wish { about: self.about.clone(), derived: self.derived, ..Wish::default() };
        for text in &self.what {
            if let Some((from, to)) = text.split_once("..") {
                wish.records.extend(range(care, text, from, to).await?);
                continue;
            }
            let place = expression::resolve(care.store(), text).await?;
            match place.exact {
                true => {
                    let view = View::of(care.store(), place.session, Some(place.seq)).await?;
                    wish.records.push(view.record().clone());
                }
                false => wish.sessions.push(place.session),
            }
        }
        Ok(wish)
    }
}

/// `S@4..9`: the records from one to the other.
async fn range(care: &Care, text: &str, from: &str, to: &str) -> Result<Vec<Record>> {
    let first = expression::resolve(care.store(), from).await?;
    let bad = || {
        expression::unclear(format!("{text:?} is not a range of records\n  help: SESSION@4..9 is 4 to 9, both erased"))
    };
    let last: u64 = to.parse().map_err(|_| bad())?;
    if !first.exact || last < first.seq {
        return Err(bad());
    }
    expression::resolve(care.store(), &format!("{}@{last}", first.session)).await?;
    let (mut records, mut seq) = (Vec::new(), first.seq);
    loop {
        let page = care.store().scan(Scan::session(first.session, seq, last)).await?;
        records.extend(page.records);
        if !page.more {
            return Ok(records);
        }
        seq = page.position;
    }
}

/// Finishes what was interrupted; says so.
pub(super) async fn finish(settings: &Settings, care: &Care, asked: bool) -> Result<()> {
    let progress = output::spinner(settings);
    let finished = care.finish(&mut |records| progress.set_position(records)).await?;
    progress.finish_and_clear();
    if finished > 0 {
        output::remark(format_args!("finished {} that had been interrupted", count(finished, "erasure")));
    } else if asked {
        output::remark("no erasure was interrupted");
    }
    Ok(())
}

/// That erasures did not come to their end, and what to do.
pub(super) fn unfinished(erasures: u64) -> String {
    let (erasures, are) = (count(erasures, "erasure"), if erasures == 1 { "is" } else { "are" });
    format!(
        "{erasures} {are} on the record and not finished, bytes that should be gone are still in the store; `rath erase --finish` does the rest"
    )
}

/// Yes when all of what was meant goes.
fn answer(plan: &Plan) -> Answer {
    match plan.refused.is_empty() {
        true => Answer::Yes,
        false => Answer::No,
    }
}

/// `1 record stays`, `2 records stay`.
fn stays(records: u64) -> String {
    format!("{} {}", count(records, "record"), if records == 1 { "stays" } else { "stay" })
}

fn nothing(plan: &Plan) -> &'static str {
    match plan.refused.is_empty() {
        true if !plan.files.is_empty() => "no record is left that says it",
        true => "there is nothing to erase",
        false => "nothing is erased",
    }
}

/// What would go, what stays, and what is out of reach.
fn tell(plan: &Plan, settings: &Settings) -> Result<()> {
    const SHOWN: usize = 40;
    let mut page = Page::default();
    for target in plan.targets.iter().take(SHOWN) {
        let because = match target.because {
            Because::Named => String::new(),
            Because::About => String::new(),
            Because::CopyOf(point) => style::dim(format!("  (copy of {point})")),
        };
        let says = super::log::clip(&target.says, 80);
        page.line(format_args!("{}  {says}{because}", style::record(target.record.point())));
    }
    if plan.targets.len() > SHOWN {
        page.line(style::dim(format!("and {} more", plan.targets.len() - SHOWN)));
    }
    for (session, _) in &plan.posts {
        page.line(format_args!("{}  a message that waits in its inbox", style::session(session.short())));
    }
    page.show(settings)?;
    let blobs = match plan.weight.blobs {
        0 => String::new(),
        blobs => format!(", with {} of {}", count(blobs, "blob"), output::bytes(plan.weight.blob_bytes)),
    };
    let sessions = count(plan.sessions().len() as u64, "session");
    if !plan.is_empty() {
        output::remark(format_args!("{} of {sessions}{blobs}", count(plan.targets.len() as u64, "record")));
    }
    for refused in &plan.refused {
        let (records, why) = (stays(refused.records), output::harmless(&refused.why.to_string()));
        output::remark(format_args!("{} of {}, {records}: {why}", style::bad("✗"), refused.session.short()));
    }
    for kept in plan.weight.kept.iter().take(5) {
        let by = match &kept.named_by[..] {
            [] => "files of a version hold it".to_owned(),
            [one] => format!("{one} names it and stays"),
            [one, rest @ ..] => format!("{one} and {} more name it and stay", rest.len()),
        };
        output::remark(format_args!("blob {} of {} stays: {by}", kept.digest, output::bytes(kept.bytes)));
    }
    if plan.weight.kept.len() > 5 {
        output::remark(format_args!("and {} more blobs stay", plan.weight.kept.len() - 5));
    }
    beyond(plan);
    Ok(())
}

/// What an erasure does not reach in this store. Backups and exports are in the docs.
fn beyond(plan: &Plan) {
    let list = |all: &[String]| {
        let shown = all.iter().take(3).map(|one| output::harmless(one)).collect::<Vec<_>>().join(", ");
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
    if !plan.standing.is_empty() {
        let forks: Vec<_> = plan.standing.iter().map(|fork| fork.short()).collect();
        output::remark(format_args!("forked behind it, and losing it too: {}", list(&forks)));
    }
    if !plan.weight.places.is_empty() {
        let copies = plan.weight.places.len() as u64;
        let (goes, size) = (if copies == 1 { "goes" } else { "go" }, output::bytes(plan.weight.place_bytes));
        output::remark(format_args!("{} of files on disk {goes} too, {size}", count(copies, "copy")));
    }
    for backup in &plan.weight.backups {
        let name = backup.file_name().unwrap_or_default().to_string_lossy();
        output::remark(format_args!("{name} goes too: the database of an older format still holds it"));
    }
    if plan.made_by > 0 {
        output::remark(format_args!(
            "{} made by an actor of that name: names of actors stand in headers and stay",
            count(plan.made_by, "record")
        ));
    }
    if !plan.files.is_empty() {
        output::remark(format_args!(
            "versions of files hold it and stay: {}\n  help: versions go when every session that names them is erased whole",
            list(&plan.files)
        ));
    }
    if !plan.placed.is_empty() {
        let placed: Vec<_> = plan.placed.iter().map(|session| session.short()).collect();
        output::remark(format_args!(
            "files on disk are not looked at: {} works on some\n  help: `rath sandbox ls` says where; copies keep their versions until `rath sandbox prune --all`",
            list(&placed)
        ));
    }
}

/// Names the databases of older formats that went too.
pub(super) fn tell_backups(settings: &Settings, destroyed: &Destroyed) {
    for backup in &destroyed.backups {
        let name = settings.shown(backup);
        output::remark(format_args!("{name} was removed: the database of an older format still held it"));
    }
}

fn said(plan: &Plan, done: &Done, settings: &Settings) -> Result<()> {
    let destroyed = &done.destroyed;
    output::answer(format_args!(
        "erased {} of {}, {}; {} went back to the disk",
        count(destroyed.records, "record"),
        count(plan.sessions().len() as u64, "session"),
        count(destroyed.blobs, "blob"),
        output::bytes(destroyed.freed)
    ))?;
    if destroyed.overwritten > 0 {
        output::remark(format_args!(
            "{} were overwritten in packs that another process writes to; `rath gc` gives their room back later",
            output::bytes(destroyed.overwritten)
        ));
    }
    tell_backups(settings, destroyed);
    if !plan.refused.is_empty() {
        let stay: u64 = plan.refused.iter().map(|refused| refused.records).sum();
        let sessions = count(plan.refused.len() as u64, "session");
        output::remark(format_args!("of {sessions}, {}, as said above", stays(stay)));
    }
    output::remark(format_args!(
        "on the record at {}; backups, exports and what was sent elsewhere are not reached",
        done.record.point()
    ));
    Ok(())
}
