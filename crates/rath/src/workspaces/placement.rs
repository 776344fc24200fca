//! Assigning a workspace to a session.

use std::path::PathBuf;

use rath_core::body::{Placed, SandboxClosed};
use rath_core::files::Version;
use rath_core::{ErrorKind, Placement, SandboxName, Session};
use rath_sandbox::Identity;
use rath_workspace as workspace;

use super::open_workspace::{Paths, directory_key, io_error, name_of};
use super::setup::{PATIENCE, sleep_briefly};
use super::{Error, Result, Workspaces};

/// The workspace that a session is to have: backend, origin of the files, and setup.
#[derive(Clone, Debug)]
pub struct PlacementSpec {
    /// The backend's name.
    pub backend: String,
    /// The directory that the files come from. Without one the session starts without files.
    pub origin: Option<PathBuf>,
    /// Whether the session works in that directory itself instead of in a copy.
    pub in_place: bool,
    /// A shell command that prepares the files, such as `npm install`. It runs once for each copy.
    pub setup: Option<String>,
}

impl PlacementSpec {
    /// A workspace with a copy of a directory.
    pub fn copy_of(backend: impl Into<String>, origin: impl Into<PathBuf>) -> Self {
        Self { backend: backend.into(), origin: Some(origin.into()), in_place: false, setup: None }
    }

    /// A workspace in the directory itself.
    pub fn in_place(backend: impl Into<String>, origin: impl Into<PathBuf>) -> Self {
        Self { backend: backend.into(), origin: Some(origin.into()), in_place: true, setup: None }
    }

    /// An empty workspace.
    pub fn empty(backend: impl Into<String>) -> Self {
        Self { backend: backend.into(), origin: None, in_place: false, setup: None }
    }

    /// Adds a shell command that prepares the files.
    #[must_use]
    pub fn with_setup(mut self, line: impl Into<String>) -> Self {
        self.setup = Some(line.into());
        self
    }
}

impl From<&str> for PlacementSpec {
    /// An empty workspace on this backend.
    fn from(backend: &str) -> Self {
        Self::empty(backend)
    }
}

/// Adds [`to`](Self::to) to sessions that were given workspaces with `session.provide(workspaces)`.
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
/// session.provide(Workspaces::new(store.clone(), dir.path().join("workspaces"), backends));
/// session.to("host").await?;
/// assert_eq!(session.state().placement.as_ref().unwrap().backend, "host");
/// # Ok::<(), rath::workspaces::Error>(())
/// # }).unwrap();
/// ```
pub trait WorkspaceExt {
    /// Assigns a workspace: `session.to("local")` an empty one on that backend,
    /// `session.to(PlacementSpec::copy_of("local", directory))` one with a copy of a directory.
    fn to(&mut self, spec: impl Into<PlacementSpec> + Send) -> impl Future<Output = Result<()>> + Send;
}

impl WorkspaceExt for Session {
    async fn to(&mut self, spec: impl Into<PlacementSpec> + Send) -> Result<()> {
        let workspaces = self.resources().get::<Workspaces>();
        let workspaces = workspaces.map_err(|missing| rath_core::Error::from(ErrorKind::Workflow(missing.into())))?;
        workspaces.assign(self, spec.into()).await
    }
}

