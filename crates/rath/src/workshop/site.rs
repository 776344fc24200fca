//! The directory a session works in, opened.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use rath_core::body::{CallOutcome, Restored, SandboxLost, SandboxOpened, ToolFinished, ToolStarted, Why};
use rath_core::files::{Change, Changes, Name, Version};
use rath_core::store::Scan;
use rath_core::{Digest, ErrorKind, Kind, Placement, Point, RecordId, SandboxName, Session, SessionId, View};
use rath_sandbox::{Identity, Overlay, Sandbox, Spec, Status};
use rath_workspace::{self as workspace, Recovered, Saved, Workspace};
use serde::{Deserialize, Serialize};

use super::{Confinement, Error, Result, Workshop};

/// The file that says which line made a copy ready for work.
pub(super) const READY: &str = "ready";

/// How many covered sockets and FIFOs are recorded when a sandbox opens.
const COVERED_SHOWN: usize = 100;

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// Where a workspace without an origin is shown.
pub(super) const NO_ORIGIN: &str = "/workspace";

/// A directory that a session has for the moment.
pub(super) struct Site {
    pub(super) workspace: Workspace,
    pub(super) sandbox: Option<Arc<dyn Sandbox>>,
    /// What was saved after the last call of an agent.
    pub(super) settled: Option<Version>,
    noted: Noted,
    paths: Paths,
}

/// What a site noted last.
#[derive(Default)]
struct Noted {
    version: Option<Version>,
    /// Where the next note can go over it.
    file: Option<fs::File>,
}

/// Where a session's files are, and what is remembered about them.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    pub(super) files: PathBuf,
    pub(super) state: PathBuf,
    at: PathBuf,
    going: PathBuf,
    sandbox: PathBuf,
}

/// What was found in the directory.
pub(super) struct Found {
    pub(super) saved: Saved,
    /// What changed without a record.
    pub(super) outside: Vec<Change>,
    /// Whether the session moved on under it: then `outside` is what changed since it was last seen.
    pub(super) behind: bool,
}

/// A restore that has no record yet, on disk while it goes on. The workspace's journal has the files, this has what the
/// record says besides.
#[derive(Serialize, Deserialize)]
pub(super) struct Going {
    /// The session's head when it began: with any other it is over.
    pub(super) head: RecordId,
    /// What was there.
    pub(super) from: Version,
    /// What is to be there.
    pub(super) to: Version,
    /// The record whose files that is.
    pub(super) point: Point,
}

impl Paths {
    pub(super) fn of(home: &Path, session: SessionId, placement: &Placement) -> Self {
        let (files, state) = match &placement.origin {
            Some(origin) if placement.in_place => (path_of(origin), home.join(directory_key(origin))),
            _ => (home.join(session.to_string()).join("files"), home.join(session.to_string())),
        };
        let at = state.join(format!("at-{session}"));
        let going = state.join(format!("going-{session}"));
        let sandbox = state.join(format!("sandbox-{session}"));
        Self { files, state, at, going, sandbox }
    }

    /// Whether there is a directory, or layers.
    pub(super) fn are_there(&self) -> bool {
        self.files.exists() || Workspace::is_layered(&self.state)
    }

    /// Where the sandbox keeps what it must remember.
    pub(super) fn sandbox(&self) -> &Path {
        &self.sandbox
    }

    /// The version that the session last saw there.
    fn seen(&self) -> Option<Version> {
        serde_json::from_slice(&fs::read(&self.at).ok()?).ok()
    }

    /// The line that made the files there ready for work.
    pub(super) fn set_up(&self) -> Option<String> {
        fs::read_to_string(self.state.join(READY)).ok()
    }

    /// Remembers that a line made them ready.
    pub(super) fn note_set_up(&self, line: &str) -> Result<()> {
        let written = fs::write(self.state.join(READY), line);
        written.map_err(|error| machine(format!("writing {}", self.state.join(READY).display()), error))
    }

