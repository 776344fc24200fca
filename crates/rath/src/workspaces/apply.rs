//! Applying a session's changes to the directory that its files came from.

use std::collections::HashSet;

use rath_core::Session;
use rath_core::body::{CallOutcome, Effect, OutsideEffect, Placed, ToolFinished, ToolStarted};
use rath_core::files::{Change, FilePath, Node, TreeStore, Version, diff, with_changes};
use rath_core::{Reference, fresh_name};
use serde_json::json;

use super::open_workspace::{directory_key, path_of};
use super::{Error, Result, Workspaces};
use crate::recorder::CallRecord;

/// The result of [`Workspaces::apply`].
#[derive(Clone, Debug)]
pub struct ApplyReport {
    /// The `tool_finished` record; `None` if there was nothing to apply.
    pub record: Option<Reference>,
    /// The directory that was changed.
    pub directory: FilePath,
    /// The changes that were made, or with `dry` would be made.
    pub changed: Vec<Change>,
    /// Paths that had the session's content already.
    pub already: Vec<FilePath>,
}

impl Workspaces {
    /// Writes the session's changes to the directory that its files were copied from. Fails before it writes anything
    /// if a path to be written was also changed there since the copy was made, or if the session has open merge
    /// conflicts. With `dry`, nothing is written.
    pub async fn apply(&self, session: &mut Session, dry: bool) -> Result<ApplyReport> {
        let placement = session.state().placement.clone().ok_or(Error::NotPlaced(session.id()))?;
        let origin = placement.origin.clone().ok_or(Error::NoOrigin(session.id()))?;
        if placement.in_place {
            return Err(Error::InPlace { session: session.id(), directory: origin });
        }
        let conflicts = &session.state().conflicts;
        if !conflicts.is_empty() {
            let paths = conflicts.iter().map(|conflict| conflict.path.clone()).collect();
            return Err(Error::Conflicts { session: session.id(), paths });
        }
        self.check_saved(session).await?;
        let (Some(base), Some(files)) = (&placement.base, &session.state().workspace.clone()) else {
            return Err(Error::NoOrigin(session.id()));
        };
        let forest = TreeStore::new(&*self.store);
        let wanted = diff(&forest, base, files).await?;
        let state = self.home.join(directory_key(&origin));
        let options = self.options(Some(&origin));
        let (mut workspace, _) =
            self.open_workspace(&path_of(&origin), &state, &options, &[Some(base), Some(files)])?;
        let found = workspace.save()?.version;
        let Plan { todo, already } = plan(&forest, &found, wanted, &path_of(&origin).display().to_string()).await?;
        let applied = |record, changed| ApplyReport { record, directory: origin.clone(), changed, already };
        let applied_base = Placed {
            backend: placement.backend,
            isolated: placement.isolated,
            origin: Some(origin.clone()),
            in_place: false,
            workspace: None,
            base: Some(files.clone()),
            setup: placement.setup,
            why: Some("applied".into()),
        };
        if todo.is_empty() || dry {
            if !dry && !base.same_files(files) {
                session.append(applied_base)?;
                session.publish().await?;
            }
            return Ok(applied(None, todo));
        }
        let target = with_changes(&forest, &found, &todo).await?;
        let started = ToolStarted::new(format!("apply-{}", fresh_name()), "apply", Effect::Idempotent);
        let arguments = Some(json!({ "directory": origin.lossy() }).to_string().into());
        let call = CallRecord::start(session, ToolStarted { arguments, isolated: Some(false), ..started })?;
        session.publish().await?;
        let restored = workspace.restore(Some(&found), &target)?;
        drop(workspace);
        session.append(ToolFinished {
            effects: vec![OutsideEffect {
                system: "directory".into(),
                object: origin.lossy().into_owned(),
                before: Some(restored.from.id().to_string()),
                after: Some(restored.version.id().to_string()),
                reversible: true,
            }],
            remarks: restored
                .kept
                .iter()
                .map(|path| format!("not written, it changed during the apply: {path}"))
                .collect(),
            ..call.ended(CallOutcome::Done)
        })?;
        let record = session.head();
        session.append(applied_base)?;
        session.publish().await?;
        Ok(applied(Some(record), todo))
    }
}

struct Plan {
    todo: Vec<Change>,
    already: Vec<FilePath>,
}

/// The changes to make in a directory with the version `found`. Fails if a path has neither its old nor its new
/// content.
async fn plan(forest: &TreeStore<'_>, found: &Version, wanted: Vec<Change>, directory: &str) -> Result<Plan> {
    let (mut plan, mut changed) = (Plan { todo: Vec::new(), already: Vec::new() }, Vec::new());
    let left = left_in_directories(forest, found, &wanted).await?;
    let is_dir = |node: &Option<Node>| node.is_some_and(|node| node.is_directory());
    for mut change in wanted {
        let now = forest.at(found, &change.path).await?;
        // A directory's digest covers its entries, which are separate changes. Only the mode is compared.
        if let (Some(now), Some(after)) = (now, &mut change.after)
            && now.is_directory()
            && after.is_directory()
        {
            let before = change.before.filter(Node::is_directory).map_or(after.mode, |before| before.mode);
            *after = Node { mode: after.mode, ..now };
            change.before = Some(Node { mode: before, ..now });
        }
        if now == change.after {
            plan.already.push(change.path);
        } else if left.contains(&change.path) {
            // The directory has files that the session does not know: it stays, and cannot be replaced by a file.
            if change.after.is_some() {
                changed.push(change.path);
            }
        } else if now == change.before || (is_dir(&now) && is_dir(&change.before)) {
            plan.todo.push(change);
        } else {
            changed.push(change.path);
        }
    }
    match changed.is_empty() {
        true => Ok(plan),
        false => Err(Error::ChangedMeanwhile { directory: directory.into(), paths: changed }),
    }
}

/// Directories to be removed that contain files which are not to be removed.
async fn left_in_directories(forest: &TreeStore<'_>, found: &Version, wanted: &[Change]) -> Result<HashSet<FilePath>> {
    let is_dir = |node: &Option<Node>| node.is_some_and(|node| node.is_directory());
    let goes = |change: &&Change| is_dir(&change.before) && !is_dir(&change.after);
    let removed_directories: HashSet<&FilePath> = wanted.iter().filter(goes).map(|change| &change.path).collect();
    let mut left = HashSet::new();
    if removed_directories.is_empty() {
        return Ok(left);
    }
    let gone: HashSet<&FilePath> =
        wanted.iter().filter(|change| change.after.is_none() || goes(change)).map(|change| &change.path).collect();
    for (path, _) in forest.list(found).await? {
        let mut above = path.split().0;
        while !gone.contains(&path) && !above.as_bytes().is_empty() {
            if removed_directories.contains(&above) {
                left.insert(above.clone());
            }
            above = above.split().0;
        }
    }
    Ok(left)
}
