//! Opening the workspace of a session, and reconciling its directory with the session's version.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use rath_core::body::{CallOutcome, RestoreReason, Restored, SandboxLost, SandboxOpened, ToolFinished, ToolStarted};
use rath_core::files::{Change, Changes, FilePath, Version};
use rath_core::store::Scan;
use rath_core::{Digest, ErrorKind, Kind, Placement, Point, RecordId, SandboxName, Session, SessionId, View};
use rath_sandbox::{Identity, Overlay, Sandbox, SandboxSpec, SandboxStatus};
use rath_workspace::{self as workspace, RecoveredRestore, Saved, Workspace};
use serde::{Deserialize, Serialize};
use tokio::sync::MutexGuard;

use super::{Confinement, Error, Result, Workspaces};

/// The file in a copy's state directory that contains the setup command that was run for the copy.
pub(super) const READY: &str = "ready";

/// The largest number of covered sockets and FIFOs that are recorded when a sandbox opens.
const COVERED_SHOWN: usize = 100;

/// The number of bytes that a disk writes atomically.
const SECTOR: usize = 512;

/// The mount path of a workspace without an origin.
pub(super) const NO_ORIGIN: &str = "/workspace";

/// A session's workspace while this process has it open.
pub(super) struct OpenWorkspace {
    pub(super) workspace: Workspace,
    pub(super) sandbox: Option<Arc<dyn Sandbox>>,
    /// The version saved after the last call of an agent.
    pub(super) saved_version: Option<Version>,
    last_note: LastNote,
    paths: Paths,
}

/// The last note of the version that the session has seen.
#[derive(Default)]
struct LastNote {
    version: Option<Version>,
    /// The file, if the next note can overwrite it in place.
    file: Option<fs::File>,
}

/// The paths of a session's files and of the state that is kept about them.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    pub(super) files: PathBuf,
    pub(super) state: PathBuf,
    at: PathBuf,
    pending_restore: PathBuf,
    sandbox: PathBuf,
}

/// The result of reconciling a directory with the session.
pub(super) struct Reconciled {
    pub(super) saved: Saved,
    /// External edits: changes that no record contains.
    pub(super) outside: Vec<Change>,
    /// Whether the session has another version than when it last saw the directory. Then `outside` is relative to the
    /// version that it last saw, and the directory was not updated.
    pub(super) behind: bool,
}

/// A restore that is not recorded yet. This file exists while the restore runs. The workspace's journal has the files;
/// this has the other fields of the record.
#[derive(Serialize, Deserialize)]
pub(super) struct PendingRestore {
    /// The session's head at the start. With another head the restore is over.
    pub(super) head: RecordId,
    /// The version before.
    pub(super) from: Version,
    /// The version to restore.
    pub(super) to: Version,
    /// The record that has this version.
    pub(super) point: Point,
}

impl Paths {
    pub(super) fn of(home: &Path, session: SessionId, placement: &Placement) -> Self {
        match &placement.origin {
            Some(origin) if placement.in_place => {
                Self::under(path_of(origin), home.join(directory_key(origin)), session)
            }
            _ => Self::of_copy(home, session),
        }
    }

    /// The paths of a session that works in a copy.
    pub(super) fn of_copy(home: &Path, session: SessionId) -> Self {
        let state = home.join(session.to_string());
        Self::under(state.join("files"), state, session)
    }

    fn under(files: PathBuf, state: PathBuf, session: SessionId) -> Self {
        let at = state.join(format!("at-{session}"));
        let pending_restore = state.join(format!("going-{session}"));
        let sandbox = state.join(format!("sandbox-{session}"));
        Self { files, state, at, pending_restore, sandbox }
    }

    /// Whether the files exist, as a directory or as layers.
    pub(super) fn are_there(&self) -> bool {
        self.files.exists() || Workspace::is_layered(&self.state)
    }

    /// The state directory of the sandbox.
    pub(super) fn sandbox(&self) -> &Path {
        &self.sandbox
    }

    /// The version that the session last saw in the directory.
    fn seen(&self) -> Option<Version> {
        serde_json::from_slice(&fs::read(&self.at).ok()?).ok()
    }

    /// The setup command that was run for these files.
    pub(super) fn set_up_line(&self) -> Option<String> {
        fs::read_to_string(self.state.join(READY)).ok()
    }

    /// Notes that a setup command was run for these files.
    pub(super) fn note_setup_line(&self, line: &str) -> Result<()> {
        let written = fs::write(self.state.join(READY), line);
        written.map_err(|error| io_error(format!("writing {}", self.state.join(READY).display()), error))
    }