    /// Removes layers that the backend cannot put together: the copy is made anew from the version. Ignored files stay
    /// behind, and that is told.
    pub(super) fn leave_layers(&self) -> Result<()> {
        let removed = workspace::remove_tree(&self.state);
        removed.map_err(|error| machine(format!("removing {}", self.state.display()), error))
    }

    /// Remembers what a copy that is about to be made begins with. Whoever finds the copy finds this too.
    pub(super) fn expect(&self, version: &Version) -> Result<()> {
        let made = fs::create_dir_all(&self.state);
        made.map_err(|error| machine(format!("making {}", self.state.display()), error))?;
        self.note(version, None).map(drop)
    }

    /// Remembers what the session saw here. Losing it costs a question, not a file. It goes over the last one where both
    /// fill one sector, of which a kill or a power cut leaves the one or the other: a file that takes the place of
    /// another is written out at once by some file systems, which every call would wait for. Returns the file where the
    /// next one can go over it.
    fn note(&self, version: &Version, last: Option<fs::File>) -> Result<Option<fs::File>> {
        let mut text = serde_json::to_vec(version).unwrap_or_default();
        text.resize(text.len().max(SECTOR), b' ');
        let write = || {
            let last = match last {
                Some(last) => Some(last),
                None => match fs::OpenOptions::new().write(true).open(&self.at) {
                    Ok(file) if file.metadata()?.len() == SECTOR as u64 => Some(file),
                    _ => None,
                },
            };
            match last.filter(|_| text.len() == SECTOR) {
                Some(file) => file.write_all_at(&text, 0).map(|()| Some(file)),
                None => {
                    let beside = self.at.with_extension("new");
                    fs::write(&beside, &text).and_then(|()| fs::rename(&beside, &self.at)).map(|()| None)
                }
            }
        };
        write().map_err(|error| machine(format!("writing {}", self.at.display()), error))
    }
}

/// Why a session has no place.
async fn not_placed(session: &mut Session) -> Result<Error> {
    let id = session.id();
    if session.state().arrived {
        session.publish().await?;
        if let Some(placed) = rath_core::last_place(session.store(), session.head().point()).await? {
            return Ok(rath_core::Error::from(ErrorKind::NoPlaceHere { session: id, was: placed.in_words() }).into());
        }
    }
    Ok(Error::NotPlaced(id))
}

/// A name for what is remembered about a directory.
pub(super) fn directory_key(directory: &Name) -> String {
    format!("dir-{}", &Digest::of(directory.as_bytes()).hex().as_str()[..24])
}

pub(super) fn path_of(name: &Name) -> PathBuf {
    std::ffi::OsString::from_vec(name.as_bytes().to_vec()).into()
}

pub(super) fn name_of(path: &Path) -> Name {
    Name::from(path.as_os_str().as_bytes())
}

impl Workshop {
    /// Opens the directory that the session works in and brings it to the session's version. The caller gives the site
    /// back with [`keep`](Self::keep).
    pub(super) async fn enter(&self, session: &mut Session) -> Result<(Site, Found)> {
        let (site, found) = self.arrive(session).await?;
        match found.behind {
            true => Err(workspace::Error::OutsideChanges { changes: found.outside }.into()),
            false => Ok((site, found)),
        }
    }

