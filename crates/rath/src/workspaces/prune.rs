//! Listing and removing the copies that sessions work in.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use rath_core::store::{Query, SessionInfo};
use rath_core::{Placement, SessionId, View};
use rath_workspace::{IdleWorkspace, Workspace, collect_layers, disk_use, remove_tree};
use serde::Serialize;

use super::open_workspace::{OpenWorkspace, Paths, io_error};
use super::{Error, Result, Workspaces};

/// The workspace of a session.
#[derive(Clone, Debug, Serialize)]
pub struct WorkspaceInfo {
    /// The session.
    pub session: SessionId,
    /// The session's title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The session's placement.
    pub placement: Placement,
    /// The directory; of layers, the one with the session's own layer.
    pub directory: PathBuf,
    /// Whether it is a copy, not the user's directory.
    pub copy: bool,
    /// Whether the copy consists of layers, most of which are shared.
    pub layers: bool,
    /// Whether the directory exists.
    pub exists: bool,
    /// The size of a copy in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Whether the session is closed.
    pub closed: bool,
}

/// Which copies to remove.
#[derive(Clone, Copy, Debug, Default)]
pub struct PruneOptions {
    /// Also copies of open sessions. They are created again from their version.
    pub all: bool,
    /// Also copies with ignored files, which no version contains.
    pub ignored: bool,
    /// Only report, remove nothing.
    pub dry: bool,
}

/// The result of pruning.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PruneReport {
    /// The copies that were removed.
    pub removed: Vec<PathBuf>,
    /// Their size in bytes.
    pub bytes: u64,
    /// The copies that were kept.
    pub kept: Vec<Kept>,
}

/// A locked copy that may be removed. No process can open it while this value exists.
enum Freed {
    /// The copy has no files.
    Nothing,
    Copy {
        _ours: Box<Workspace>,
    },
    /// No session uses the copy.
    Left {
        _ours: IdleWorkspace,
    },
}

/// Locks a copy that no session uses.
fn vacant(state: &Path) -> Result<Freed, String> {
    match IdleWorkspace::claim(state) {
        Some(ours) => Ok(Freed::Left { _ours: ours }),
        None => Err("a process has it open or is creating it".into()),
    }
}

/// A copy that was kept.
#[derive(Clone, Debug, Serialize)]
pub struct Kept {
    /// The directory.
    pub directory: PathBuf,
    /// The reason.
    pub why: String,
}

impl Workspaces {
    /// The workspaces of all sessions, the session that changed last first.
    pub async fn list(&self) -> Result<Vec<WorkspaceInfo>> {
        let mut sites = Vec::new();
        for row in self.store.sessions(Query::default()).await? {
            let view = View::of(&self.store, row.id, Some(row.seq)).await?;
            let Some(placement) = view.state().placement.clone() else { continue };
            let paths = Paths::of(&self.home, row.id, &placement);
            let (copy, exists) = (!placement.in_place, paths.are_there());
            if copy && !exists {
                continue;
            }
            sites.push(WorkspaceInfo {
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

    /// Removes the copies of closed sessions. A copy with files that no version contains is kept.
    pub async fn prune(&self, what: PruneOptions) -> Result<PruneReport> {
        let mut pruned = PruneReport::default();
        let entries = match fs::read_dir(&self.home) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(pruned),
            Err(error) => return Err(io_error(format!("reading {}", self.home.display()), error)),
        };
        // Fails if the list is damaged: copies of sessions missing from it must not be removed.
        let rows = self.store.sessions(Query::default()).await?;
        let rows: HashMap<SessionId, SessionInfo> = rows.into_iter().map(|row| (row.id, row)).collect();
        for entry in entries.flatten() {
            // Setup layers are created again when they are needed.
            if what.all && entry.file_name().to_string_lossy().starts_with("setup-") {
                self.forget_setup(&entry.path(), what.dry, &mut pruned)?;
            }
            let Some(session) = entry.file_name().to_str().and_then(|name| name.parse::<SessionId>().ok()) else {
                continue;
            };
            let state = entry.path();
            // An error of one copy does not stop the others.
            let freed = match rows.get(&session) {
                Some(row) => self.free(row, &state, what).await.unwrap_or_else(|error| Err(error.to_string())),
                None => vacant(&state),
            };
            match freed {
                Err(why) => pruned.kept.push(Kept { directory: state, why }),
                // Locked while it is removed.
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
        // Layers and checkouts that no copy uses any more.
        let collected = collect_layers(&self.home, what.dry)?;
        pruned.bytes += collected.bytes;
        pruned.removed.extend(collected.removed);
        Ok(pruned)
    }

    fn forget_setup(&self, state: &Path, dry: bool, pruned: &mut PruneReport) -> Result<()> {
        match self.open_workspace(state, state, &self.options(None), &[]) {
            Ok(_ours) => {
                pruned.bytes += disk_use(state);
                if !dry {
                    remove_tree(state).map_err(|error| io_error(format!("removing {}", state.display()), error))?;
                }
                pruned.removed.push(state.into());
            }
            Err(error) => pruned.kept.push(Kept { directory: state.into(), why: error.to_string() }),
        }
        Ok(())
    }

    /// Locks a copy that may be removed; else returns the reason to keep it.
    async fn free(&self, row: &SessionInfo, state: &Path, what: PruneOptions) -> Result<Result<Freed, String>> {
        if let Some(holder) = row.holder.as_ref().filter(|_| !row.closed) {
            return Ok(Err(format!("its session is locked by process {}", holder.process)));
        }
        let view = View::of(&self.store, row.id, None).await?;
        let known = view.state().workspace.clone();
        if known.is_none() && view.state().placement.is_none() {
            // The placement and the version are erased: the session does not use the copy again.
            return Ok(vacant(state));
        }
        if !row.closed && !what.all {
            return Ok(Err("its session is open".into()));
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
            return Ok(Err("it has changes that no record contains".into()));
        }
        let others = workspace.unversioned(&saved.version);
        match others.first() {
            Some(first) if !what.ignored => {
                Ok(Err(format!("it has {} unversioned paths, such as {first}", others.len())))
            }
            _ => {
                if let Some(placement) = view.state().placement.as_ref().filter(|_| !what.all && !what.dry) {
                    let mut opened = OpenWorkspace::over(workspace, Paths::of_copy(&self.home, row.id));
                    self.seal_for_stored_forks(row.id, placement, &mut opened).await?;
                    workspace = opened.workspace;
                }
                Ok(Ok(Freed::Copy { _ours: Box::new(workspace) }))
            }
        }
    }
}
