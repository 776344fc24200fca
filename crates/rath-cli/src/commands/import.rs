use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rath::{SessionId, Store};
use rath_audit::bundle::{self, Beginning, CutShort, Fate, Import as Bundle, Worked};
use rath_audit::import::{self, Intake, Parsed, Taken, jsonl, openrath};

use super::Answer;
use crate::output::{self, Page, style};
use crate::settings::Settings;

/// Take in sessions from elsewhere: a bundle, or files of another system
///
/// Everything is checked before anything is written.
#[derive(clap::Args)]
pub(crate) struct Import {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Take in a bundle that `rath export` wrote
    ///
    /// Sessions that are new are added, those of which this store has the beginning go on. What the store has already is
    /// passed over; blobs that its records came without are filled in, bodies cannot be. A session that went on here in
    /// another way than in the bundle is refused.
    Bundle {
        /// The directory or zip
        path: PathBuf,
        /// Keep a session that went on in two ways: what only the bundle has becomes a fork
        #[arg(long)]
        as_fork: bool,
    },
    /// Take in session files of OpenRath
    ///
    /// Also files that its own loader rejects; each repair is shown and recorded. The files are kept as they are, and every
    /// record points at its line.
    Openrath(Files),
    /// Take in conversations: a JSON object with role and content a line
    Jsonl(Files),
}

#[derive(clap::Args)]
struct Files {
    /// The files; each becomes a session
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Make new sessions, also of files that were taken in before
    #[arg(long)]
    anew: bool,
}

impl Import {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        // Between a blob and the record that names it, nothing is collected.
        let _gc_guard = store.gc_guard()?;
        match self.what {
            What::Bundle { path, as_fork } => bundle(settings, &store, &path, as_fork).await,
            What::Openrath(files) => files.take(settings, &store, openrath::read).await,
            What::Jsonl(files) => files.take(settings, &store, jsonl::read).await,
        }
    }
}

async fn bundle(settings: &Settings, store: &Arc<dyn Store>, path: &Path, as_fork: bool) -> Result<Answer> {
    std::fs::metadata(path).with_context(|| format!("reading the bundle {}", path.display()))?;
    let bar = output::spinner(settings);
    let read = Bundle { as_fork, ..Bundle::default() };
    let read = read.read(store, &settings.actor(), path, &mut |done| bar.set_position(done)).await;
    bar.finish_and_clear();
    let imported = match read {
        Ok(imported) => imported,
        Err(error) => return refused(settings, path, error),
    };
    if imported.filled_in > 0 {
        // It was made while nobody could read what is here now.
        settings.embedded()?.drop_index()?;
    }
    if settings.json {
        output::json(&imported)?;
        return Ok(Answer::Yes);
    }
    let mut page = Page::default();
    for (session, fate) in &imported.sessions {
        let what = match fate {
            Fate::New => "new".to_owned(),
            Fate::Forwarded { from } => format!("goes on at {from}"),
            Fate::Known => "known".to_owned(),
            Fate::Forked { into, at } => {
                format!("went on in another way after {at}: kept as fork {}", style::session(into.short()))
            }
            Fate::Kept => "stands on what diverged: its records are kept beside the fork".to_owned(),
        };
        page.line(format_args!("{}  {what}", style::session(session.short())));
    }
    page.show(settings)?;
    let graph = &imported.graph;
    if imported.records > 0 {
        output::remark(format_args!("{} {} taken in", style::good("✓"), output::count(imported.records, "record")));
    }
    if imported.another_verifier {
        output::remark(format_args!(
            "{} verify.py in the bundle is not one that this version of rath knows, and was not looked at\n  \
             help: `rath verify --script` prints the one of this version; run no other unread",
            style::label("!")
        ));
    }
    tell_places(&imported.worked);
    if imported.filled_in > 0 {
        let blobs = output::count(imported.filled_in, "blob");
        output::remark(format_args!("{} {blobs} filled in that records here were without", style::good("✓")));
    }
    let without = imported.without_body.len() as u64;
    match (imported.records + imported.filled_in, without + imported.erased) {
        (0, 0) => output::remark("this store has all of it already; nothing was written"),
        (0, _) => output::remark("this store has all of its records already; nothing was written"),
        _ => {}
    }
    if without > 0 {
        output::remark(format_args!(
            "not taken in, because a record is written once and is here without: {}\n  \
             help: `rath init DIR` makes a store that takes in all of it",
            output::count(without, "body")
        ));
    }
    if imported.erased > 0 {
        let bodies = output::count(imported.erased, "body");
        output::remark(format_args!("not taken in, because erased here: {bodies}"));
    }
    let bodies = graph.left_out.iter().filter(|left| !left.is_erased()).count() as u64;
    if bodies > 0 || !graph.left_out_blobs.is_empty() {
        output::remark(format_args!(
            "the bundle came without {} and {}{}",
            output::count(bodies, "body"),
            output::count(graph.left_out_blobs.len() as u64, "blob"),
            graph.because.as_deref().map(|why| format!(": {}", output::harmless(why))).unwrap_or_default()
        ));
    }
    Ok(Answer::Yes)
}

