//! The workspace around a tool call of an agent: sandbox and version before, version and changes after.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, PoisonError};

use rath_core::body::{RestoreReason, Restored};
use rath_core::files::{Change, Changes, Version};
use rath_core::{ErrorKind, Session};
use rath_sandbox::{Sandbox, SandboxStatus};

use super::open_workspace::{OpenWorkspace, path_of};
use super::{Error, Result, Workspaces};

/// The workspace before a call.
pub(crate) struct BeforeCall {
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) version: Version,
    /// External edits before the call.
    pub(crate) outside: Vec<Change>,
    pub(crate) isolated: bool,
    /// The path at which commands see the files.
    pub(crate) mount_path: PathBuf,
    /// The directory above which git must not look for a repository.
    pub(crate) ceiling: Option<PathBuf>,
}

/// The workspace after a call.
pub(crate) struct AfterCall {
    pub(crate) version: Version,
    pub(crate) changed: Vec<Change>,
    pub(crate) remarks: Vec<String>,
}

impl BeforeCall {
    fn at(
        session: &Session,
        opened: &OpenWorkspace,
        sandbox: Arc<dyn Sandbox>,
        version: Version,
        outside: Vec<Change>,
    ) -> Self {
        let placement = session.state().placement.as_ref();
        let origin = placement.and_then(|placement| placement.origin.as_ref());
        let layered = opened.workspace.overlay().is_some();
        let directory = opened.workspace.directory();
        let mount_path = match layered {
            true => origin.map_or_else(|| PathBuf::from(super::open_workspace::NO_ORIGIN), path_of),
            false => directory.to_owned(),
        };
        // A copy is below the store's directory, which may be in a repository of the user.
        let copied = !layered && placement.is_some_and(|placement| !placement.in_place);
        let ceiling = directory.parent().filter(|_| copied).map(Into::into);
        let isolated = sandbox.capabilities().isolated;
        Self { sandbox, version, outside, isolated, mount_path, ceiling }
    }
}

impl Workspaces {
    /// Prepares the workspace for a call: setup is run, the files have the session's version, and the sandbox is open.
    /// `quiet` means that no command runs in the sandbox.
    pub(crate) async fn before_call(&self, session: &mut Session, quiet: bool) -> Result<BeforeCall> {
        if quiet
            && !session.has_unshared_forks()
            && let Some(before) = self.unchanged_since_last_call(session).await?
        {
            return Ok(before);
        }
        self.prepare(session, pin!(std::future::pending())).await?;
        let (mut opened, found) = self.open(session).await?;
        let sandbox = self.sandbox(session, &mut opened).await?;
        // Do not note external edits as seen: they are not recorded, and a later reconciliation would revert them.
        if found.outside.is_empty() {
            opened.note(&found.saved.version)?;
        }
        let before = BeforeCall::at(session, &opened, sandbox, found.saved.version, found.outside);
        self.put_back(session, opened);
        Ok(before)
    }

    /// The workspace, if it is known to be unchanged since the last call: only the sandbox can change layers.
    async fn unchanged_since_last_call(&self, session: &Session) -> Result<Option<BeforeCall>> {
        let known = {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.get(&session.id()).and_then(|opened| {
                let sandbox = opened.sandbox.clone()?;
                let version = opened.saved_version.clone().filter(|_| opened.workspace.overlay().is_some())?;
                let same = session.state().workspace.as_ref() == Some(&version);
                same.then(|| BeforeCall::at(session, opened, sandbox, version, Vec::new()))
            })
        };
        match known {
            Some(before) if matches!(before.sandbox.status().await?, SandboxStatus::Open { .. }) => Ok(Some(before)),
            _ => Ok(None),
        }
    }

    /// Saves the files after a call. Returns the version and the changes.
    pub(crate) async fn after_call(&self, session: &mut Session, before: &Version) -> Result<AfterCall> {
        let mut opened = match self.take_open(session.id()).await {
            Some(opened) => opened,
            None => {
                let placement = session.state().placement.clone().ok_or(Error::NotPlaced(session.id()))?;
                self.open_directory(session, &placement).await?.0
            }
        };
        // The saved blobs can wait for the commit of the record only if it goes to the same store.
        let is_same_store = std::ptr::addr_eq(Arc::as_ptr(&self.store), Arc::as_ptr(session.store()));
        let saved = match is_same_store {
            true => opened.workspace.save_for_record(),
            false => opened.workspace.save(),
        };
        let saved = match saved {
            Ok(saved) => saved,
            Err(error) => {
                self.put_back(session, opened);
                return Err(error.into());
            }
        };
        let changed = opened.workspace.changes(before, &saved.version)?;
        let mut remarks: Vec<String> =
            saved.skipped.iter().map(|skipped| format!("not versioned: {} ({})", skipped.path, skipped.why)).collect();
        remarks.extend(saved.unstable.iter().map(|path| format!("changed while it was saved: {path}")));
        remarks.truncate(100);
        opened.saved_version = Some(saved.version.clone());
        self.put_back(session, opened);
        Ok(AfterCall { version: saved.version, changed, remarks })
    }

    /// Notes the session's version as seen.
    pub(crate) fn note_seen(&self, session: &Session) -> Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        match (open.get_mut(&session.id()), &session.state().workspace) {
            (Some(opened), Some(version)) => opened.note(version),
            _ => Ok(()),
        }
    }

    /// Restores the files as they were before an interrupted call. Returns the record, or `None` if they were
    /// unchanged.
    pub(crate) async fn restore_before_call(
        &self,
        session: &mut Session,
        before: &Version,
    ) -> Result<Option<Restored>> {
        if session.state().closed {
            return Err(rath_core::Error::from(ErrorKind::Closed(session.id())).into());
        }
        let (mut opened, found) = self.open_or_behind(session).await?;
        let known = found.saved.version;
        if known.same_files(before) {
            return self.keep_open(session, opened).map(|()| None);
        }
        let restored = opened.restore(Some(&known), before).await?;
        let restored = Restored {
            why: RestoreReason::Resumed,
            from: restored.from,
            workspace: restored.version,
            point: None,
            conflicts: session.state().conflicts.clone(),
            outside: Changes::default(),
            changed: Changes::of(restored.changed),
            kept: restored.kept,
        };
        session.append(restored.clone())?;
        session.publish().await?;
        self.keep_open(session, opened).map(|()| Some(restored))
    }
}
