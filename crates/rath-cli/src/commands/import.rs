use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rath::{SessionId, Store};
use rath_audit::bundle::{
    self, Import as Bundle, OriginWorkspace, PartialImport, PartialSession, SessionImportOutcome,
};
use rath_audit::import::{self, ImportedFile, Importer, ParsedConversation, jsonl, openrath};

use super::Answer;
use crate::output::{self, Page, style};
use crate::settings::Settings;

/// Import sessions: a bundle, or files of another system
///
/// Everything is checked before anything is written.
#[derive(clap::Args)]
pub(crate) struct Import {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Import a bundle that `rath export` wrote
    ///
    /// New sessions are added; sessions of which this store has the first records are extended. Records that the store
    /// has already are skipped. Missing blobs of these records are added; missing bodies cannot be. A session that has
    /// continued differently here and in the bundle is refused.
    Bundle {
        /// The directory or zip
        path: PathBuf,
        /// Import a session that has continued differently as a fork
        #[arg(long)]
        as_fork: bool,
    },
    /// Import session files of OpenRath
    ///
    /// Repairs files that OpenRath's own loader rejects; each repair is shown and recorded. The original files are kept,
    /// and every record refers to its line.
    Openrath(Files),
    /// Import conversations: one JSON object with role and content a line
    Jsonl(Files),
}

#[derive(clap::Args)]
struct Files {
    /// The files; each becomes a session
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Create new sessions, also from files that were imported before
    #[arg(long, alias = "anew")]
    again: bool,
}

impl Import {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        // Garbage collection must not delete a blob before the record that references it is written.
        let _gc_guard = store.gc_guard()?;
        match self.what {
            What::Bundle { path, as_fork } => bundle(settings, &store, &path, as_fork).await,
            What::Openrath(files) => files.import(settings, &store, openrath::read).await,
            What::Jsonl(files) => files.import(settings, &store, jsonl::read).await,
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
        // The search index was built without the blobs that were added now.
        settings.embedded()?.drop_index()?;
    }
    if settings.json {
        output::json("rath.import.bundle/1", &imported)?;
        return Ok(Answer::Yes);
    }
    let mut page = Page::default();
    for (session, outcome) in &imported.sessions {
        let what = match outcome {
            SessionImportOutcome::New => "new".to_owned(),
            SessionImportOutcome::Forwarded { from } => format!("extended from {from}"),
            SessionImportOutcome::Known => "known".to_owned(),
            SessionImportOutcome::Forked { into, at } => {
                format!("continued differently after {at}: imported as fork {}", style::session(into.short()))
            }
            SessionImportOutcome::Kept => {
                "based on a session that continued differently: its records are kept next to the fork".to_owned()
            }
        };
        page.line(format_args!("{}  {what}", style::session(session.short())));
    }
    page.show(settings)?;
    let graph = &imported.graph;
    if imported.records > 0 {
        output::remark(format_args!("{} imported {}", style::good("✓"), output::count(imported.records, "record")));
    }
    if imported.another_verifier {
        output::remark(format_args!(
            "{} verify.py in the bundle is not one that this version of rath knows; it was not checked\n  \
             help: `rath verify --script` prints the verifier of this version; do not run an unknown one",
            style::label("!")
        ));
    }
    remark_origins(&imported.origins);
    if imported.filled_in > 0 {
        let blobs = output::count(imported.filled_in, "blob");
        output::remark(format_args!("{} added {blobs} that records here were missing", style::good("✓")));
    }
    let without = imported.without_body.len() as u64;
    match (imported.records + imported.filled_in, without + imported.erased) {
        (0, 0) => output::remark("the store already has everything; nothing was written"),
        (0, _) => output::remark("the store already has all of these records; nothing was written"),
        _ => {}
    }
    if without > 0 {
        output::remark(format_args!(
            "not imported, because the records are here without them and cannot change: {}\n  \
             help: `rath init DIR` creates a store that can import everything",
            output::count(without, "body")
        ));
    }
    if imported.erased > 0 {
        let bodies = output::count(imported.erased, "body");
        output::remark(format_args!("not imported, because erased here: {bodies}"));
    }
    let bodies = graph.omitted_records.iter().filter(|left| !left.is_erased()).count() as u64;
    if bodies > 0 || !graph.omitted_blobs.is_empty() {
        output::remark(format_args!(
            "the bundle was made without {} and {}{}",
            output::count(bodies, "body"),
            output::count(graph.omitted_blobs.len() as u64, "blob"),
            graph.reason.as_deref().map(|why| format!(": {}", output::escaped(why))).unwrap_or_default()
        ));
    }
    Ok(Answer::Yes)
}

