use std::collections::HashSet;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rath::files::{TREE, Tree};
use rath::inspect::{LabelFilter, RecordDetails, label_text};
use rath::store::{Query, Row};
use rath::{Digest, Record, Store, View};
use rath_audit::care::Erasures;

use super::Answer;
use crate::expression;
use crate::graph;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::time;

/// List sessions, or the records of one
///
/// Without a session: all sessions, the one that changed last first. With one: its records, oldest first.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Log {
    /// A session
    session: Option<String>,
    /// Draw forks and merges as lanes, of all sessions or of those that one stands on
    #[arg(long, short)]
    graph: bool,
    /// Show at most this many, the newest (with --graph: sessions)
    #[arg(long, short = 'n', value_name = "N")]
    limit: Option<usize>,
    /// With a session: also the records of the sessions it stands on
    #[arg(long, requires = "session", conflicts_with = "graph")]
    all: bool,
    /// With a session: print exact bytes as JSON lines, which docs/verify.py checks
    #[arg(long, requires = "session", conflicts_with = "graph")]
    raw: bool,
    /// With --raw: also write the blobs that the records name into DIR, each named by its digest
    #[arg(long, requires = "raw", value_name = "DIR")]
    blobs: Option<std::path::PathBuf>,
    /// Only sessions with this label (NAME or NAME=VALUE)
    #[arg(long, value_name = "LABEL", conflicts_with_all = ["session", "graph"])]
    label: Option<LabelFilter>,
}

impl Log {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let session = match &self.session {
            Some(text) => Some(expression::resolve(&store, text).await?),
            None => None,
        };
        if self.graph {
            let view = match session {
                Some(place) => Some(View::of(&store, place.session, Some(place.seq)).await?),
                None => None,
            };
            return graph::draw(settings, &store, view.as_ref(), self.limit).await.map(|()| Answer::Yes);
        }
        let Some(place) = session else {
            let limit = if self.label.is_some() { None } else { self.limit };
            let mut rows = store.sessions(Query { limit, ..Query::all() }).await?;
            if let Some(label) = &self.label {
                rows.retain(|row| label.matches(&row.labels));
                rows.truncate(self.limit.unwrap_or(usize::MAX));
            }
            if rows.is_empty() && self.label.is_some() {
                output::remark("no session has that label");
                return Ok(Answer::Yes);
            }
            sessions(settings, rows, self.limit == Some(0))?;
            return Ok(Answer::Yes);
        };
        let view = View::of(&store, place.session, Some(place.seq)).await?;
        let mut found = match self.all || self.raw {
            true => view.history().await?.all().await?,
            false => view.own().await?,
        };
        if let Some(limit) = self.limit {
            found.drain(..found.len().saturating_sub(limit));
        }
        if let Some(dir) = &self.blobs {
            write_blobs(&store, &found, dir).await?;
        }
        match self.raw {
            true => {
                let mut lines = Vec::new();
                for record in &found {
                    rath_audit::bundle::line::write(record, &mut lines)?;
                }
                output::raw(&lines)?;
            }
            false => {
                let erasures = match found.iter().any(|record| record.body_bytes().is_none()) {
                    true => Erasures::of(&store).await?,
                    false => Erasures::default(),
                };
                records(settings, &found, self.all, &erasures)?;
            }
        }
        Ok(Answer::Yes)
    }
}

/// Writes every blob that the records name, and everything in the versions of files among them.
async fn write_blobs(store: &Arc<dyn Store>, records: &[Record], dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let mut seen = HashSet::new();
    for record in records {
        let named = rath::blob_references(record.body_bytes().unwrap_or_default());
        let mut open: Vec<_> = named.into_iter().map(|blob| (blob.digest, blob.media_type == TREE)).collect();
        while let Some((digest, tree)) = open.pop() {
            if seen.insert((digest, tree)) {
                let missing = || format!("{}: blob {digest} is not in the store", record.point());
                let bytes = write_blob(store, digest, dir).await?.with_context(missing)?;
                let entries = if tree { Tree::decode(&bytes)?.entries } else { Vec::new() };
                open.extend(entries.iter().map(|entry| (entry.node.sha256, entry.node.is_directory())));
            }
        }
    }
    Ok(())
}

/// Writes one blob; a large one piece by piece. Returns its bytes, of a large one none.
async fn write_blob(store: &Arc<dyn Store>, digest: Digest, dir: &Path) -> Result<Option<Arc<[u8]>>> {
    let path = dir.join(digest.to_string());
    let failed = || format!("writing {}", path.display());
    let Some(pieces) = store.blob_pieces(digest).await? else {
        let bytes = store.blob_get(digest).await?;
        if let Some(bytes) = &bytes {
            std::fs::write(&path, bytes).with_context(failed)?;
        }
        return Ok(bytes);
    };
    let mut file = std::fs::File::create(&path).with_context(failed)?;
    for piece in pieces {
        let Some(bytes) = store.blob_get(piece.digest).await? else { return Ok(None) };
        file.write_all(&bytes).with_context(failed)?;
    }
    Ok(Some([].into()))
}

fn sessions(settings: &Settings, rows: Vec<Row>, limited: bool) -> Result<()> {
    if settings.json {
        return output::json_lines(rows);
    }
    if rows.is_empty() && !limited {
        output::remark("no sessions yet\n  help: `rath new TITLE` makes one");
    }
    let mut page = Page::default();
    for row in rows {
        page.line(session_line(&row));
    }
    page.show(settings)
}

/// A session in one line.
pub(crate) fn session_line(row: &Row) -> String {
    let mut line = format!(
        "{}  {:>4} {:<7}  {:<11}  {}",
        style::session(row.id.short()),
        row.seq + 1,
        if row.seq == 0 { "record" } else { "records" },
        time::ago(row.time),
        style::title(row.title.as_deref().map_or("(untitled)".into(), |title| clip(title, 60)))
    );
    if let Some(origin) = row.origin {
        line.push_str(&style::dim(format!("  forked from {}", origin.point())));
    }
    for (name, value) in &row.labels {
        line.push_str(&format!("  {}", style::label(clip(&label_text(name, value), 40))));
    }
    if row.closed {
        line.push_str(&style::dim("  closed"));
    }
    if let Some(holder) = &row.holder {
        line.push_str(&style::dim(format!("  held by process {}", holder.process)));
    }
    line
}

fn records(settings: &Settings, found: &[Record], with_session: bool, erasures: &Erasures) -> Result<()> {
    if settings.json {
        let values = found.iter().map(RecordDetails::of).collect::<Result<Vec<_>, _>>()?;
        return output::json_lines(values);
    }
    let mut page = Page::default();
    for record in found {
        let place = match with_session {
            true => record.point().to_string(),
            false => format!("{:>4}", record.seq()),
        };
        let header = record.header()?;
        let erasure = if record.body_bytes().is_none() { erasures.over(record.point()) } else { None };
        let by = erasure.map(|it| clip(&format!(" by {}, {}: {}", it.by, time::ago(it.time), it.erased.why), 80));
        page.line(format_args!(
            "{}  {}  {}  {}{}",
            style::record(place),
            style::dim(&record.id().short()[..8]),
            style::dim(time::local(header.time).get(11..19).unwrap_or_default()),
            style::warn_of_isolation(&clip(&rath::summary::of(record), 100)),
            style::dim(by.unwrap_or_default()),
        ));
    }
    page.show(settings)
}

/// `text` on one line, harmless, and cut to `width` characters.
pub(crate) fn clip(text: &str, width: usize) -> String {
    let cut = match text.char_indices().nth(width) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    };
    output::harmless(&cut).replace(['\n', '\t'], " ")
}
