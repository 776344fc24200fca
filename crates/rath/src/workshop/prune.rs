//! Looking after the directories that sessions work in.

use std::fs;
use std::path::{Path, PathBuf};

use rath_core::store::{Query, Which};
use rath_core::{Placement, SessionId, View};
use rath_store::workspace::{Options, Workspace};
use serde::Serialize;

use super::site::{Paths, machine};
use super::{Result, Workshop};

/// A directory that a session works in, or worked in.
#[derive(Clone, Debug, Serialize)]
pub struct SiteInfo {
    /// The session.
    pub session: SessionId,
    /// What it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Where.
    pub placement: Placement,
    /// The directory.
    pub directory: PathBuf,
    /// Whether it is a copy of ours.
    pub copy: bool,
    /// Whether it is there.
    pub exists: bool,
    /// Bytes that a copy takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Whether the session has ended.
    pub closed: bool,
}

/// What pruning did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Pruned {
    /// Copies that were removed.
    pub removed: Vec<PathBuf>,
    /// Bytes they took.
    pub bytes: u64,
    /// Copies that stayed, and why.
    pub kept: Vec<Kept>,
}

/// A copy that was not removed.
#[derive(Clone, Debug, Serialize)]
pub struct Kept {
    /// The directory.
    pub directory: PathBuf,
    /// The reason.
    pub why: String,
}

impl Workshop {
    /// The sessions that have a place, the one that changed last first.
    pub async fn sites(&self) -> Result<Vec<SiteInfo>> {
        let mut sites = Vec::new();
        for row in self.store.sessions(Query::default()).await? {
            let view = View::of(&self.store, row.id, Some(row.seq)).await?;
            let Some(placement) = view.state().placement.clone() else { continue };
            let paths = Paths::of(&self.home, row.id, &placement);
            let (copy, exists) = (!placement.in_place, paths.files.exists());
            if copy && !exists {
                continue;
            }
            sites.push(SiteInfo {
                session: row.id,
                title: row.title,
                bytes: copy.then(|| disk_use(&paths.state)),
                directory: paths.files,
                copy,
                exists,
                closed: row.closed,
                placement,
            });
        }
        Ok(sites)
    }

    /// Removes copies that are no longer needed: of sessions that have ended or are gone. A copy that holds what no
    /// version has stays. With `all`, copies of open sessions go too: they are made again from their version.
    pub async fn prune(&self, all: bool, dry: bool) -> Result<Pruned> {
        let mut pruned = Pruned::default();
        let entries = match fs::read_dir(&self.home) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(pruned),
            Err(error) => return Err(machine(format!("reading {}", self.home.display()), error)),
        };
        for entry in entries.flatten() {
            let Some(session) = entry.file_name().to_str().and_then(|name| name.parse::<SessionId>().ok()) else {
                continue;
            };
            let state = entry.path();
            match self.reason_to_keep(session, &state, all).await? {
                Some(why) => pruned.kept.push(Kept { directory: state, why }),
                None => {
                    pruned.bytes += disk_use(&state);
                    if !dry {
                        let removed = fs::remove_dir_all(&state);
                        removed.map_err(|error| machine(format!("removing {}", state.display()), error))?;
                    }
                    pruned.removed.push(state);
                }
            }
        }
        Ok(pruned)
    }

    async fn reason_to_keep(&self, session: SessionId, state: &Path, all: bool) -> Result<Option<String>> {
        let Some(row) = self.store.sessions(Query::from(Which::Id(session))).await?.into_iter().next() else {
            return Ok(Some("the store does not know its session".into()));
        };
        if let Some(holder) = row.holder {
            return Ok(Some(format!("its session is held by process {}", holder.process)));
        }
        if !row.closed && !all {
            return Ok(Some("its session goes on".into()));
        }
        let known = View::of(&self.store, session, None).await?.state().workspace.clone();
        let options = Options { anywhere: true, ..self.options.clone() };
        let (mut workspace, _) = match Workspace::open(self.store.clone(), &state.join("files"), state, &options) {
            Ok(opened) => opened,
            Err(rath_store::workspace::Error::Missing(_)) => return Ok(None),
            Err(error) => return Ok(Some(error.to_string())),
        };
        let saved = workspace.save()?;
        match known {
            Some(known) if known.same_files(&saved.version) => Ok(None),
            _ if saved.files == 0 => Ok(None),
            _ => Ok(Some("it holds changes that no record has".into())),
        }
    }
}

/// Bytes that a directory takes on disk.
fn disk_use(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let mut total = 0;
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        total += meta.blocks() * 512;
        if meta.is_dir() {
            total += disk_use(&entry.path());
        }
    }
    total
}