impl Workspaces {
    /// Sets where the session works from now on, and saves the files of the origin. Nothing is opened yet. A session
    /// that has files keeps them. Does nothing if the session works there already.
    pub async fn assign(&self, session: &mut Session, spec: PlacementSpec) -> Result<()> {
        self.block_gc()?;
        let backend = self.backends.get(&spec.backend)?;
        let isolated = backend.capabilities().isolated;
        let origin = match &spec.origin {
            Some(path) => Some(
                path.canonicalize()
                    .map_err(|_| Error::Workspace(workspace::Error::Missing(path.display().to_string())))?,
            ),
            None => None,
        };
        let placement = Placement {
            backend: spec.backend.clone(),
            isolated,
            origin: origin.as_deref().map(name_of),
            in_place: spec.in_place && origin.is_some(),
            base: None,
            setup: spec.setup.clone(),
            sandbox: None,
        };
        if let Some(now) = &session.state().placement
            && (&now.backend, &now.origin, now.in_place, &now.setup)
                == (&placement.backend, &placement.origin, placement.in_place, &placement.setup)
        {
            return Ok(());
        }
        let paths = Paths::of(&self.home, session.id(), &placement);
        let leaves_layers = self.cannot_mount_layers(&placement, &paths)?;
        if leaves_layers {
            // Changes of a call that a dead process left open are saved before the layers are removed.
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
        // Files that the session brings along are not counted as its changes to the new origin.
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
            backend: spec.backend,
            isolated,
            origin: placement.origin.clone(),
            in_place: placement.in_place,
            workspace: Some(files),
            base,
            setup: spec.setup,
            why: None,
        })?;
        session.publish().await?;
        if leaves_layers {
            self.notify_about_ignored(session, &paths)?;
            paths.remove_layers()?;
        }
        if let Some((there, _)) = there.filter(|_| placement.in_place) {
            // The directory has no unrecorded edits, so the first reconciliation may write the session's files into it.
            let options = self.options(placement.origin.as_ref());
            let (workspace, _) = self.open_workspace(&paths.files, &paths.state, &options, &[Some(&there)])?;
            super::open_workspace::OpenWorkspace::over(workspace, paths).note(&there)?;
        }
        Ok(())
    }

    /// Removes the state directory of a lost sandbox. The next sandbox may belong to another backend.
    fn forget_sandbox(&self, session: &Session) -> Result<()> {
        let Some(before) = &session.state().placement else { return Ok(()) };
        let paths = Paths::of(&self.home, session.id(), before);
        rath_sandbox::await_supervisor(paths.sandbox())?;
        let removed = workspace::remove_tree(paths.sandbox());
        removed.map_err(|error| io_error(format!("removing {}", paths.sandbox().display()), error))
    }

    /// Sends a notice about ignored files, which are not copied from layers to a directory.
    fn notify_about_ignored(&self, session: &Session, paths: &Paths) -> Result<()> {
        let (Some(notice), Some(version)) = (&self.on_notice, &session.state().workspace) else { return Ok(()) };
        let origin = session.state().placement.as_ref().and_then(|placement| placement.origin.as_ref());
        let options = self.options(origin);
        let (workspace, _) = self.open_workspace(&paths.files, &paths.state, &options, &[Some(version)])?;
        let ignored = workspace.unversioned(version);
        if let Some(first) = ignored.first() {
            let all = ignored.len();
            notice(format!("{all} ignored paths, such as {first}, were not copied: no version contains them"));
        }
        Ok(())
    }

    /// Saves the directory that a session's files come from, and counts its files. Files in `has` stay versioned.
    /// Retries while another process has the directory open: it is probably saving it too.
    async fn save_origin(&self, placement: &Placement, has: Option<&Version>) -> Result<Option<(Version, u64)>> {
        let Some(origin) = &placement.origin else { return Ok(None) };
        let state = self.home.join(directory_key(origin));
        let options = self.options_of(Some(origin));
        let mut moments = 0;
        loop {
            match self.open_workspace(&super::open_workspace::path_of(origin), &state, &options, &[has]) {
                Err(Error::Workspace(workspace::Error::Busy { .. })) if moments < PATIENCE => moments += 1,
                opened => {
                    let saved = opened?.0.save()?;
                    return Ok(Some((saved.version, saved.files)));
                }
            }
            sleep_briefly().await;
        }
    }

    /// The version of an empty directory.
    async fn no_files(&self) -> Result<Version> {
        let forest = rath_core::files::TreeStore::new(&*self.store);
        let tree = forest.put(rath_core::files::Tree::default()).await?;
        Ok(Version { tree, rules: None })
    }

    /// Closes the session's sandbox, if it has one, and stops the commands that run in it.
    pub async fn close_sandbox(&self, session: &mut Session, why: &str) -> Result<()> {
        let Some(placement) = session.state().placement.clone() else { return Ok(()) };
        let Some(SandboxName { id, generation }) = placement.sandbox.clone() else { return Ok(()) };
        let paths = Paths::of(&self.home, session.id(), &placement);
        // Without files the sandbox is gone too.
        if paths.are_there() {
            let opened = match self.take_open(session.id()).await {
                Some(opened) => opened,
                None => self.open_directory(session, &placement).await?.0,
            };
            let backend = self.backends.get(&placement.backend)?;
            let identity = Identity { id: id.clone(), generation };
            let sandbox = match &opened.sandbox {
                Some(sandbox) => Some(sandbox.clone()),
                None => backend.reopen(identity, self.spec(&placement, &opened)?).await.ok(),
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