    /// As [`enter`](Self::enter), also where the session moved on under changes that no record has.
    pub(super) async fn arrive(&self, session: &mut Session) -> Result<(Site, Found)> {
        // Nothing may happen to the files that could not be recorded.
        if session.state().closed {
            return Err(rath_core::Error::from(ErrorKind::Closed(session.id())).into());
        }
        self.hold_off()?;
        let Some(placement) = session.state().placement.clone() else { return Err(not_placed(session).await?) };
        let known = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&session.id());
        let mut site = match known {
            Some(site) if site.paths.files == Paths::of(&self.home, session.id(), &placement).files => site,
            _ => self.open_site(session, &placement).await?,
        };
        self.close_lost_calls(session, &mut site).await?;
        let found = self.look(session, &mut site).await?;
        Ok((site, found))
    }

    /// The directory that the session works in; a copy is made if it is not there yet. Layers have none.
    pub async fn directory(&self, session: &mut Session) -> Result<PathBuf> {
        let placement = session.state().placement.as_ref().ok_or(Error::NotPlaced(session.id()))?;
        let paths = Paths::of(&self.home, session.id(), placement);
        if Workspace::is_layered(&paths.state) {
            return Err(Error::Layered(session.id()));
        }
        // What is there is there, whatever keeps it from being saved.
        if paths.files.exists() {
            return Ok(paths.files);
        }
        let (site, _) = self.enter(session).await?;
        let directory = match site.workspace.overlay() {
            None => Ok(site.workspace.directory().to_owned()),
            Some(_) => Err(Error::Layered(session.id())),
        };
        self.open_again(session, site);
        directory
    }

    /// What changed where a session works and no record has; nothing where somebody else is at work there just now.
    pub async fn unsaved(&self, view: &View) -> Result<Vec<Change>> {
        let (Some(placement), Some(known)) = (&view.state().placement, &view.state().workspace) else {
            return Ok(Vec::new());
        };
        let paths = Paths::of(&self.home, view.reference().session, placement);
        if !paths.are_there() || !paths.state.join("index").exists() {
            return Ok(Vec::new());
        }
        self.hold_off()?;
        let options = self.options(placement.origin.as_ref());
        let seen = paths.seen();
        match self.open_workspace(&paths.files, &paths.state, &options, &[Some(known), seen.as_ref()]) {
            Ok((workspace, _)) => {
                let mut at = Site::over(workspace, paths);
                // A directory that the session has moved on from is behind, not changed.
                let seen = at.at()?.unwrap_or_else(|| known.clone());
                at.workspace.track(vec![seen.clone()]);
                let now = at.workspace.save()?.version;
                Ok(at.workspace.changes(&seen, &now)?)
            }
            Err(Error::Workspace(workspace::Error::Busy { .. })) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Keeps a site open for the session's next call.
    pub(super) fn keep(&self, session: &Session, mut site: Site) -> Result<()> {
        if let Some(version) = &session.state().workspace {
            site.note(version)?;
        }
        self.open_again(session, site);
        Ok(())
    }

    /// Leaves a site open as it is.
    pub(super) fn open_again(&self, session: &Session, site: Site) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(session.id(), site);
    }

    pub(super) async fn open_site(&self, session: &mut Session, placement: &Placement) -> Result<Site> {
        let paths = Paths::of(&self.home, session.id(), placement);
        if self.has_outgrown_layers(placement, &paths)? {
            paths.leave_layers()?;
        }
        if !placement.in_place && !paths.are_there() {
            // What is remembered is of a directory that somebody took away.
            match workspace::remove_tree(&paths.state) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(machine(format!("removing {}", paths.state.display()), error));
                }
                _ => {}
            }
            self.make_copy(session, placement, &paths).await?;
        }
        // An anchor of a process that was killed is about to end, and has the layers until then.
        rath_sandbox::await_anchor(&paths.sandbox)?;
        let options = self.options(placement.origin.as_ref());
        let known = session.state().workspace.as_ref();
        let (workspace, recovered) = self.open_workspace(&paths.files, &paths.state, &options, &[known])?;
        let mut site = Site::over(workspace, paths);
        // The files stem from what the session last saw there, wherever it has moved on to since.
        if let Some(at) = site.at()? {
            site.workspace.track(vec![at]);
        }
        self.finish_restore(session, &mut site, recovered).await?;
        Ok(site)
    }

    /// Whether a copy is made of layers, and the session's backend cannot put them together.
    pub(super) fn has_outgrown_layers(&self, placement: &Placement, paths: &Paths) -> Result<bool> {
        let is_layered = !placement.in_place && Workspace::is_layered(&paths.state);
        Ok(is_layered && !self.backends.get(&placement.backend)?.capabilities().copy_on_write)
    }

    /// Records a restore of this session that a dead process did not come to record.
    async fn finish_restore(&self, session: &mut Session, site: &mut Site, done: Option<Recovered>) -> Result<()> {
        let going = site.going().filter(|going| going.head == session.head().id);
        let known = session.state().workspace.as_ref();
        match going {
            Some(Going { from, to, point, .. }) => {
                let is_finished = done.is_some();
                let (now, kept) = match done {
                    Some(done) => (done.version, done.kept),
                    None => (site.workspace.save()?.version, Vec::new()),
                };
                // Without a journal it had not begun, or lacks nothing but its record.
                if !now.same_files(&from) && (is_finished || site.went(&from, &to, &now)?) {
                    let changed = Changes::of(site.workspace.changes(&from, &now)?);
                    let conflicts =
                        View::of(&self.store, point.session, Some(point.seq)).await?.state().conflicts.clone();
                    session.append(Restored {
                        why: Why::Recovered,
                        from,
                        workspace: now.clone(),
                        point: Some(point),
                        outside: Changes::default(),
                        changed,
                        kept,
                        conflicts,
                    })?;
                    session.publish().await?;
                    site.note(&now)?;
                }
            }
            // The directory was on its way to the session's version. Any other way was not this session's, and what
            // it left is changed outside.
            None => {
                if let Some(done) = done.filter(|done| known.is_some_and(|known| known.same_files(&done.to))) {
                    site.note(&done.to)?;
                }
            }
        }
        site.arrived()
    }

    pub(super) fn options(&self, origin: Option<&Name>) -> workspace::Options {
        // A copy lies wherever the store lies, and a directory was allowed when the session was placed there.
        workspace::Options { anywhere: true, ..self.options_of(origin) }
    }

    /// Saves what is there and brings the directory to the session's version where it is merely behind.
    async fn look(&self, session: &Session, site: &mut Site) -> Result<Found> {
        let mut saved = site.workspace.save()?;
        let Some(target) = &session.state().workspace else {
            return Ok(Found { saved, outside: Vec::new(), behind: false });
        };
        if saved.version.same_files(target) {
            return Ok(Found { saved, outside: Vec::new(), behind: false });
        }
        let at = site.at()?;
        match at {
            // The directory is as we left it, and the session moved on: a merge, a resolution, a fork's first use.
            Some(at) if at.same_files(&saved.version) => {
                saved.version = site.restore(Some(&at), target).await?.version;
                site.note(&saved.version)?;
                Ok(Found { saved, outside: Vec::new(), behind: false })
            }
            // A new copy.
            None if saved.files == 0 => {
                saved.version = site.restore(None, target).await?.version;
                site.note(&saved.version)?;
                Ok(Found { saved, outside: Vec::new(), behind: false })
            }
            Some(at) if !at.same_files(target) => {
                let outside = site.workspace.changes(&at, &saved.version)?;
                Ok(Found { saved, outside, behind: true })
            }
            _ => {
                let outside = site.workspace.changes(target, &saved.version)?;
                Ok(Found { saved, outside, behind: false })
            }
        }
    }

    /// Calls of a process that died in the middle: what runs on is stopped, what they changed is theirs.
    pub(super) async fn close_lost_calls(&self, session: &mut Session, site: &mut Site) -> Result<()> {
        let lost: Vec<_> = session.pending().calls.into_iter().filter(|call| call.own).collect();
        if lost.is_empty() {
            return Ok(());
        }
        if let Some(sandbox) = session.state().placement.as_ref().and_then(|placement| placement.sandbox.as_ref()) {
            rath_sandbox::sweep_marked(&sandbox.id);
        }
        let scan = Scan::session(session.id(), 0, session.head().seq).kinds(&[Kind::ToolStarted]).backwards().limit(64);
        let started = self.store.scan(scan).await?.records;
        for call in lost {
            let record = started.iter().find(|record| record.id() == call.record);
            let body: Option<ToolStarted> = record.and_then(|record| record.body().ok());
            let mut finished = ToolFinished::new(call.id, CallOutcome::Lost);
            // A call that had nothing to do with the files changed none.
            let seen = match body.and_then(|body| body.workspace) {
                Some(before) => site.after_lost(before, &mut finished)?,
                None => None,
            };
            session.append(finished)?;
            session.publish().await?;
            seen.map_or(Ok(()), |seen| site.note(&seen))?;
        }
        Ok(())
    }

    /// What the backend is told. Two sessions in one directory have a sandbox each.
    pub(super) fn spec(&self, placement: &Placement, site: &Site) -> Result<Spec> {
        let origin = placement.origin.as_ref().map(path_of);
        self.spec_of(&site.workspace, &site.paths.sandbox, origin.as_deref())
    }

    /// A sandbox over a workspace, which shows it where it came from: absolute paths stay right, in every fork.
    pub(super) fn spec_of(&self, workspace: &Workspace, state: &Path, origin: Option<&Path>) -> Result<Spec> {
        let made = fs::create_dir_all(state);
        made.map_err(|error| machine(format!("making {}", state.display()), error))?;
        let overlay = workspace.overlay();
        let Confinement { home, readable, hidden, limits } = self.confinement.clone();
        let hidden = hidden.into_iter().chain(self.store.directory().map(Path::to_owned)).chain([self.home.clone()]);
        // A copy that is a directory lies in one that is hidden. Layers are shown elsewhere.
        let is_directory = overlay.is_none();
        let lies_in = |hidden: &PathBuf| is_directory && workspace.directory().starts_with(hidden);
        Ok(Spec {
            env: self.env.clone(),
            appears_at: Some(origin.unwrap_or(Path::new(NO_ORIGIN)).into()),
            overlay: overlay.map(|workspace::Overlay { lowers, upper, work }| Overlay { lowers, upper, work }),
            home,
            readable,
            hidden: hidden.filter(|hidden| !lies_in(hidden)).collect(),
            limits,
            ..Spec::new(workspace.directory(), state)
        })
    }

    /// The sandbox over the site's directory: the one the session had, or a new one.
    pub(super) async fn sandbox(&self, session: &mut Session, site: &mut Site) -> Result<Arc<dyn Sandbox>> {
        if let Some(sandbox) = &site.sandbox {
            match sandbox.status().await? {
                Status::Open { .. } => return Ok(sandbox.clone()),
                Status::Lost { why } => self.lost_sandbox(session, site, why)?,
                Status::Closed => site.sandbox = None,
            }
        }
        let placement = session.state().placement.clone().ok_or(Error::NotPlaced(session.id()))?;
        let backend = self.backends.get(&placement.backend)?;
        let spec = self.spec(&placement, site)?;
        if let Some(SandboxName { id, generation }) = placement.sandbox {
            match backend.reopen(Identity { id: id.clone(), generation }, spec.clone()).await {
                Ok(sandbox) => {
                    site.sandbox = Some(sandbox.clone());
                    return Ok(sandbox);
                }
                Err(error) if error.code() == "sandbox-lost" => {
                    let why = error.to_string();
                    session.append(SandboxLost { sandbox: SandboxName { id, generation }, why })?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let sandbox = backend.open(spec).await?;
        let Identity { id, generation } = sandbox.identity().clone();
        session.append(SandboxOpened {
            sandbox: SandboxName { id, generation },
            backend: placement.backend,
            isolated: sandbox.capabilities().isolated,
            isolation: sandbox.isolation(),
            directory: name_of(site.workspace.directory()),
            not_enforced: sandbox.not_enforced(),
            covered: sandbox.covered().iter().take(COVERED_SHOWN).map(|path| name_of(path)).collect(),
        })?;
        site.sandbox = Some(sandbox.clone());
        Ok(sandbox)
    }

    /// Notes that the site's sandbox is gone. The next use opens another one.
    pub(super) fn lost_sandbox(&self, session: &mut Session, site: &mut Site, why: String) -> Result<()> {
        let sandbox = session.state().placement.as_ref().and_then(|placement| placement.sandbox.clone());
        site.sandbox = None;
        if let Some(sandbox) = sandbox {
            rath_sandbox::sweep_marked(&sandbox.id);
            session.append(SandboxLost { sandbox, why })?;
        }
        Ok(())
    }
}

impl Site {
    /// A site without a sandbox.
    pub(super) fn over(workspace: Workspace, paths: Paths) -> Self {
        Self { workspace, sandbox: None, settled: None, noted: Noted::default(), paths }
    }

    /// Sets the files to a version. Layers are changed while nobody shows them.
    pub(super) async fn restore(&mut self, known: Option<&Version>, to: &Version) -> Result<workspace::Restored> {
        self.let_go().await?;
        Ok(self.workspace.restore(known, to)?)
    }

    /// Where it is.
    pub(super) fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Has the sandbox let go of layers.
    pub(super) async fn let_go(&self) -> Result<()> {
        match &self.sandbox {
            Some(sandbox) if self.workspace.overlay().is_some() => Ok(sandbox.rest().await?),
            _ => Ok(()),
        }
    }

    /// The version that the session last saw in this directory. One that went with a process, or with the power, before
    /// it came into the store says nothing.
    fn at(&self) -> Result<Option<Version>> {
        let Some(seen) = self.paths.seen() else { return Ok(None) };
        Ok(self.workspace.is_stored(&seen)?.then_some(seen))
    }

    /// Fills in what a call left that began with `before`. Returns what the directory showed of it.
    fn after_lost(&mut self, before: Version, finished: &mut ToolFinished) -> Result<Option<Version>> {
        let saved = self.workspace.save()?;
        // A directory that is as the session last saw it, or was made anew, says nothing about the call.
        let untouched = match self.at()? {
            Some(at) => at.same_files(&saved.version),
            None => saved.files == 0,
        };
        if untouched {
            finished.workspace = Some(before);
            return Ok(None);
        }
        finished.changed = Changes::of(self.workspace.changes(&before, &saved.version)?);
        finished.workspace = Some(saved.version.clone());
        Ok(Some(saved.version))
    }

    fn going(&self) -> Option<Going> {
        serde_json::from_slice(&fs::read(&self.paths.going).ok()?).ok()
    }

    /// Whether the files went all the way from one version to another, whatever somebody changed since: nothing that
    /// differs between the two is as it was, and something is as it was to be.
    fn went(&self, from: &Version, to: &Version, now: &Version) -> Result<bool> {
        let paths = |before, after| -> Result<BTreeSet<Name>> {
            let changes = self.workspace.changes(before, after)?;
            Ok(changes.into_iter().map(|change| change.path).collect())
        };
        let (way, left, missed) = (paths(from, to)?, paths(from, now)?, paths(to, now)?);
        Ok(way.is_subset(&left) && !way.is_subset(&missed))
    }

    /// Remembers a restore that is about to begin.
    pub(super) fn set_out(&self, going: &Going) -> Result<()> {
        let written = serde_json::to_vec(going).map_err(std::io::Error::from);
        let written = written.and_then(|bytes| workspace::durable::atomic_write(&self.paths.going, &bytes));
        written.map_err(|error| machine(format!("writing {}", self.paths.going.display()), error))
    }

    /// Forgets a restore that is over.
    pub(super) fn arrived(&self) -> Result<()> {
        match fs::remove_file(&self.paths.going) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(machine(format!("removing {}", self.paths.going.display()), error))
            }
            _ => Ok(()),
        }
    }

    /// Remembers what the session saw here.
    pub(super) fn note(&mut self, version: &Version) -> Result<()> {
        if self.noted.version.as_ref() != Some(version) {
            let Noted { file, .. } = std::mem::take(&mut self.noted);
            self.noted = Noted { file: self.paths.note(version, file)?, version: Some(version.clone()) };
        }
        Ok(())
    }
}

pub(super) fn machine(doing: impl Into<String>, error: std::io::Error) -> Error {
    workspace::Error::Machine { doing: doing.into(), cause: error }.into()
}
