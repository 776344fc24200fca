//! Files back to an earlier version, edits saved, conflicts decided.

use rath_core::body::{CallOutcome, Choice, Effect, Resolved, Restored, ToolFinished, ToolStarted, Why};
use rath_core::files::{Change, Changes, Conflict, Forest, Name, graft};
use rath_core::{Blob, LastChange, Point, Reference, Session, SessionId, View, fresh_name};
use rath_workspace as workspace;

use super::site::Going;
use super::{Error, Result, Workshop};
use crate::recorder::CallRecord;

/// What a restore did.
#[derive(Clone, Debug)]
pub struct Back {
    /// Its `restored` record; `None` when the files were like this already.
    pub record: Option<Reference>,
    /// What was rewritten.
    pub changed: Vec<Change>,
    /// What somebody had changed without a record: it is in the record's `from` now.
    pub outside: Vec<Change>,
    /// Paths that changed meanwhile and were left alone.
    pub kept: Vec<Name>,
    /// For an undo, what was taken back.
    pub undone: Option<LastChange>,
}

/// How a conflict is decided.
#[derive(Clone, Debug)]
pub enum Decision {
    /// This line's side.
    Ours,
    /// The branch's side.
    Theirs,
    /// This branch's side, where the path is in conflict with several.
    TheirsOf(SessionId),
    /// What both began with.
    Base,
    /// The path goes.
    Remove,
    /// These bytes.
    Content(Vec<u8>),
    /// What is in the directory now.
    AsItIs,
}

impl Workshop {
    /// Sets the session's files to what they were after `point`, a record of this session or of any other. Stops when
    /// there are changes that no record has, unless `over` says to go over them; they are saved first either way.
    pub async fn restore(&self, session: &mut Session, point: Point, over: bool) -> Result<Back> {
        self.set_files(session, point, Why::Asked, over).await
    }

    /// Takes back the last change to the files. Asked again, it goes further back.
    pub async fn undo(&self, session: &mut Session, over: bool) -> Result<Back> {
        session.publish().await?;
        let view = View::of(&self.store, session.id(), None).await?;
        let last = view.last_change().await?.ok_or(Error::NothingToUndo(session.id()))?;
        let mut back = self.set_files(session, last.before, Why::Undo, over).await?;
        back.undone = Some(last);
        Ok(back)
    }

