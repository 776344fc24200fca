//! How forks keep ignored files: a fork starts with the layers of the session that it was made from.
//!
//! `Session::fork` touches no files. Whichever side next opens its layers seals them for the other one: the origin
//! before its files change, for the forks that its session value or the store knows of; or the fork, when its own copy
//! is made. A fork whose origin has used its files since the fork point starts from the version alone, without ignored
//! files.

use std::sync::PoisonError;

use rath_core::body::{ToolFinished, ToolStarted};
use rath_core::store::{Scan, SessionFilter, SessionInfo};
use rath_core::{Kind, Placement, Record, Session, SessionId, UnsharedFork, View};
use rath_sandbox::SandboxStatus;
use rath_workspace::{self as workspace, Workspace};

use super::open_workspace::{OpenWorkspace, Paths};
use super::setup::{PATIENCE, sleep_briefly};
use super::{Error, Result, Workspaces};

/// Records after which a session's files may differ, if they name a version.
const USES: [Kind; 4] = [Kind::ToolStarted, Kind::ToolFinished, Kind::Restored, Kind::Placed];

/// How many of these records are read to find the last use.
const SCANNED: usize = 64;

impl Workspaces {
    /// Seals the open layers of a session for the forks that its value remembers.
    pub(super) async fn seal_for_forks(&self, session: &mut Session, opened: &mut OpenWorkspace) -> Result<()> {
        let forks = session.take_unshared_forks();
        match session.state().placement.clone() {
            Some(placement) if !forks.is_empty() => self.seal_for(opened, &placement, forks).await,
            _ => Ok(()),
        }
    }

    /// As [`seal_for_forks`](Self::seal_for_forks), at once: the session is about to wait for its forks.
    pub(crate) async fn share_with_forks(&self, session: &mut Session) -> Result<()> {
        let Some(placement) = session.state().placement.clone() else { return Ok(()) };
        for fork in session.take_unshared_forks() {
            self.share_layers(session.id(), &placement, fork).await?;
        }
        Ok(())
    }

    /// Seals the open layers of a session for its forks in the store, made since its files were last used: the session
    /// value that made them is gone.
    pub(super) async fn seal_for_stored_forks(
        &self,
        session: SessionId,
        placement: &Placement,
        opened: &mut OpenWorkspace,
    ) -> Result<()> {
        if opened.workspace.overlay().is_none() {
            return Ok(());
        }
        let mut rows: Vec<SessionInfo> = self.store.sessions(SessionFilter::ChildrenOf(session).into()).await?;
        rows.retain(|row| !row.closed && !Paths::of_copy(&self.home, row.id).are_there());
        if rows.is_empty() {
            return Ok(());
        }
        let last_use = self.last_use(session).await?;
        let mut forks = Vec::new();
        for row in rows {
            if row.origin.is_some_and(|origin| origin.session == session && origin.seq >= last_use) {
                let view = View::of(&self.store, row.id, Some(0)).await?;
                forks.extend(view.state().workspace.clone().map(|version| UnsharedFork { id: row.id, version }));
            }
        }
        self.seal_for(opened, placement, forks).await
    }

    async fn seal_for(
        &self,
        opened: &mut OpenWorkspace,
        placement: &Placement,
        forks: Vec<UnsharedFork>,
    ) -> Result<()> {
        if opened.workspace.overlay().is_none() {
            return Ok(());
        }
        for fork in forks {
            if !Paths::of_copy(&self.home, fork.id).are_there() && self.can_use_layers(fork.id, placement).await? {
                self.seal(opened, placement, &fork).await?;
            }
        }
        Ok(())
    }

    /// Whether a fork is open and still has the placement of its origin. One that is not stored yet is and has.
    async fn can_use_layers(&self, fork: SessionId, placement: &Placement) -> Result<bool> {
        let rows = self.store.sessions(SessionFilter::Id(fork).into()).await?;
        match rows.first() {
            None => Ok(true),
            Some(row) if row.closed => Ok(false),
            Some(_) => {
                let view = View::of(&self.store, fork, None).await?;
                Ok(view.state().placement.as_ref().is_some_and(|own| is_same_place(own, placement)))
            }
        }
    }

