//! Restoring versions, saving external edits, and resolving conflicts.

use rath_core::body::{CallOutcome, Choice, Effect, Resolved, RestoreReason, Restored, ToolFinished, ToolStarted};
use rath_core::files::{Change, Changes, Conflict, FilePath, TreeStore, with_changes};
use rath_core::{Blob, LastChange, Point, Reference, Session, SessionId, View, fresh_name};
use rath_workspace as workspace;

use super::open_workspace::PendingRestore;
use super::{Error, Result, Workspaces};
use crate::recorder::CallRecord;

/// The result of a restore or an undo.
#[derive(Clone, Debug)]
pub struct RestoreReport {
    /// The `restored` record; `None` if the files had this version already.
    pub record: Option<Reference>,
    /// The paths that were changed.
    pub changed: Vec<Change>,
    /// External edits that were overwritten. The version in the record's `from` contains them.
    pub outside: Vec<Change>,
    /// Paths that were not restored, because they changed during the restore.
    pub kept: Vec<FilePath>,
    /// For an undo, the change that was undone.
    pub undone: Option<LastChange>,
}

/// How a conflict is resolved.
#[derive(Clone, Debug)]
pub enum Resolution {
    /// The session's side.
    Ours,
    /// The side of the merged branch.
    Theirs,
    /// The side of this branch, if the path is in conflict with several.
    TheirsOf(SessionId),
    /// The content at the common ancestor.
    Base,
    /// The path is removed.
    Remove,
    /// The file gets these bytes.
    Content(Vec<u8>),
    /// The content that the directory has now.
    Current,
}

impl Workspaces {
    /// Restores the files as they were after `point`, a record of this session or of any other. Fails on external edits
    /// unless `overwrite` is set. They are saved before they are overwritten.
    pub async fn restore(&self, session: &mut Session, point: Point, overwrite: bool) -> Result<RestoreReport> {
        self.set_files(session, point, RestoreReason::Asked, overwrite).await
    }

    /// Undoes the last change to the files. A second undo goes back one change further.
    pub async fn undo(&self, session: &mut Session, overwrite: bool) -> Result<RestoreReport> {
        session.publish().await?;
        let view = View::of(&self.store, session.id(), None).await?;
        let last = view.last_change().await?.ok_or(Error::NothingToUndo(session.id()))?;
        let mut back = self.set_files(session, last.before, RestoreReason::Undo, overwrite).await?;
        back.undone = Some(last);
        Ok(back)
    }

    async fn set_files(
        &self,
        session: &mut Session,
        point: Point,
        why: RestoreReason,
        overwrite: bool,
    ) -> Result<RestoreReport> {
        // `point` may be a record that is not published yet.
        session.publish().await?;
        let then = View::of(&self.store, point.session, Some(point.seq)).await?;
        let version = then.state().workspace.clone().ok_or(Error::NotPlaced(point.session))?;
        let (mut opened, found) = self.open_or_behind(session).await?;
        if !found.outside.is_empty() && !overwrite {
            return Err(workspace::Error::OutsideChanges { changes: found.outside }.into());
        }
        let known = found.saved.version;
        opened.begin_restore(&PendingRestore {
            head: session.head().id,
            from: known.clone(),
            to: version.clone(),
            point,
        })?;
        let restored = match opened.restore(Some(&known), &version).await {
            Ok(restored) => restored,
            Err(error) => {
                opened.remove_pending_restore()?;
                return Err(error);
            }
        };
        let same_conflicts = then.state().conflicts == session.state().conflicts;
        if restored.changed.is_empty() && found.outside.is_empty() && same_conflicts {
            opened.remove_pending_restore()?;
            self.keep_open(session, opened)?;
            return Ok(RestoreReport {
                record: None,
                changed: Vec::new(),
                outside: Vec::new(),
                kept: Vec::new(),
                undone: None,
            });
        }
        session.append(Restored {
            why,
            from: restored.from,
            workspace: restored.version,
            point: Some(point),
            conflicts: then.state().conflicts.clone(),
            outside: Changes::of(found.outside.clone()),
            changed: Changes::of(restored.changed.clone()),
            kept: restored.kept.clone(),
        })?;
        session.publish().await?;
        opened.remove_pending_restore()?;
        let record = Some(session.head());
        self.keep_open(session, opened)?;
        Ok(RestoreReport {
            record,
            changed: restored.changed,
            outside: found.outside,
            kept: restored.kept,
            undone: None,
        })
    }

    /// Records external edits; `None` if there are none.
    pub async fn save(&self, session: &mut Session) -> Result<Option<(Reference, Vec<Change>)>> {
        let (opened, found) = self.open(session).await?;
        let Some(before) = session.state().workspace.clone().filter(|_| !found.outside.is_empty()) else {
            self.keep_open(session, opened)?;
            return Ok(None);
        };
        let isolated = session.state().placement.as_ref().map(|placement| placement.isolated);
        let started = ToolStarted::new(format!("save-{}", fresh_name()), "save", Effect::Workspace);
        let call = CallRecord::start(session, ToolStarted { isolated, workspace: Some(before), ..started })?;
        session.append(ToolFinished {
            workspace: Some(found.saved.version),
            changed: Changes::of(found.outside.clone()),
            ..call.ended(CallOutcome::Done)
        })?;
        session.publish().await?;
        self.keep_open(session, opened)?;
        Ok(Some((session.head(), found.outside)))
    }