    async fn set_files(&self, session: &mut Session, point: Point, why: Why, over: bool) -> Result<Back> {
        // Somebody may mean a record that is only in memory.
        session.publish().await?;
        let then = View::of(&self.store, point.session, Some(point.seq)).await?;
        let version = then.state().workspace.clone().ok_or(Error::NotPlaced(point.session))?;
        let (mut site, found) = self.arrive(session).await?;
        if !found.outside.is_empty() && !over {
            return Err(workspace::Error::OutsideChanges { changes: found.outside }.into());
        }
        let known = found.saved.version;
        site.set_out(&Going { head: session.head().id, from: known.clone(), to: version.clone(), point })?;
        let restored = match site.restore(Some(&known), &version).await {
            Ok(restored) => restored,
            Err(error) => {
                site.arrived()?;
                return Err(error);
            }
        };
        let same_conflicts = then.state().conflicts == session.state().conflicts;
        if restored.changed.is_empty() && found.outside.is_empty() && same_conflicts {
            site.arrived()?;
            self.keep(session, site)?;
            return Ok(Back { record: None, changed: Vec::new(), outside: Vec::new(), kept: Vec::new(), undone: None });
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
        site.arrived()?;
        let record = Some(session.head());
        self.keep(session, site)?;
        Ok(Back { record, changed: restored.changed, outside: found.outside, kept: restored.kept, undone: None })
    }

    /// Records what was changed by hand since the last record; `None` when nothing was.
    pub async fn save(&self, session: &mut Session) -> Result<Option<(Reference, Vec<Change>)>> {
        let (site, found) = self.enter(session).await?;
        let Some(before) = session.state().workspace.clone().filter(|_| !found.outside.is_empty()) else {
            self.keep(session, site)?;
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
        self.keep(session, site)?;
        Ok(Some((session.head(), found.outside)))
    }

    /// Refuses when the session's directory holds what no record has. A session that works nowhere has nothing unsaved.
    pub async fn check_saved(&self, session: &mut Session) -> Result<()> {
        self.hold_off()?;
        let Some(placement) = session.state().placement.clone() else { return Ok(()) };
        let paths = super::site::Paths::of(&self.home, session.id(), &placement);
        // A copy that nobody made yet is not made for this.
        if !placement.in_place && !paths.are_there() && session.pending().calls.is_empty() {
            return Ok(());
        }
        let (site, found) = self.enter(session).await?;
        self.keep(session, site)?;
        match found.outside.is_empty() {
            true => Ok(()),
            false => Err(Error::Unsaved { session: session.id(), changes: found.outside }),
        }
    }

    /// Brings the session's directory to its version, where it has one: after a merge.
    pub async fn bring(&self, session: &mut Session) -> Result<()> {
        self.check_saved(session).await
    }

    /// Decides a conflict. The record has the files with the decision in them, and the directory is brought to them.
    pub async fn resolve(&self, session: &mut Session, path: &Name, decision: Decision) -> Result<Reference> {
        let conflict = choose(session, path, &decision)?;
        let (mut site, found) = self.enter(session).await?;
        let elsewhere: Vec<_> = found.outside.iter().filter(|change| change.path != *path).cloned().collect();
        let taken_as_it_is = matches!(decision, Decision::AsItIs);
        if !elsewhere.is_empty() || (!taken_as_it_is && !found.outside.is_empty()) {
            return Err(workspace::Error::OutsideChanges { changes: found.outside }.into());
        }
        let now = session.state().workspace.clone().ok_or(Error::NotPlaced(session.id()))?;
        let forest = Forest::new(&*self.store);
        let stands = forest.at(&now, path).await?;
        let sided = |node| Change { path: path.clone(), before: stands, after: node };
        let (choice, side, change) = match decision {
            Decision::Ours => (Choice::Ours, None, sided(conflict.ours)),
            Decision::Theirs | Decision::TheirsOf(_) => {
                (Choice::Theirs, self.head_of(conflict.branch).await?, sided(conflict.theirs))
            }
            Decision::Base => (Choice::Base, None, sided(conflict.base)),
            Decision::Remove => (Choice::Remove, None, sided(None)),
            Decision::AsItIs => (Choice::Content, None, sided(forest.at(&found.saved.version, path).await?)),
            Decision::Content(bytes) => {
                let blob = Blob::new(bytes, "application/octet-stream");
                let like = [stands, conflict.theirs, conflict.base].into_iter().flatten().find(|node| node.is_file());
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
        let workspace = match taken_as_it_is {
            true => found.saved.version,
            false => graft(&forest, &now, std::slice::from_ref(&change)).await?,
        };
        let changed = Changes::of(rath_core::files::diff(&forest, &now, &workspace).await?);
        let at = if taken_as_it_is { workspace.clone() } else { now };
        session.append(Resolved { path: path.clone(), choice, side, workspace, changed })?;
        session.publish().await?;
        let record = session.head();
        // The directory is behind by the decision, and the next look brings it.
        site.note(&at)?;
        self.open_again(session, site);
        self.bring(session).await?;
        Ok(record)
    }

    /// The last record of a branch.
    async fn head_of(&self, branch: Option<SessionId>) -> Result<Option<Point>> {
        match branch {
            Some(branch) => Ok(Some(View::of(&self.store, branch, None).await?.reference().point())),
            None => Ok(None),
        }
    }
}

/// The conflict that a decision is about. A path is decided once, with however many branches it is in conflict.
fn choose(session: &Session, path: &Name, decision: &Decision) -> Result<Conflict> {
    let on_path = session.state().conflicts.iter().filter(|conflict| conflict.path == *path);
    let open: Vec<&Conflict> = match decision {
        Decision::TheirsOf(branch) => on_path.filter(|conflict| conflict.branch == Some(*branch)).collect(),
        _ => on_path.collect(),
    };
    match (&open[..], decision) {
        ([], _) => Err(Error::NoConflict { session: session.id(), path: path.clone() }),
        ([_, _, ..], Decision::Theirs) => {
            let branches = open.iter().filter_map(|conflict| conflict.branch).collect();
            Err(Error::SeveralSides { path: path.clone(), branches })
        }
        ([conflict, ..], _) => Ok((*conflict).clone()),
    }
}
