//! What an agent's calls need of the place where the session works: the sandbox, and the files before and after.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, PoisonError};

use rath_core::body::{Restored, Why};
use rath_core::files::{Change, Changes, Version};
use rath_core::{ErrorKind, Session};
use rath_sandbox::{Sandbox, Status};

use super::site::{Site, path_of};
use super::{Error, Result, Workshop};

/// The place before a call.
pub(crate) struct Before {
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) version: Version,
    /// What somebody else had changed.
    pub(crate) outside: Vec<Change>,
    pub(crate) isolated: bool,
    /// Where commands see the files.
    pub(crate) appears_at: PathBuf,
    /// Where git is not to look further up.
    pub(crate) ceiling: Option<PathBuf>,
}

/// The place after a call.
pub(crate) struct After {
    pub(crate) version: Version,
    pub(crate) changed: Vec<Change>,
    pub(crate) remarks: Vec<String>,
}

impl Before {
    fn at(session: &Session, site: &Site, sandbox: Arc<dyn Sandbox>, version: Version, outside: Vec<Change>) -> Self {
        let placement = session.state().placement.as_ref();
        let origin = placement.and_then(|placement| placement.origin.as_ref());
        let layered = site.workspace.overlay().is_some();
        let directory = site.workspace.directory();
        let appears_at = match layered {
            true => origin.map_or_else(|| PathBuf::from(super::site::NO_ORIGIN), path_of),
            false => directory.to_owned(),
        };
        // A copy lies below the directory of its store: git must not take it for a part of what is above.
        let copied = !layered && placement.is_some_and(|placement| !placement.in_place);
        let ceiling = directory.parent().filter(|_| copied).map(Into::into);
        let isolated = sandbox.capabilities().isolated;
        Self { sandbox, version, outside, isolated, appears_at, ceiling }
    }
}

impl Workshop {
    /// Makes the place ready for a call: set up, at the session's version, with a sandbox. `quiet` says that nothing runs
    /// in the sandbox.
    pub(crate) async fn before_call(&self, session: &mut Session, quiet: bool) -> Result<Before> {
        if quiet && let Some(before) = self.still_settled(session).await? {
            return Ok(before);
        }
        self.make_ready(session, pin!(std::future::pending())).await?;
        let (mut site, found) = self.enter(session).await?;
        let sandbox = self.sandbox(session, &mut site).await?;
        // What somebody else changed is on no record yet, and a call that only reads makes none. Noted as seen, it would
        // look like files that the session has moved on from, and they would be set back.
        if found.outside.is_empty() {
            site.note(&found.saved.version)?;
        }
        let before = Before::at(session, &site, sandbox, found.saved.version, found.outside);
        self.open_again(session, site);
        Ok(before)
    }

    /// The place, where it must be as the last call left it: nothing but the sandbox reaches layers.
    async fn still_settled(&self, session: &Session) -> Result<Option<Before>> {
        let known = {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.get(&session.id()).and_then(|site| {
                let sandbox = site.sandbox.clone()?;
                let version = site.settled.clone().filter(|_| site.workspace.overlay().is_some())?;
                let same = session.state().workspace.as_ref() == Some(&version);
                same.then(|| Before::at(session, site, sandbox, version, Vec::new()))
            })
        };
        match known {
            Some(before) if matches!(before.sandbox.status().await?, Status::Open { .. }) => Ok(Some(before)),
            _ => Ok(None),
        }
    }

    /// Saves what a call left, and says what it changed.
    pub(crate) async fn after_call(&self, session: &mut Session, before: &Version) -> Result<After> {
        let known = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&session.id());
        let mut site = match known {
            Some(site) => site,
            None => {
                let placement = session.state().placement.clone().ok_or(Error::NotPlaced(session.id()))?;
                self.open_site(session, &placement).await?
            }
        };
        // What waits for a commit waits for one of its own store.
        let is_same_store = std::ptr::addr_eq(Arc::as_ptr(&self.store), Arc::as_ptr(session.store()));
        let saved = match is_same_store {
            true => site.workspace.save_for_record(),
            false => site.workspace.save(),
        };
        let saved = match saved {
            Ok(saved) => saved,
            Err(error) => {
                self.open_again(session, site);
                return Err(error.into());
            }
        };
        let changed = site.workspace.changes(before, &saved.version)?;
        let mut remarks: Vec<String> =
            saved.skipped.iter().map(|skipped| format!("not versioned: {} ({})", skipped.path, skipped.why)).collect();
        remarks.extend(saved.restless.iter().map(|path| format!("changed while it was saved: {path}")));
        remarks.truncate(100);
        site.settled = Some(saved.version.clone());
        self.open_again(session, site);
        Ok(After { version: saved.version, changed, remarks })
    }

    /// Remembers that the session has seen the files as its state says.
    pub(crate) fn noted(&self, session: &Session) -> Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        match (open.get_mut(&session.id()), &session.state().workspace) {
            (Some(site), Some(version)) => site.note(version),
            _ => Ok(()),
        }
    }

    /// Sets the files back to what they were before a call of which nobody knows how far it came. Says what that took.
    pub(crate) async fn back_to(&self, session: &mut Session, before: &Version) -> Result<Option<Restored>> {
        if session.state().closed {
            return Err(rath_core::Error::from(ErrorKind::Closed(session.id())).into());
        }
        let (mut site, found) = self.arrive(session).await?;
        let known = found.saved.version;
        if known.same_files(before) {
            return self.keep(session, site).map(|()| None);
        }
        let restored = site.restore(Some(&known), before).await?;
        let restored = Restored {
            why: Why::Resumed,
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
        self.keep(session, site).map(|()| Some(restored))
    }
}
