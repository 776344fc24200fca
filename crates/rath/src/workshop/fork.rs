//! Forks that share what they began with.

use std::sync::PoisonError;

use rath_core::files::Version;
use rath_core::{Placement, Session, SessionId, View};
use rath_workspace::{self as workspace, Workspace};

use super::setup::nap;
use super::site::{Paths, Site};
use super::{Error, Result, Workshop};

/// How many moments others may fork the same session. Each of them syncs a file system, which takes seconds where much is
/// written; and who does not wait for them goes without the files that are ignored.
const PATIENCE: usize = 3_000;

impl Workshop {
    /// Forks a session with its files: both go on over the same layers, ignored files included, each with a new one of
    /// its own. Without layers the fork gets a copy when it first needs one.
    pub async fn fork(&self, session: &mut Session, why: impl Into<String>) -> Result<Session> {
        session.publish().await?;
        let fork = session.fork(why);
        self.shared(session, fork).await
    }

    /// As [`fork`](Self::fork), for a tool call.
    pub(crate) async fn fork_for_call(&self, session: &mut Session, why: String, call: &str) -> Result<Session> {
        session.publish().await?;
        let fork = session.fork_for_call(why, call);
        self.shared(session, fork).await
    }

    async fn shared(&self, session: &Session, mut fork: Session) -> Result<Session> {
        fork.publish().await?;
        let view = session.view().await?;
        self.share(&view, fork.id()).await?;
        Ok(fork)
    }

    /// Lets `fork`, which has the files of `of`, begin with the layers of that session. `false` when there is nothing
    /// to share: no layers, somebody at work in them, or files that have moved on.
    pub async fn share(&self, of: &View, fork: SessionId) -> Result<bool> {
        self.hold_off()?;
        let (Some(placement), Some(version)) = (&of.state().placement, &of.state().workspace) else { return Ok(false) };
        let session = of.reference().session;
        let paths = Paths::of(&self.home, session, placement);
        if placement.in_place || !Workspace::is_layered(&paths.state) {
            return Ok(false);
        }
        // A fork that a resumed run found again has what it had.
        if Paths::of(&self.home, fork, placement).are_there() {
            return Ok(true);
        }
        let known = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
        let mut site = match known {
            Some(site) => site,
            None => match self.open_unless_at_work(&paths, placement, version).await? {
                Some(workspace) => Site::over(workspace, paths),
                None => return Ok(false),
            },
        };
        let shared = self.seal(&mut site, version, fork, placement).await;
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(session, site);
        shared
    }

    /// Opens a session's layers, unless somebody works there. Who merely forks it too has it for a moment.
    async fn open_unless_at_work(
        &self,
        paths: &Paths,
        placement: &Placement,
        version: &Version,
    ) -> Result<Option<Workspace>> {
        let options = self.options(placement.origin.as_ref());
        for _ in 0..PATIENCE {
            match self.open_workspace(&paths.files, &paths.state, &options, &[Some(version)]) {
                Ok((workspace, _)) => return Ok(Some(workspace)),
                Err(Error::Workspace(workspace::Error::Busy { .. })) => {}
                Err(error) => return Err(error),
            }
            if rath_sandbox::anchor_of(paths.sandbox()).is_some() {
                break;
            }
            nap().await;
        }
        Ok(None)
    }

    async fn seal(&self, site: &mut Site, version: &Version, fork: SessionId, placement: &Placement) -> Result<bool> {
        if !site.workspace.save()?.version.same_files(version) {
            return Ok(false);
        }
        site.let_go().await?;
        // It knows the layers as they were: the next use takes it up again over the new ones.
        site.sandbox = None;
        // An anchor of a process that was killed is about to end, and has the layers until then.
        rath_sandbox::await_anchor(site.paths().sandbox())?;
        let child = Paths::of(&self.home, fork, placement);
        child.expect(version)?;
        if let Some(line) = site.paths().set_up() {
            child.note_set_up(&line)?;
        }
        site.workspace.seal_for(&child.state)?;
        Ok(true)
    }
}
