//! Bringing a session's files to the directory they came from.

use std::collections::HashSet;

use rath_core::Session;
use rath_core::body::{CallOutcome, Effect, OutsideEffect, Placed, ToolFinished, ToolStarted};
use rath_core::files::{Change, Forest, Name, Node, Version, diff, graft};
use rath_core::{Reference, fresh_name};
use serde_json::json;

use super::site::{directory_key, path_of};
use super::{Error, Result, Workshop};
use crate::recorder::CallRecord;

/// What was brought.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The record of it; `None` when there was nothing to bring.
    pub record: Option<Reference>,
    /// The directory.
    pub directory: Name,
    /// What changed there.
    pub changed: Vec<Change>,
    /// Paths that were like this already.
    pub already: Vec<Name>,
}

impl Workshop {
    /// Brings what the session changed since it took its files into the directory they came from. Paths that changed
    /// there meanwhile stop it before anything is touched; open conflicts do too. With `dry`, nothing is touched.
    pub async fn apply(&self, session: &mut Session, dry: bool) -> Result<Applied> {
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
        let forest = Forest::new(&*self.store);
        let wanted = diff(&forest, base, files).await?;
        let state = self.home.join(directory_key(&origin));
        let options = self.options(Some(&origin));
        let (mut workspace, _) =
            self.open_workspace(&path_of(&origin), &state, &options, &[Some(base), Some(files)])?;
        let there = workspace.save()?.version;
        let Plan { todo, already } = plan(&forest, &there, wanted, &path_of(&origin).display().to_string()).await?;
        let applied = |record, changed| Applied { record, directory: origin.clone(), changed, already };
        let brought = Placed {
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
                session.append(brought)?;
                session.publish().await?;
            }
            return Ok(applied(None, todo));
        }
        let target = graft(&forest, &there, &todo).await?;
        let started = ToolStarted::new(format!("apply-{}", fresh_name()), "apply", Effect::Idempotent);
        let arguments = Some(json!({ "directory": origin.lossy() }).to_string().into());
        let call = CallRecord::start(session, ToolStarted { arguments, isolated: Some(false), ..started })?;
        session.publish().await?;
        let restored = workspace.restore(Some(&there), &target)?;
        drop(workspace);
        session.append(ToolFinished {
            effects: vec![OutsideEffect {
                system: "directory".into(),
                object: origin.lossy().into_owned(),
                before: Some(restored.from.id().to_string()),
                after: Some(restored.version.id().to_string()),
                reversible: true,
            }],
            remarks: restored.kept.iter().map(|path| format!("left alone, it changed meanwhile: {path}")).collect(),
            ..call.ended(CallOutcome::Done)
        })?;
        let record = session.head();
        session.append(brought)?;
        session.publish().await?;
        Ok(applied(Some(record), todo))
    }
}

struct Plan {
    todo: Vec<Change>,
    already: Vec<Name>,
}

/// What is to be done in a directory that holds `there`. Whatever is neither as it was nor as it shall be stops it.
async fn plan(forest: &Forest<'_>, there: &Version, wanted: Vec<Change>, directory: &str) -> Result<Plan> {
    let (mut plan, mut changed) = (Plan { todo: Vec::new(), already: Vec::new() }, Vec::new());
    let left = left_in_directories(forest, there, &wanted).await?;
    let is_dir = |node: &Option<Node>| node.is_some_and(|node| node.is_directory());
    for mut change in wanted {
        let now = forest.at(there, &change.path).await?;
        // A directory's digest covers what is in it: of itself it has only a mode.
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
            // What others put there keeps its directory, and nothing else can stand in its place.
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

/// Directories that are to go, and hold what is not.
async fn left_in_directories(forest: &Forest<'_>, there: &Version, wanted: &[Change]) -> Result<HashSet<Name>> {
    let is_dir = |node: &Option<Node>| node.is_some_and(|node| node.is_directory());
    let goes = |change: &&Change| is_dir(&change.before) && !is_dir(&change.after);
    let going: HashSet<&Name> = wanted.iter().filter(goes).map(|change| &change.path).collect();
    let mut left = HashSet::new();
    if going.is_empty() {
        return Ok(left);
    }
    let gone: HashSet<&Name> =
        wanted.iter().filter(|change| change.after.is_none() || goes(change)).map(|change| &change.path).collect();
    for (path, _) in forest.list(there).await? {
        let mut above = path.split().0;
        while !gone.contains(&path) && !above.as_bytes().is_empty() {
            if going.contains(&above) {
                left.insert(above.clone());
            }
            above = above.split().0;
        }
    }
    Ok(left)
}