    /// Removes layers that the backend cannot mount, so that the copy is made again from the version. Ignored files are
    /// lost; the caller sends a notice about them.
    pub(super) fn remove_layers(&self) -> Result<()> {
        let removed = workspace::remove_tree(&self.state);
        removed.map_err(|error| io_error(format!("removing {}", self.state.display()), error))
    }

    /// Notes the version of a copy that is about to be created, before the copy exists.
    pub(super) fn expect(&self, version: &Version) -> Result<()> {
        let made = fs::create_dir_all(&self.state);
        made.map_err(|error| io_error(format!("making {}", self.state.display()), error))?;
        self.note(version, None).map(drop)
    }

    /// Notes the version that the session has seen. If the note is lost, a later call reports external edits; no file
    /// is lost. A note that fits one 512-byte sector overwrites the last one in place, so a crash leaves one of the
    /// two. A rename would make some file systems flush at once, and every call would wait for that. Returns the file
    /// if the next note can overwrite it.
    fn note(&self, version: &Version, last: Option<fs::File>) -> Result<Option<fs::File>> {
        let mut text = serde_json::to_vec(version).unwrap_or_default();
        text.resize(text.len().max(SECTOR), b' ');
        let write = || {
            let last = match last {
                Some(last) => Some(last),
                None => match fs::OpenOptions::new().write(true).open(&self.at) {
                    Ok(file) if file.metadata()?.len() == SECTOR as u64 => Some(file),
                    _ => None,
                },
            };
            match last.filter(|_| text.len() == SECTOR) {
                Some(file) => file.write_all_at(&text, 0).map(|()| Some(file)),
                None => {
                    let temporary = self.at.with_extension("new");
                    fs::write(&temporary, &text).and_then(|()| fs::rename(&temporary, &self.at)).map(|()| None)
                }
            }
        };
        write().map_err(|error| io_error(format!("writing {}", self.at.display()), error))
    }
}

/// The error for a session without a workspace. An imported session had one in its other store.
async fn no_workspace_error(session: &mut Session) -> Result<Error> {
    let id = session.id();
    if session.state().arrived {
        session.publish().await?;
        if let Some(placed) = rath_core::last_placement(session.store(), session.head().point()).await? {
            return Ok(rath_core::Error::from(ErrorKind::NotPlacedHere { session: id, was: placed.in_words() }).into());
        }
    }
    Ok(Error::NotPlaced(id))
}

/// The name of the state directory for an origin.
pub(super) fn directory_key(directory: &FilePath) -> String {
    format!("dir-{}", &Digest::of(directory.as_bytes()).hex().as_str()[..24])
}

pub(super) fn path_of(name: &FilePath) -> PathBuf {
    std::ffi::OsString::from_vec(name.as_bytes().to_vec()).into()
}

pub(super) fn name_of(path: &Path) -> FilePath {
    FilePath::from(path.as_os_str().as_bytes())
}

impl Workspaces {
    /// Opens the session's workspace and updates it to the session's version. Fails if the directory has external edits
    /// and is behind. The caller returns the value with [`keep_open`](Self::keep_open).
    pub(super) async fn open(&self, session: &mut Session) -> Result<(OpenWorkspace, Reconciled)> {
        let (opened, found) = self.open_or_behind(session).await?;
        match found.behind {
            true => Err(workspace::Error::OutsideChanges { changes: found.outside }.into()),
            false => Ok((opened, found)),
        }
    }

