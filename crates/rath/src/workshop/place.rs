//! Saying where a session works.

use std::path::PathBuf;

use rath_core::body::{Placed, SandboxClosed};
use rath_core::files::Version;
use rath_core::{Placement, SandboxName, Session};
use rath_sandbox::Identity;

use super::site::{Paths, directory_key, name_of};
use super::{Error, Result, Workshop};

/// Where a session is to work.
#[derive(Clone, Debug)]
pub struct Place {
    /// The backend's name.
    pub backend: String,
    /// The directory that the files come from; without one the session begins with no files.
    pub origin: Option<PathBuf>,
    /// Whether to work in that directory itself.
    pub in_place: bool,
}

impl Place {
    /// A copy of a directory.
    pub fn copy_of(backend: impl Into<String>, origin: impl Into<PathBuf>) -> Self {
        Self { backend: backend.into(), origin: Some(origin.into()), in_place: false }
    }

    /// A directory itself.
    pub fn in_place(backend: impl Into<String>, origin: impl Into<PathBuf>) -> Self {
        Self { backend: backend.into(), origin: Some(origin.into()), in_place: true }
    }

    /// An empty directory.
    pub fn empty(backend: impl Into<String>) -> Self {
        Self { backend: backend.into(), origin: None, in_place: false }
    }
}

impl Workshop {
    /// Says where the session works from here on, and saves the files there. Nothing is opened yet; saying the same
    /// again changes nothing. A session that has files takes them along.
    pub async fn place(&self, session: &mut Session, place: Place) -> Result<()> {
        self.hold_off()?;
        let backend = self.backends.get(&place.backend)?;
        let isolated = backend.capabilities().isolated;
        let origin = match &place.origin {
            Some(path) => Some(
                path.canonicalize()
                    .map_err(|_| Error::Workspace(rath_store::workspace::Error::Missing(path.display().to_string())))?,
            ),
            None => None,
        };
        let placement = Placement {
            backend: place.backend.clone(),
            isolated,
            origin: origin.as_deref().map(name_of),
            in_place: place.in_place && origin.is_some(),
            base: None,
            sandbox: None,
        };
        if let Some(now) = &session.state().placement
            && (&now.backend, &now.origin, now.in_place) == (&placement.backend, &placement.origin, placement.in_place)
        {
            return Ok(());
        }
        let there = self.save_origin(&placement)?;
        let has = session.state().workspace.clone();
        let files = match (&has, &there) {
            (Some(has), Some((there, count))) => {
                if placement.in_place && *count > 0 && !has.same_files(there) {
                    let directory = origin.unwrap_or_default().display().to_string();
                    return Err(Error::NotEmpty { directory });
                }
                has.clone()
            }
            (Some(has), None) => has.clone(),
            (None, Some((there, _))) => there.clone(),
            (None, None) => self.no_files().await?,
        };
        // Files that the session did not take from there are no change of its own.
        let base = match (&has, &there) {
            (Some(has), Some((_, 1..))) => match &session.state().placement {
                Some(now) if now.origin == placement.origin => now.base.clone(),
                _ => Some(has.clone()),
            },
            (_, there) => there.as_ref().map(|(there, _)| there.clone()),
        };
        self.close_sandbox(session, "the session moved").await?;
        self.leave(session.id());
        session.append(Placed {
            backend: place.backend,
            isolated,
            origin: placement.origin.clone(),
            in_place: placement.in_place,
            workspace: Some(files),
            base,
            why: None,
        })?;
        session.publish().await?;
        if let Some((there, _)) = there.filter(|_| placement.in_place) {
            // What is in the directory is known: the first look may bring the session's files there.
            let paths = Paths::of(&self.home, session.id(), &placement);
            let (workspace, _) = self.open_workspace(&paths.files, &paths.state, &self.options())?;
            super::site::Site::over(workspace, paths).note(&there)?;
        }
        Ok(())
    }

    /// Saves the directory that a session's files come from. Says also how many there are.
    fn save_origin(&self, placement: &Placement) -> Result<Option<(Version, u64)>> {
        let Some(origin) = &placement.origin else { return Ok(None) };
        let state = self.home.join(directory_key(origin));
        let (mut workspace, _) = self.open_workspace(&super::site::path_of(origin), &state, &self.options)?;
        let saved = workspace.save()?;
        Ok(Some((saved.version, saved.files)))
    }

    /// The version without files.
    async fn no_files(&self) -> Result<Version> {
        let forest = rath_core::files::Forest::new(&*self.store);
        let tree = forest.put(rath_core::files::Tree::default()).await?;
        Ok(Version { tree, rules: None })
    }

    /// Closes the session's sandbox, where it has one: what still runs there is stopped.
    pub async fn close_sandbox(&self, session: &mut Session, why: &str) -> Result<()> {
        let Some(placement) = session.state().placement.clone() else { return Ok(()) };
        let Some(SandboxName { id, generation }) = placement.sandbox.clone() else { return Ok(()) };
        let paths = Paths::of(&self.home, session.id(), &placement);
        let spec = self.spec(&paths)?;
        let backend = self.backends.get(&placement.backend)?;
        // One that is gone needs no closing.
        if let Ok(sandbox) = backend.reopen(Identity { id: id.clone(), generation }, spec).await {
            sandbox.close().await?;
        }
        self.leave(session.id());
        session.append(SandboxClosed { sandbox: SandboxName { id, generation }, why: why.into() })?;
        session.publish().await?;
        Ok(())
    }
}