/// Reports the workspaces and permissions of imported sessions, which do not count here.
fn remark_origins(worked: &BTreeMap<SessionId, OriginWorkspace>) {
    const SHOWN: usize = 10;
    for (session, of) in worked.iter().take(SHOWN) {
        let mut what = Vec::new();
        what.extend(of.workspace.as_ref().map(|place| format!("worked {}", output::escaped(place))));
        what.extend((of.granted > 0).then(|| format!("had {}", output::count(of.granted, "permission"))));
        output::remark(format_args!("{} {} there", style::session(session.short()), what.join(" and ")));
    }
    if worked.len() > SHOWN {
        output::remark(format_args!("and {} more", output::count((worked.len() - SHOWN) as u64, "session")));
    }
    if !worked.is_empty() {
        output::remark(
            "none of that counts here: you set workspaces, and you give permissions and answers\n  \
             help: `rath workspace set SESSION --in DIR` sets a workspace; what needs approval is asked again",
        );
    }
}

/// Describes a bundle that was imported in part.
pub(super) fn cut_short(cut: &PartialImport) -> String {
    let name = cut.bundle.as_deref().map(output::escaped).unwrap_or("a bundle".into());
    let part = |part: &PartialSession| format!("{} has {} of {} records", part.session.short(), part.records, part.of);
    let parts: Vec<String> = cut.sessions.iter().map(part).collect();
    format!("{name} was imported in part: {}; import it again to finish", parts.join(", "))
}

/// Reports a bundle that was altered, or contradicts this store: exit code 3.
fn refused(settings: &Settings, path: &Path, error: bundle::BundleError) -> Result<Answer> {
    let help = match &error {
        bundle::BundleError::Invalid(_) => "get the bundle again; nothing was imported",
        bundle::BundleError::Changed(_) => {
            "import it again when it is complete: what was imported stays, and the rest is added"
        }
        bundle::BundleError::Diverged { .. } => "`--as-fork` keeps both: it imports the bundle's side as a fork",
        _ => return Err(error.into()),
    };
    if settings.json {
        let value = serde_json::json!({ "taken": false, "code": error.code(), "why": error.to_string() });
        output::json("rath.import.bundle/1", &value)?;
        return Ok(Answer::No);
    }
    let what = match &error {
        bundle::BundleError::Invalid(_) => format!("{} is not what was exported", path.display()),
        bundle::BundleError::Changed(_) => format!("{} was imported in part", path.display()),
        _ => format!("{} contradicts this store", path.display()),
    };
    output::remark(format_args!("{} {what}: {}", style::bad("✗"), output::escaped(&error.to_string())));
    output::remark(format_args!("  help: {help}\n  help: rath help error {}", error.code()));
    Ok(Answer::No)
}

impl Files {
    async fn import(
        self,
        settings: &Settings,
        store: &Arc<dyn Store>,
        read: fn(&[u8]) -> Result<ParsedConversation, import::ParseError>,
    ) -> Result<Answer> {
        let mut all = Vec::new();
        for path in &self.files {
            let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let shown = path.display().to_string();
            let parsed = read(&bytes).map_err(|why| import::ImportError::Unreadable { name: shown, why })?;
            all.push((name, bytes, parsed));
        }
        let mut importer = Importer::new(store, settings.actor(), self.again).await?;
        let bar = output::spinner(settings);
        let mut done = 0;
        for (name, bytes, parsed) in parents_first(all) {
            let said = parsed.messages.len() as u64;
            let taken = importer.import(&name, &bytes, parsed).await;
            done += said;
            bar.set_position(done);
            bar.suspend(|| taken.map_err(anyhow::Error::from).and_then(|taken| show(settings, &name, &taken)))?;
        }
        bar.finish_and_clear();
        Ok(Answer::Yes)
    }
}

/// Sorts the files so that a session comes before those that were made from it.
fn parents_first(mut files: Vec<(String, Vec<u8>, ParsedConversation)>) -> Vec<(String, Vec<u8>, ParsedConversation)> {
    let mut ordered = Vec::with_capacity(files.len());
    while !files.is_empty() {
        let waits = |parsed: &ParsedConversation| {
            files.iter().any(|(_, _, other)| {
                other.original != parsed.original
                    && other.original.as_ref().is_some_and(|original| parsed.parents.contains(original))
            })
        };
        // In a cycle, any order will do.
        let next = files.iter().position(|(_, _, parsed)| !waits(parsed)).unwrap_or(0);
        ordered.push(files.remove(next));
    }
    ordered
}

fn show(settings: &Settings, name: &str, taken: &ImportedFile) -> Result<()> {
    if settings.json {
        let mut value = serde_json::to_value(taken)?;
        value["file"] = name.into();
        return output::json("rath.import.file/1", &value);
    }
    output::answer(taken.session.short())?;
    let what = match taken.outcome {
        import::ImportOutcome::New { records } => output::count(records, "record"),
        import::ImportOutcome::Extended { records } => format!("extended by {}", output::count(records, "record")),
        import::ImportOutcome::Known => "was imported before; nothing was written".to_owned(),
    };
    output::remark(format_args!("{} {}: {what}", style::good("✓"), output::escaped(name)));
    for repair in &taken.repairs {
        let place = if repair.line == 0 { "the file".to_owned() } else { format!("line {}", repair.line) };
        output::remark(format_args!(
            "  {} {}; {}",
            style::label(format!("{place}:")),
            output::escaped(&repair.what),
            output::escaped(&repair.how)
        ));
    }
    Ok(())
}