    /// Has a fork without files start with the layers of the session that it was made from. Returns `false` when it
    /// cannot: its origin has no layers, works in them, or has used its files since the fork point.
    pub(super) async fn share_from_origin(&self, fork: &mut Session, placement: &Placement) -> Result<bool> {
        if fork.origin().is_none() {
            return Ok(false);
        }
        // This stores the origin up to the fork point, too.
        fork.publish().await?;
        let mut origin = fork.origin();
        while let Some(point) = origin {
            // An origin that cannot be read does not keep the fork from its own copy.
            let Ok(view) = View::of(&self.store, point.session, Some(point.seq)).await else { break };
            let (Some(before), Some(version)) = (&view.state().placement, &view.state().workspace) else { break };
            if before.in_place || !is_same_place(before, placement) {
                break;
            }
            match self.last_use(point.session).await {
                Ok(last_use) if last_use <= point.seq => {}
                _ => break,
            }
            if Paths::of(&self.home, point.session, before).are_there() {
                let fork = UnsharedFork { id: fork.id(), version: version.clone() };
                return Ok(self.share_layers(point.session, before, fork).await.unwrap_or(false));
            }
            // The origin is a fork itself that has not used its files.
            let rows = self.store.sessions(SessionFilter::Id(point.session).into()).await?;
            origin = rows.first().and_then(|row| row.origin);
        }
        Ok(false)
    }

    /// The last record of a session that has used its files; 0 if there is none.
    async fn last_use(&self, session: SessionId) -> Result<u64> {
        let scan = Scan::session(session, 0, u64::MAX).kinds(&USES).backwards().limit(SCANNED);
        let records = self.store.scan(scan).await?.records;
        let used = records.iter().find(|record| names_a_version(record));
        // Where so many were calls without files, the oldest of them counts.
        let last = used.or_else(|| records.last().filter(|_| records.len() == SCANNED));
        Ok(last.map_or(0, Record::seq))
    }

    /// Seals the layers of `origin` for a fork that has no files yet, unless another process has them open or commands
    /// run there.
    async fn share_layers(&self, origin: SessionId, placement: &Placement, fork: UnsharedFork) -> Result<bool> {
        self.block_gc()?;
        let paths = Paths::of(&self.home, origin, placement);
        if placement.in_place || !Workspace::is_layered(&paths.state) {
            return Ok(false);
        }
        let options = self.options(placement.origin.as_ref());
        for _ in 0..PATIENCE {
            {
                let _sharing = self.sharing.lock().await;
                if Paths::of_copy(&self.home, fork.id).are_there() {
                    return Ok(true);
                }
                let known = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&origin);
                if let Some(mut opened) = known {
                    let sealed = self.seal(&mut opened, placement, &fork).await?;
                    self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(origin, opened);
                    return Ok(sealed);
                }
                match self.open_workspace(&paths.files, &paths.state, &options, &[Some(&fork.version)]) {
                    Ok((workspace, _)) => {
                        return self.seal(&mut OpenWorkspace::over(workspace, paths), placement, &fork).await;
                    }
                    // Another process has them. It may be sharing them too.
                    Err(Error::Workspace(workspace::Error::Busy { .. })) => {}
                    Err(error) => return Err(error),
                }
            }
            if rath_sandbox::supervisor_pid(paths.sandbox()).is_some() {
                break;
            }
            sleep_briefly().await;
        }
        Ok(false)
    }

    /// Seals layers for a fork, if they contain what the fork starts with and no command runs in them.
    async fn seal(&self, opened: &mut OpenWorkspace, placement: &Placement, fork: &UnsharedFork) -> Result<bool> {
        if let Some(sandbox) = &opened.sandbox
            && let SandboxStatus::Open { running: 1.. } = sandbox.status().await?
        {
            return Ok(false);
        }
        if !opened.workspace.save()?.version.same_files(&fork.version) {
            return Ok(false);
        }
        opened.suspend_sandbox().await?;
        // The sandbox knows the old stack of layers: the next use opens one over the new stack.
        opened.sandbox = None;
        // The supervisor of a killed process is about to end, and has the layers mounted until then.
        rath_sandbox::await_supervisor(opened.paths().sandbox())?;
        let child = Paths::of(&self.home, fork.id, placement);
        child.expect(&fork.version)?;
        if let Some(line) = opened.paths().set_up_line() {
            child.note_setup_line(&line)?;
        }
        match opened.workspace.fork_into(&child.state) {
            Ok(_) => Ok(true),
            // The fork is making its copy at this moment.
            Err(workspace::Error::Busy { .. }) => Ok(false),
            Err(_) if child.are_there() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether the copies of two placements consist of the same layers at the fork point.
fn is_same_place(one: &Placement, other: &Placement) -> bool {
    (&one.backend, &one.origin, &one.setup) == (&other.backend, &other.origin, &other.setup)
}

/// Whether a record names a version of the files, or may have named one that is erased.
fn names_a_version(record: &Record) -> bool {
    match record.kind() {
        Kind::ToolStarted => record.body().map_or(true, |body: ToolStarted| body.workspace.is_some()),
        Kind::ToolFinished => record.body().map_or(true, |body: ToolFinished| body.workspace.is_some()),
        _ => true,
    }
}
