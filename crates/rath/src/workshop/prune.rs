//! Looking after the directories that sessions work in.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use rath_core::store::{Query, Row};
use rath_core::{Placement, SessionId, View};
use rath_workspace::{Vacant, Workspace, collect_layers, disk_use, remove_tree};
use serde::Serialize;

use super::site::{Paths, machine};
use super::{Error, Result, Workshop};

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
    /// The directory; of layers the one that has what is the session's own.
    pub directory: PathBuf,
    /// Whether it is a copy of ours.
    pub copy: bool,
    /// Whether the copy is made of layers, most of them shared.
    pub layers: bool,
    /// Whether it is there.
    pub exists: bool,
    /// Bytes that a copy takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Whether the session has ended.
    pub closed: bool,
}

/// Which copies go.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prune {
    /// Those of open sessions too: they are made again from their version.
    pub all: bool,
    /// Those that hold ignored files too: nothing has them.
    pub ignored: bool,
    /// Only say which.
    pub dry: bool,
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

/// A copy that may go. While the value lives nobody begins to work there.
enum Freed {
    /// There are no files.
    Nothing,
    Copy {
        _ours: Box<Workspace>,
    },
    /// Nobody comes back there.
    Left {
        _ours: Vacant,
    },
}

/// Takes a place that no session comes back to.
fn vacant(state: &Path) -> Result<Freed, String> {
    match Vacant::claim(state) {
        Some(ours) => Ok(Freed::Left { _ours: ours }),
        None => Err("a process has it open, or makes it".into()),
    }
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
            let (copy, exists) = (!placement.in_place, paths.are_there());
            if copy && !exists {
                continue;
            }
            sites.push(SiteInfo {
                session: row.id,
                title: row.title,
                bytes: copy.then(|| disk_use(&paths.state)),
                layers: Workspace::is_layered(&paths.state),
                directory: if Workspace::is_layered(&paths.state) { paths.state } else { paths.files },
                copy,
                exists,
                closed: row.closed,
                placement: *placement,
            });
        }
        Ok(sites)
    }

    /// Removes copies that are no longer needed: of sessions that have ended. A copy that holds what no version has stays.
    pub async fn prune(&self, what: Prune) -> Result<Pruned> {
        let mut pruned = Pruned::default();
        let entries = match fs::read_dir(&self.home) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(pruned),
            Err(error) => return Err(machine(format!("reading {}", self.home.display()), error)),
        };
        // Fails where the list has lost some: then nobody knows whose places are needed.
        let rows = self.store.sessions(Query::default()).await?;
        let rows: HashMap<SessionId, Row> = rows.into_iter().map(|row| (row.id, row)).collect();
        for entry in entries.flatten() {
            // What setups left is made again when somebody needs it.
            if what.all && entry.file_name().to_string_lossy().starts_with("setup-") {
                self.forget_setup(&entry.path(), what.dry, &mut pruned)?;
            }
            let Some(session) = entry.file_name().to_str().and_then(|name| name.parse::<SessionId>().ok()) else {
                continue;
            };
            let state = entry.path();
            // What is wrong with one place is no reason to leave the others.
            let freed = match rows.get(&session) {
                Some(row) => self.free(row, &state, what).await.unwrap_or_else(|error| Err(error.to_string())),
                None => vacant(&state),
            };
            match freed {
                Err(why) => pruned.kept.push(Kept { directory: state, why }),
                // While it is ours nobody begins to work there.
                Ok(_ours) => {
                    let bytes = disk_use(&state);
                    let removed = if what.dry { Ok(()) } else { remove_tree(&state) };
                    match removed {
                        Ok(()) => {
                            pruned.bytes += bytes;
                            pruned.removed.push(state);
                        }
                        Err(error) => {
                            let why = format!("removing it: {error}");
                            pruned.kept.push(Kept { directory: state, why });
                        }
                    }
                }
            }
        }
        // Layers and checkouts that nobody stands on any more.
        let collected = collect_layers(&self.home, what.dry)?;
        pruned.bytes += collected.bytes;
        pruned.removed.extend(collected.removed);
        Ok(pruned)
    }

    fn forget_setup(&self, state: &Path, dry: bool, pruned: &mut Pruned) -> Result<()> {
        match self.open_workspace(state, state, &self.options(None), &[]) {
            Ok(_ours) => {
                pruned.bytes += disk_use(state);
                if !dry {
                    remove_tree(state).map_err(|error| machine(format!("removing {}", state.display()), error))?;
                }
                pruned.removed.push(state.into());
            }
            Err(error) => pruned.kept.push(Kept { directory: state.into(), why: error.to_string() }),
        }
        Ok(())
    }

    /// Takes a copy that may go; else says why it stays.
    async fn free(&self, row: &Row, state: &Path, what: Prune) -> Result<Result<Freed, String>> {
        if let Some(holder) = row.holder.as_ref().filter(|_| !row.closed) {
            return Ok(Err(format!("its session is held by process {}", holder.process)));
        }
        let view = View::of(&self.store, row.id, None).await?;
        let known = view.state().workspace.clone();
        if known.is_none() && view.state().placement.is_none() {
            // Where it worked and on what is erased: it does not come back here.
            return Ok(vacant(state));
        }
        if !row.closed && !what.all {
            return Ok(Err("its session goes on".into()));
        }
        let files = state.join("files");
        let origin = view.state().placement.as_ref().and_then(|placement| placement.origin.as_ref());
        let options = self.options(origin);
        let (mut workspace, _) = match self.open_workspace(&files, state, &options, &[known.as_ref()]) {
            Ok(opened) => opened,
            Err(Error::Workspace(rath_workspace::Error::Missing(_))) => return Ok(Ok(Freed::Nothing)),
            Err(error) => return Ok(Err(error.to_string())),
        };
        let saved = workspace.save()?;
        if saved.files > 0 && known.is_none_or(|known| !known.same_files(&saved.version)) {
            return Ok(Err("it holds changes that no record has".into()));
        }
        let others = workspace.unversioned(&saved.version);
        match others.first() {
            Some(first) if !what.ignored => {
                Ok(Err(format!("it holds {} not versioned, {first} for one", others.len())))
            }
            _ => Ok(Ok(Freed::Copy { _ours: Box::new(workspace) })),
        }
    }
}
