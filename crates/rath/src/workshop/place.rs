//! Saying where a session works.

use std::path::PathBuf;
use std::sync::PoisonError;

use rath_core::body::{Placed, SandboxClosed};
use rath_core::files::Version;
use rath_core::{ErrorKind, Placement, SandboxName, Session};
use rath_sandbox::Identity;
use rath_workspace as workspace;

use super::setup::{PATIENCE, nap};
use super::site::{Paths, directory_key, machine, name_of};
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
    /// A shell line that makes the files ready for work, run once when a copy is made.
    pub setup: Option<String>,
}

impl Place {
    /// A copy of a directory.
    pub fn copy_of(backend: impl Into<String>, origin: impl Into<PathBuf>) -> Self {
        Self { backend: backend.into(), origin: Some(origin.into()), in_place: false, setup: None }
    }

    /// A directory itself.
    pub fn in_place(backend: impl Into<String>, origin: impl Into<PathBuf>) -> Self {
        Self { backend: backend.into(), origin: Some(origin.into()), in_place: true, setup: None }
    }

    /// An empty directory.
    pub fn empty(backend: impl Into<String>) -> Self {
        Self { backend: backend.into(), origin: None, in_place: false, setup: None }
    }

    /// With a shell line that makes the files ready for work.
    #[must_use]
    pub fn with_setup(mut self, line: impl Into<String>) -> Self {
        self.setup = Some(line.into());
        self
    }
}

impl From<&str> for Place {
    /// An empty directory on this backend.
    fn from(backend: &str) -> Self {
        Self::empty(backend)
    }
}

/// Placement of a session that was given a workshop with `session.equip(workshop)`.
///
/// ```
/// use rath::prelude::*;
/// use rath::sandbox::{Host, Registry};
/// use std::sync::Arc;
/// # pollster::block_on(async {
/// # let dir = tempfile::tempdir().unwrap();
/// let store = Embedded::create(dir.path().join("store"))?;
/// let backends = Registry::new().with(Arc::new(Host::new()));
/// let mut session = store.create(Actor::person("ada"));
/// session.equip(Workshop::new(store.clone(), dir.path().join("workspaces"), backends));
/// session.to("host").await?;
/// assert_eq!(session.state().placement.as_ref().unwrap().backend, "host");
/// # Ok::<(), rath::workshop::Error>(())
/// # }).unwrap();
/// ```
pub trait PlaceSession {
    /// Places the session: `session.to("local")` in an empty directory on that backend, or
    /// `session.to(Place::copy_of("local", directory))` in a copy of one.
    fn to(&mut self, place: impl Into<Place> + Send) -> impl Future<Output = Result<()>> + Send;
}

impl PlaceSession for Session {
    async fn to(&mut self, place: impl Into<Place> + Send) -> Result<()> {
        let workshop = self.equipment().get::<Workshop>();
        let workshop = workshop.map_err(|missing| rath_core::Error::from(ErrorKind::Workflow(missing.into())))?;
        workshop.place(self, place.into()).await
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
                    .map_err(|_| Error::Workspace(workspace::Error::Missing(path.display().to_string())))?,
            ),
            None => None,
        };
        let placement = Placement {
            backend: place.backend.clone(),
            isolated,
            origin: origin.as_deref().map(name_of),
            in_place: place.in_place && origin.is_some(),
            base: None,
            setup: place.setup.clone(),
            sandbox: None,
        };
        if let Some(now) = &session.state().placement
            && (&now.backend, &now.origin, now.in_place, &now.setup)
                == (&placement.backend, &placement.origin, placement.in_place, &placement.setup)
        {
            return Ok(());
        }
        let paths = Paths::of(&self.home, session.id(), &placement);
        let leaves_layers = self.has_outgrown_layers(&placement, &paths)?;
        if leaves_layers {
            // What a lost call left there is saved before it is left behind.
            self.check_saved(session).await?;
        }
        let has = session.state().workspace.clone();
        let there = self.save_origin(&placement, has.as_ref()).await?;
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
        self.forget_sandbox(session)?;
        session.append(Placed {
            backend: place.backend,
            isolated,
            origin: placement.origin.clone(),
            in_place: placement.in_place,
            workspace: Some(files),
            base,
            setup: place.setup,
            why: None,
        })?;
        session.publish().await?;
        if leaves_layers {
            self.tell_of_ignored(session, &paths)?;
            paths.leave_layers()?;
        }
        if let Some((there, _)) = there.filter(|_| placement.in_place) {
            // What is in the directory is known: the first look may bring the session's files there.
            let options = self.options(placement.origin.as_ref());
            let (workspace, _) = self.open_workspace(&paths.files, &paths.state, &options, &[Some(&there)])?;
            super::site::Site::over(workspace, paths).note(&there)?;
        }
        Ok(())
    }

    /// Forgets what is remembered of a sandbox that was lost: the next one may be another backend's.
    fn forget_sandbox(&self, session: &Session) -> Result<()> {
        let Some(before) = &session.state().placement else { return Ok(()) };
        let paths = Paths::of(&self.home, session.id(), before);
        rath_sandbox::await_anchor(paths.sandbox())?;
        let removed = workspace::remove_tree(paths.sandbox());
        removed.map_err(|error| machine(format!("removing {}", paths.sandbox().display()), error))
    }

    /// Says what does not go along from layers to a directory.
    fn tell_of_ignored(&self, session: &Session, paths: &Paths) -> Result<()> {
        let (Some(told), Some(version)) = (&self.told, &session.state().workspace) else { return Ok(()) };
        let origin = session.state().placement.as_ref().and_then(|placement| placement.origin.as_ref());
        let options = self.options(origin);
        let (workspace, _) = self.open_workspace(&paths.files, &paths.state, &options, &[Some(version)])?;
        let ignored = workspace.unversioned(version);
        if let Some(first) = ignored.first() {
            let all = ignored.len();
            told(format!("what is ignored does not go along, {first} for one ({all} in all): no version has it"));
        }
        Ok(())
    }

    /// Saves the directory that a session's files come from; what the session `has` stays versioned there. Says also how
    /// many there are. Who merely saves it too has it for a moment.
    async fn save_origin(&self, placement: &Placement, has: Option<&Version>) -> Result<Option<(Version, u64)>> {
        let Some(origin) = &placement.origin else { return Ok(None) };
        let state = self.home.join(directory_key(origin));
        let options = self.options_of(Some(origin));
        let mut moments = 0;
        loop {
            match self.open_workspace(&super::site::path_of(origin), &state, &options, &[has]) {
                Err(Error::Workspace(workspace::Error::Busy { .. })) if moments < PATIENCE => moments += 1,
                opened => {
                    let saved = opened?.0.save()?;
                    return Ok(Some((saved.version, saved.files)));
                }
            }
            nap().await;
        }
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
        // One that is gone needs no closing.
        if paths.are_there() {
            let known = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&session.id());
            let site = match known {
                Some(site) => site,
                None => self.open_site(session, &placement).await?,
            };
            let backend = self.backends.get(&placement.backend)?;
            let identity = Identity { id: id.clone(), generation };
            let sandbox = match &site.sandbox {
                Some(sandbox) => Some(sandbox.clone()),
                None => backend.reopen(identity, self.spec(&placement, &site)?).await.ok(),
            };
            if let Some(sandbox) = sandbox {
                sandbox.close().await?;
            }
        }
        self.leave(session.id());
        session.append(SandboxClosed { sandbox: SandboxName { id, generation }, why: why.into() })?;
        session.publish().await?;
        Ok(())
    }
}