    /// Fails if the session's directory has external edits. Succeeds if the session has no workspace.
    pub async fn check_saved(&self, session: &mut Session) -> Result<()> {
        self.block_gc()?;
        let Some(placement) = session.state().placement.clone() else { return Ok(()) };
        let paths = super::open_workspace::Paths::of(&self.home, session.id(), &placement);
        // A copy that does not exist yet has no edits.
        if !placement.in_place && !paths.are_there() && session.pending().calls.is_empty() {
            return Ok(());
        }
        let (opened, found) = self.open(session).await?;
        self.keep_open(session, opened)?;
        match found.outside.is_empty() {
            true => Ok(()),
            false => Err(Error::Unsaved { session: session.id(), changes: found.outside }),
        }
    }

    /// Updates the session's directory to its version, such as after a merge. Fails on external edits.
    pub async fn sync(&self, session: &mut Session) -> Result<()> {
        self.check_saved(session).await
    }

    /// Resolves a conflict: records the resolved version, and updates the directory to it.
    pub async fn resolve(&self, session: &mut Session, path: &FilePath, decision: Resolution) -> Result<Reference> {
        let conflict = choose(session, path, &decision)?;
        let (mut opened, found) = self.open(session).await?;
        let elsewhere: Vec<_> = found.outside.iter().filter(|change| change.path != *path).cloned().collect();
        let keeps_current = matches!(decision, Resolution::Current);
        if !elsewhere.is_empty() || (!keeps_current && !found.outside.is_empty()) {
            return Err(workspace::Error::OutsideChanges { changes: found.outside }.into());
        }
        let now = session.state().workspace.clone().ok_or(Error::NotPlaced(session.id()))?;
        let forest = TreeStore::new(&*self.store);
        let current = forest.at(&now, path).await?;
        let sided = |node| Change { path: path.clone(), before: current, after: node };
        let (choice, side, change) = match decision {
            Resolution::Ours => (Choice::Ours, None, sided(conflict.ours)),
            Resolution::Theirs | Resolution::TheirsOf(_) => {
                (Choice::Theirs, self.head_of(conflict.branch).await?, sided(conflict.theirs))
            }
            Resolution::Base => (Choice::Base, None, sided(conflict.base)),
            Resolution::Remove => (Choice::Remove, None, sided(None)),
            Resolution::Current => (Choice::Content, None, sided(forest.at(&found.saved.version, path).await?)),
            Resolution::Content(bytes) => {
                let blob = Blob::new(bytes, "application/octet-stream");
                let like = [current, conflict.theirs, conflict.base].into_iter().flatten().find(|node| node.is_file());
                let node = rath_core::files::Node {
                    kind: rath_core::files::NodeKind::File,
                    mode: like.map_or(0o644, |node| node.mode),
                    sha256: blob.reference.digest,
                    size: blob.reference.bytes,
                };
                self.store.blob_put(vec![blob]).await?;
                (Choice::Content, None, sided(Some(node)))
            }
        };
        let workspace = match keeps_current {
            true => found.saved.version,
            false => with_changes(&forest, &now, std::slice::from_ref(&change)).await?,
        };
        let changed = Changes::of(rath_core::files::diff(&forest, &now, &workspace).await?);
        let at = if keeps_current { workspace.clone() } else { now };
        session.append(Resolved { path: path.clone(), choice, side, workspace, changed })?;
        session.publish().await?;
        let record = session.head();
        // `sync` sees a directory that is only behind, and updates it.
        opened.note(&at)?;
        self.put_back(session, opened);
        self.sync(session).await?;
        Ok(record)
    }

    /// The head of a branch.
    async fn head_of(&self, branch: Option<SessionId>) -> Result<Option<Point>> {
        match branch {
            Some(branch) => Ok(Some(View::of(&self.store, branch, None).await?.reference().point())),
            None => Ok(None),
        }
    }
}

/// The conflict to resolve. Resolving a path resolves its conflicts with all branches.
fn choose(session: &Session, path: &FilePath, decision: &Resolution) -> Result<Conflict> {
    let on_path = session.state().conflicts.iter().filter(|conflict| conflict.path == *path);
    let open: Vec<&Conflict> = match decision {
        Resolution::TheirsOf(branch) => on_path.filter(|conflict| conflict.branch == Some(*branch)).collect(),
        _ => on_path.collect(),
    };
    match (&open[..], decision) {
        ([], _) => Err(Error::NoConflict { session: session.id(), path: path.clone() }),
        ([_, _, ..], Resolution::Theirs) => {
            let branches = open.iter().filter_map(|conflict| conflict.branch).collect();
            Err(Error::SeveralSides { path: path.clone(), branches })
        }
        ([conflict, ..], _) => Ok((*conflict).clone()),
    }
}