/// Says where sessions worked elsewhere, and what is needed before they work here.
fn tell_places(worked: &BTreeMap<SessionId, Worked>) {
    const SHOWN: usize = 10;
    for (session, of) in worked.iter().take(SHOWN) {
        let mut what = Vec::new();
        what.extend(of.place.as_ref().map(|place| format!("worked {}", output::harmless(place))));
        what.extend((of.granted > 0).then(|| format!("had {}", output::count(of.granted, "permission"))));
        output::remark(format_args!("{} {} there", style::session(session.short()), what.join(" and ")));
    }
    if worked.len() > SHOWN {
        output::remark(format_args!("and {} more", output::count((worked.len() - SHOWN) as u64, "session")));
    }
    if !worked.is_empty() {
        output::remark(
            "none of that counts here: places, permissions and answers are given by you\n  \
             help: `rath place SESSION --in DIR` gives a session a place; what it then wants to do is asked again",
        );
    }
}

/// What is said of a bundle that did not come in whole.
pub(super) fn cut_short(cut: &CutShort) -> String {
    let name = cut.bundle.as_deref().map(output::harmless).unwrap_or("a bundle".into());
    let part = |part: &Beginning| format!("{} has {} of {} records", part.session.short(), part.records, part.of);
    let parts: Vec<String> = cut.sessions.iter().map(part).collect();
    format!("{name} was not taken in whole: {}; import it again, and it goes on there", parts.join(", "))
}

/// A bundle that is not what was exported, or does not fit this store, is an answer: no.
fn refused(settings: &Settings, path: &Path, error: bundle::Error) -> Result<Answer> {
    let help = match &error {
        bundle::Error::Broken(_) => "ask for it again; nothing of it was taken in",
        bundle::Error::Changed(_) => "import it again when it is whole: what was taken in stays, and the rest comes",
        bundle::Error::Diverged { .. } => "`--as-fork` keeps both: what only the bundle has becomes a fork",
        _ => return Err(error.into()),
    };
    if settings.json {
        let value = serde_json::json!({ "taken": false, "code": error.code(), "why": error.to_string() });
        output::json(&value)?;
        return Ok(Answer::No);
    }
    let what = match &error {
        bundle::Error::Broken(_) => format!("{} is not what was exported", path.display()),
        bundle::Error::Changed(_) => format!("{} was not taken in whole", path.display()),
        _ => format!("{} does not fit this store", path.display()),
    };
    output::remark(format_args!("{} {what}: {}", style::bad("✗"), output::harmless(&error.to_string())));
    output::remark(format_args!("  help: {help}\n  help: rath explain {}", error.code()));
    Ok(Answer::No)
}

impl Files {
    async fn take(
        self,
        settings: &Settings,
        store: &Arc<dyn Store>,
        read: fn(&[u8]) -> Result<Parsed, import::Unreadable>,
    ) -> Result<Answer> {
        let mut all = Vec::new();
        for path in &self.files {
            let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let shown = path.display().to_string();
            let parsed = read(&bytes).map_err(|why| import::Error::Unreadable { name: shown, why })?;
            all.push((name, bytes, parsed));
        }
        let mut intake = Intake::new(store, settings.actor(), self.anew).await?;
        let bar = output::spinner(settings);
        let mut done = 0;
        for (name, bytes, parsed) in parents_first(all) {
            let said = parsed.said.len() as u64;
            let taken = intake.take(&name, &bytes, parsed).await;
            done += said;
            bar.set_position(done);
            bar.suspend(|| taken.map_err(anyhow::Error::from).and_then(|taken| show(settings, &name, &taken)))?;
        }
        bar.finish_and_clear();
        Ok(Answer::Yes)
    }
}

/// The files in an order in which those come first that others came from.
fn parents_first(mut files: Vec<(String, Vec<u8>, Parsed)>) -> Vec<(String, Vec<u8>, Parsed)> {
    let mut ordered = Vec::with_capacity(files.len());
    while !files.is_empty() {
        let waits = |parsed: &Parsed| {
            files.iter().any(|(_, _, other)| {
                other.original != parsed.original
                    && other.original.as_ref().is_some_and(|original| parsed.parents.contains(original))
            })
        };
        // In a circle any comes first.
        let next = files.iter().position(|(_, _, parsed)| !waits(parsed)).unwrap_or(0);
        ordered.push(files.remove(next));
    }
    ordered
}

fn show(settings: &Settings, name: &str, taken: &Taken) -> Result<()> {
    if settings.json {
        let mut value = serde_json::to_value(taken)?;
        value["file"] = name.into();
        return output::json(&value);
    }
    output::answer(taken.session.short())?;
    let what = match taken.fate {
        import::Fate::New { records } => output::count(records, "record"),
        import::Fate::GoneOn { records } => format!("goes on with {}", output::count(records, "record")),
        import::Fate::Known => "was taken in before; nothing was written".to_owned(),
    };
    output::remark(format_args!("{} {}: {what}", style::good("✓"), output::harmless(name)));
    for repair in &taken.repairs {
        let place = if repair.line == 0 { "the file".to_owned() } else { format!("line {}", repair.line) };
        output::remark(format_args!(
            "  {} {}; {}",
            style::label(format!("{place}:")),
            output::harmless(&repair.what),
            output::harmless(&repair.how)
        ));
    }
    Ok(())
}