    /// As [`open`](Self::open), but also succeeds if the directory is behind and has external edits.
    pub(super) async fn open_or_behind(&self, session: &mut Session) -> Result<(OpenWorkspace, Reconciled)> {
        // Changes to the files of a closed session could not be recorded.
        if session.state().closed {
            return Err(rath_core::Error::from(ErrorKind::Closed(session.id())).into());
        }
        self.block_gc()?;
        let Some(placement) = session.state().placement.clone() else { return Err(no_workspace_error(session).await?) };
        let files = Paths::of(&self.home, session.id(), &placement).files;
        let sharing = self.sharing.lock().await;
        let known = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&session.id());
        let (mut opened, sharing) = match known.filter(|opened| opened.paths.files == files) {
            Some(opened) => (opened, sharing),
            None => {
                drop(sharing);
                self.open_directory(session, &placement).await?
            }
        };
        self.seal_for_forks(session, &mut opened).await?;
        drop(sharing);
        self.close_lost_calls(session, &mut opened).await?;
        let found = self.reconcile(session, &mut opened).await?;
        Ok((opened, found))
    }

    /// The directory that the session works in. A copy is created if there is none yet. Fails if the files are layers.
    pub async fn directory(&self, session: &mut Session) -> Result<PathBuf> {
        let placement = session.state().placement.as_ref().ok_or(Error::NotPlaced(session.id()))?;
        let paths = Paths::of(&self.home, session.id(), placement);
        if Workspace::is_layered(&paths.state) {
            return Err(Error::Layered(session.id()));
        }
        // An existing directory is returned even if it cannot be saved.
        if paths.files.exists() {
            return Ok(paths.files);
        }
        let (opened, _) = self.open(session).await?;
        let directory = match opened.workspace.overlay() {
            None => Ok(opened.workspace.directory().to_owned()),
            Some(_) => Err(Error::Layered(session.id())),
        };
        self.put_back(session, opened);
        directory
    }

    /// The external edits in a session's workspace. Empty if another process has the workspace open.
    pub async fn unsaved(&self, view: &View) -> Result<Vec<Change>> {
        let (Some(placement), Some(known)) = (&view.state().placement, &view.state().workspace) else {
            return Ok(Vec::new());
        };
        let paths = Paths::of(&self.home, view.reference().session, placement);
        if !paths.are_there() || !paths.state.join("index").exists() {
            return Ok(Vec::new());
        }
        self.block_gc()?;
        let options = self.options(placement.origin.as_ref());
        let seen = paths.seen();
        match self.open_workspace(&paths.files, &paths.state, &options, &[Some(known), seen.as_ref()]) {
            Ok((workspace, _)) => {
                let mut at = OpenWorkspace::over(workspace, paths);
                // Compared with the version last seen: a directory that is only behind has no edits.
                let seen = at.at()?.unwrap_or_else(|| known.clone());
                at.workspace.track(vec![seen.clone()]);
                let now = at.workspace.save()?.version;
                Ok(at.workspace.changes(&seen, &now)?)
            }
            Err(Error::Workspace(workspace::Error::Busy { .. })) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Keeps a workspace open for the session's next call, and notes the session's version as seen.
    pub(super) fn keep_open(&self, session: &Session, mut opened: OpenWorkspace) -> Result<()> {
        if let Some(version) = &session.state().workspace {
            opened.note(version)?;
        }
        self.put_back(session, opened);
        Ok(())
    }

    /// Keeps a workspace open without a note.
    pub(super) fn put_back(&self, session: &Session, opened: OpenWorkspace) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(session.id(), opened);
    }

    /// Takes the open directory of a session; `None` if this process does not have it open.
    pub(super) async fn take_open(&self, session: SessionId) -> Option<OpenWorkspace> {
        let _sharing = self.sharing.lock().await;
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&session)
    }

    /// Opens the directory of a session, and makes the copy that it works in if there is none. Forks of the session
    /// wait for the guard before they share its layers.
    pub(super) async fn open_directory(
        &self,
        session: &mut Session,
        placement: &Placement,
    ) -> Result<(OpenWorkspace, MutexGuard<'_, ()>)> {
        let paths = Paths::of(&self.home, session.id(), placement);
        if self.cannot_mount_layers(placement, &paths)? {
            paths.remove_layers()?;
        }
        if !placement.in_place && !paths.are_there() {
            self.remove_stale_state(&paths).await?;
            self.create_copy(session, placement, &paths).await?;
        }
        let sharing = self.sharing.lock().await;
        // The supervisor of a killed process is about to end, and has the layers mounted until then.
        rath_sandbox::await_supervisor(&paths.sandbox)?;
        let options = self.options(placement.origin.as_ref());
        let known = session.state().workspace.as_ref();
        let (workspace, recovered) = self.open_workspace(&paths.files, &paths.state, &options, &[known])?;
        let mut opened = OpenWorkspace::over(workspace, paths);
        // The files were made from the version last seen, which may be older than the session's.
        if let Some(at) = opened.at()? {
            opened.workspace.track(vec![at]);
        }
        self.finish_pending_restore(session, &mut opened, recovered).await?;
        self.seal_for_stored_forks(session.id(), placement, &mut opened).await?;
        Ok((opened, sharing))
    }

    /// Removes the state of a directory that was deleted.
    async fn remove_stale_state(&self, paths: &Paths) -> Result<()> {
        // The session's origin may be creating the copy at this moment.
        let _sharing = self.sharing.lock().await;
        if paths.are_there() {
            return Ok(());
        }
        match workspace::remove_tree(&paths.state) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(io_error(format!("removing {}", paths.state.display()), error))
            }
            _ => Ok(()),
        }
    }

    /// Whether a copy consists of layers and the session's backend cannot mount them.
    pub(super) fn cannot_mount_layers(&self, placement: &Placement, paths: &Paths) -> Result<bool> {
        let is_layered = !placement.in_place && Workspace::is_layered(&paths.state);
        Ok(is_layered && !self.backends.get(&placement.backend)?.capabilities().copy_on_write)
    }

    /// Records a restore of this session that a process died before recording.
    async fn finish_pending_restore(
        &self,
        session: &mut Session,
        opened: &mut OpenWorkspace,
        done: Option<RecoveredRestore>,
    ) -> Result<()> {
        let pending_restore = opened.pending_restore().filter(|pending| pending.head == session.head().id);
        let known = session.state().workspace.as_ref();
        match pending_restore {
            Some(PendingRestore { from, to, point, .. }) => {
                let is_finished = done.is_some();
                let (now, kept) = match done {
                    Some(done) => (done.version, done.kept),
                    None => (opened.workspace.save()?.version, Vec::new()),
                };
                // Without a journal the restore had not started, or only its record is missing.
                if !now.same_files(&from) && (is_finished || opened.moved_from_to(&from, &to, &now)?) {
                    let changed = Changes::of(opened.workspace.changes(&from, &now)?);
                    let conflicts =
                        View::of(&self.store, point.session, Some(point.seq)).await?.state().conflicts.clone();
                    session.append(Restored {
                        why: RestoreReason::Recovered,
                        from,
                        workspace: now.clone(),
                        point: Some(point),
                        outside: Changes::default(),
                        changed,
                        kept,
                        conflicts,
                    })?;
                    session.publish().await?;
                    opened.note(&now)?;
                }
            }
            // The directory was being updated to the session's version. Any other restore belonged to another session,
            // and its changes are external edits.
            None => {
                if let Some(done) = done.filter(|done| known.is_some_and(|known| known.same_files(&done.to))) {
                    opened.note(&done.to)?;
                }
            }
        }
        opened.remove_pending_restore()
    }

    pub(super) fn options(&self, origin: Option<&FilePath>) -> workspace::Options {
        // Protected directories were checked when the workspace was assigned.
        workspace::Options { anywhere: true, ..self.options_of(origin) }
    }

    /// Saves the directory, and updates it to the session's version if it is only behind.
    async fn reconcile(&self, session: &Session, opened: &mut OpenWorkspace) -> Result<Reconciled> {
        let mut saved = opened.workspace.save()?;
        let Some(target) = &session.state().workspace else {
            return Ok(Reconciled { saved, outside: Vec::new(), behind: false });
        };
        if saved.version.same_files(target) {
            return Ok(Reconciled { saved, outside: Vec::new(), behind: false });
        }
        let at = opened.at()?;
        match at {
            // The directory is unchanged and the session is newer: a merge, a resolution, a fork's first use.
            Some(at) if at.same_files(&saved.version) => {
                saved.version = opened.restore(Some(&at), target).await?.version;
                opened.note(&saved.version)?;
                Ok(Reconciled { saved, outside: Vec::new(), behind: false })
            }
            // A new copy.
            None if saved.files == 0 => {
                saved.version = opened.restore(None, target).await?.version;
                opened.note(&saved.version)?;
                Ok(Reconciled { saved, outside: Vec::new(), behind: false })
            }
            Some(at) if !at.same_files(target) => {
                let outside = opened.workspace.changes(&at, &saved.version)?;
                Ok(Reconciled { saved, outside, behind: true })
            }
            _ => {
                let outside = opened.workspace.changes(target, &saved.version)?;
                Ok(Reconciled { saved, outside, behind: false })
            }
        }
    }

    /// Records the end of calls that a process died in. Their leftover processes are killed, and the changes in the
    /// directory are attributed to them.
    pub(super) async fn close_lost_calls(&self, session: &mut Session, opened: &mut OpenWorkspace) -> Result<()> {
        let lost: Vec<_> = session.pending().calls.into_iter().filter(|call| call.user_started).collect();
        if lost.is_empty() {
            return Ok(());
        }
        if let Some(sandbox) = session.state().placement.as_ref().and_then(|placement| placement.sandbox.as_ref()) {
            rath_sandbox::kill_marked(&sandbox.id);
        }
        let scan = Scan::session(session.id(), 0, session.head().seq).kinds(&[Kind::ToolStarted]).backwards().limit(64);
        let started = self.store.scan(scan).await?.records;
        for call in lost {
            let record = started.iter().find(|record| record.id() == call.record);
            let body: Option<ToolStarted> = record.and_then(|record| record.body().ok());
            let mut finished = ToolFinished::new(call.id, CallOutcome::Lost);
            // A call that started without a version does not write files.
            let seen = match body.and_then(|body| body.workspace) {
                Some(before) => opened.after_lost(before, &mut finished)?,
                None => None,
            };
            session.append(finished)?;
            session.publish().await?;
            seen.map_or(Ok(()), |seen| opened.note(&seen))?;
        }
        Ok(())
    }

    /// The specification of the session's sandbox. Two sessions in one directory have separate sandboxes.
    pub(super) fn spec(&self, placement: &Placement, opened: &OpenWorkspace) -> Result<SandboxSpec> {
        let origin = placement.origin.as_ref().map(path_of);
        self.spec_of(&opened.workspace, &opened.paths.sandbox, origin.as_deref())
    }

    /// The specification of a sandbox that shows a workspace at the path of its origin, so that absolute paths are
    /// valid in every fork.
    pub(super) fn spec_of(&self, workspace: &Workspace, state: &Path, origin: Option<&Path>) -> Result<SandboxSpec> {
        let made = fs::create_dir_all(state);
        made.map_err(|error| io_error(format!("making {}", state.display()), error))?;
        let overlay = workspace.overlay();
        let Confinement { home, readable, hidden, limits } = self.confinement.clone();
        let hidden = hidden.into_iter().chain(self.store.directory().map(Path::to_owned)).chain([self.home.clone()]);
        // A copy is below `home`, which is hidden otherwise. Layers are mounted at another path.
        let is_directory = overlay.is_none();
        let lies_in = |hidden: &PathBuf| is_directory && workspace.directory().starts_with(hidden);
        Ok(SandboxSpec {
            env: self.env.clone(),
            mount_path: Some(origin.unwrap_or(Path::new(NO_ORIGIN)).into()),
            overlay: overlay.map(|workspace::OverlayDirs { lowers, upper, work }| Overlay { lowers, upper, work }),
            home,
            readable,
            hidden: hidden.filter(|hidden| !lies_in(hidden)).collect(),
            limits,
            ..SandboxSpec::new(workspace.directory(), state)
        })
    }

    /// The sandbox of the session: the one that is open, the recorded one reopened, or a new one.
    pub(super) async fn sandbox(&self, session: &mut Session, opened: &mut OpenWorkspace) -> Result<Arc<dyn Sandbox>> {
        if let Some(sandbox) = &opened.sandbox {
            match sandbox.status().await? {
                SandboxStatus::Open { .. } => return Ok(sandbox.clone()),
                SandboxStatus::Lost { why } => self.lost_sandbox(session, opened, why)?,
                SandboxStatus::Closed => opened.sandbox = None,
            }
        }
        let placement = session.state().placement.clone().ok_or(Error::NotPlaced(session.id()))?;
        let backend = self.backends.get(&placement.backend)?;
        let spec = self.spec(&placement, opened)?;
        if let Some(SandboxName { id, generation }) = placement.sandbox {
            match backend.reopen(Identity { id: id.clone(), generation }, spec.clone()).await {
                Ok(sandbox) => {
                    opened.sandbox = Some(sandbox.clone());
                    return Ok(sandbox);
                }
                Err(error) if error.code() == "sandbox-lost" => {
                    let why = error.to_string();
                    session.append(SandboxLost { sandbox: SandboxName { id, generation }, why })?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let sandbox = backend.open(spec).await?;
        let Identity { id, generation } = sandbox.identity().clone();
        session.append(SandboxOpened {
            sandbox: SandboxName { id, generation },
            backend: placement.backend,
            isolated: sandbox.capabilities().isolated,
            isolation: sandbox.isolation(),
            directory: name_of(opened.workspace.directory()),
            not_enforced: sandbox.not_enforced(),
            covered: sandbox.covered().iter().take(COVERED_SHOWN).map(|path| name_of(path)).collect(),
        })?;
        opened.sandbox = Some(sandbox.clone());
        Ok(sandbox)
    }

    /// Records that the sandbox is lost. The next use opens another one.
    pub(super) fn lost_sandbox(&self, session: &mut Session, opened: &mut OpenWorkspace, why: String) -> Result<()> {
        let sandbox = session.state().placement.as_ref().and_then(|placement| placement.sandbox.clone());
        opened.sandbox = None;
        if let Some(sandbox) = sandbox {
            rath_sandbox::kill_marked(&sandbox.id);
            session.append(SandboxLost { sandbox, why })?;
        }
        Ok(())
    }
}

impl OpenWorkspace {
    /// An open workspace without a sandbox.
    pub(super) fn over(workspace: Workspace, paths: Paths) -> Self {
        Self { workspace, sandbox: None, saved_version: None, last_note: LastNote::default(), paths }
    }

    /// Restores a version. Layers are unmounted first.
    pub(super) async fn restore(&mut self, known: Option<&Version>, to: &Version) -> Result<workspace::RestoreOutcome> {
        self.suspend_sandbox().await?;
        Ok(self.workspace.restore(known, to)?)
    }

    /// Its paths.
    pub(super) fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Unmounts layers, if there are any, by suspending the sandbox.
    pub(super) async fn suspend_sandbox(&self) -> Result<()> {
        match &self.sandbox {
            Some(sandbox) if self.workspace.overlay().is_some() => Ok(sandbox.suspend().await?),
            _ => Ok(()),
        }
    }

    /// The version that the session last saw in this directory. `None` if a crash kept that version from being stored.
    fn at(&self) -> Result<Option<Version>> {
        let Some(seen) = self.paths.seen() else { return Ok(None) };
        Ok(self.workspace.is_stored(&seen)?.then_some(seen))
    }

    /// Fills in the changes of an interrupted call that started with `before`. Returns the version in the directory,
    /// unless the directory shows nothing of the call.
    fn after_lost(&mut self, before: Version, finished: &mut ToolFinished) -> Result<Option<Version>> {
        let saved = self.workspace.save()?;
        // An unchanged or recreated directory shows nothing of the call.
        let untouched = match self.at()? {
            Some(at) => at.same_files(&saved.version),
            None => saved.files == 0,
        };
        if untouched {
            finished.workspace = Some(before);
            return Ok(None);
        }
        finished.changed = Changes::of(self.workspace.changes(&before, &saved.version)?);
        finished.workspace = Some(saved.version.clone());
        Ok(Some(saved.version))
    }

    fn pending_restore(&self) -> Option<PendingRestore> {
        serde_json::from_slice(&fs::read(&self.paths.pending_restore).ok()?).ok()
    }

    /// Whether a restore was completed, even if there were edits since: of the paths that differ between `from` and
    /// `to`, none still has its old content and at least one has its new content.
    fn moved_from_to(&self, from: &Version, to: &Version, now: &Version) -> Result<bool> {
        let paths = |before, after| -> Result<BTreeSet<FilePath>> {
            let changes = self.workspace.changes(before, after)?;
            Ok(changes.into_iter().map(|change| change.path).collect())
        };
        let (way, left, missed) = (paths(from, to)?, paths(from, now)?, paths(to, now)?);
        Ok(way.is_subset(&left) && !way.is_subset(&missed))
    }

    /// Writes the file of a restore that is about to start.
    pub(super) fn begin_restore(&self, pending_restore: &PendingRestore) -> Result<()> {
        let written = serde_json::to_vec(pending_restore).map_err(std::io::Error::from);
        let written = written.and_then(|bytes| workspace::durable::atomic_write(&self.paths.pending_restore, &bytes));
        written.map_err(|error| io_error(format!("writing {}", self.paths.pending_restore.display()), error))
    }

    /// Removes the file of a restore that is over.
    pub(super) fn remove_pending_restore(&self) -> Result<()> {
        match fs::remove_file(&self.paths.pending_restore) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(io_error(format!("removing {}", self.paths.pending_restore.display()), error))
            }
            _ => Ok(()),
        }
    }

    /// Notes the version that the session has seen.
    pub(super) fn note(&mut self, version: &Version) -> Result<()> {
        if self.last_note.version.as_ref() != Some(version) {
            let LastNote { file, .. } = std::mem::take(&mut self.last_note);
            self.last_note = LastNote { file: self.paths.note(version, file)?, version: Some(version.clone()) };
        }
        Ok(())
    }
}

pub(super) fn io_error(doing: impl Into<String>, error: std::io::Error) -> Error {
    workspace::Error::Machine { doing: doing.into(), cause: error }.into()
}
