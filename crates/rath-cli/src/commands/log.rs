use std::collections::HashSet;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rath::files::{TREE, Tree};
use rath::inspect::{LabelFilter, RecordDetails};
use rath::{Digest, Point, Record, Store, View};
use rath_audit::admin::Erasures;

use super::Answer;
use super::ls::Ls;
use crate::expression;
use crate::graph;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::time;

/// List the records of a session, or draw the graph of sessions
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Log {
    /// A session, or a range of records: S@4..9 for records 4 to 9, A..B for those that B has and A has not
    /// [default: @; with --graph: all sessions]
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// Draw forks and merges as lanes: all sessions, or those that one session is based on
    #[arg(long, short)]
    graph: bool,
    /// Show at most N records, the newest (with --graph: sessions)
    #[arg(long, short = 'n', value_name = "N")]
    limit: Option<usize>,
    /// Also the records of the sessions that it is based on
    #[arg(long, conflicts_with = "graph")]
    all: bool,
    /// Print the exact bytes of the records as JSON lines, for `rath verify --script`
    #[arg(long, conflicts_with = "graph")]
    raw: bool,
    /// With --raw: also write the referenced blobs into DIR, each named by its digest
    #[arg(long, requires = "raw", value_name = "DIR")]
    blobs: Option<std::path::PathBuf>,
    /// Replaced by `rath ls --label`
    #[arg(long, value_name = "LABEL", conflicts_with_all = ["session", "graph"], hide = true)]
    label: Option<LabelFilter>,
}

impl Log {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        if self.label.is_some() {
            return Ls::labelled(self.label, self.limit).run(settings).await;
        }
        let store = settings.store()?;
        if self.graph {
            let view = match &self.session {
                Some(text) => {
                    let place = expression::resolve(&store, text).await?;
                    Some(View::of(&store, place.session, Some(place.seq)).await?)
                }
                None => None,
            };
            return graph::draw(settings, &store, view.as_ref(), self.limit).await.map(|()| Answer::Yes);
        }
        let (mut found, several_sessions) = self.records(&store).await?;
        if let Some(limit) = self.limit {
            found.drain(..found.len().saturating_sub(limit));
        }
        if let Some(dir) = &self.blobs {
            write_blobs(&store, &found, dir).await?;
        }
        if self.raw {
            let mut lines = Vec::new();
            for record in &found {
                rath_audit::bundle::line::write(record, &mut lines)?;
            }
            output::raw(&lines)?;
            return Ok(Answer::Yes);
        }
        let erasures = if found.iter().any(|record| record.body_bytes().is_none()) {
            Erasures::of(&store).await?
        } else {
            Erasures::default()
        };
        show(settings, &found, several_sessions, &erasures)?;
        Ok(Answer::Yes)
    }

    /// The records that the argument names, and whether they may belong to several sessions.
    async fn records(&self, store: &Arc<dyn Store>) -> Result<(Vec<Record>, bool)> {
        let text = self.session.as_deref().unwrap_or("@");
        let Some((from, to)) = text.split_once("..") else {
            let place = expression::resolve(store, text).await?;
            let view = View::of(store, place.session, Some(place.seq)).await?;
            return Ok(if self.all || self.raw {
                (view.history().await?.all().await?, self.all)
            } else {
                (view.own_records().await?, false)
            });
        };
        let first = expression::resolve(store, if from.is_empty() { "@0" } else { from }).await?;
        // `S@4..9`: the same session.
        if let Ok(last) = to.parse::<u64>()
            && first.exact
        {
            let last = expression::resolve(store, &format!("{}@{last}", first.session)).await?;
            let records = rath::inspect::records(store, first.session, first.seq, last.seq, &[]).await?;
            return Ok((records, false));
        }
        // `A..B`: what B has in its history and A has not.
        let last = expression::resolve(store, if to.is_empty() { "@" } else { to }).await?;
        let known = View::of(store, first.session, Some(first.seq)).await?.history().await?.all().await?;
        let known: HashSet<Point> = known.iter().map(Record::point).collect();
        let mut records = View::of(store, last.session, Some(last.seq)).await?.history().await?.all().await?;
        records.retain(|record| !known.contains(&record.point()));
        Ok((records, true))
    }
}

/// Writes every blob that the records reference, and everything in the versions of files among them.
async fn write_blobs(store: &Arc<dyn Store>, records: &[Record], dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let mut seen = HashSet::new();
    for record in records {
        let named = rath::record::blob_references(record.body_bytes().unwrap_or_default());
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

/// Writes one blob, piece by piece if it is large. Returns its bytes; for a large one, an empty slice.
async fn write_blob(store: &Arc<dyn Store>, digest: Digest, dir: &Path) -> Result<Option<Arc<[u8]>>> {
    let path = dir.join(digest.to_string());
    let failed = || format!("writing {}", path.display());
    let Some(pieces) = store.blob_chunks(digest).await? else {
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

fn show(settings: &Settings, found: &[Record], with_session: bool, erasures: &Erasures) -> Result<()> {
    if settings.json {
        let values = found.iter().map(RecordDetails::of).collect::<Result<Vec<_>, _>>()?;
        return output::json_list("rath.log/1", values);
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

/// `text` on one line, escaped for a terminal, and cut to `width` characters.
pub(crate) fn clip(text: &str, width: usize) -> String {
    let cut = match text.char_indices().nth(width) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    };
    output::escaped(&cut).replace(['\n', '\t'], " ")
}
