//! Making a copy for a session, and making it ready for work.
//!
//! A session's `setup` line runs once for a version of the files: what it leaves is a layer that every session with the
//! same files and the same line stands on. It is kept as a site of its own that nobody works in.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rath_core::body::{CallOutcome, Effect, ToolFinished, ToolStarted};
use rath_core::files::Version;
use rath_core::{Digest, Placement, Session, fresh_name};
use rath_sandbox::{Command, Ended, Finished};
use rath_workspace::{self as workspace, Laid, Workspace, remove_tree};
use serde_json::json;

use super::exec::SETUP;
use super::site::{Paths, READY, machine, path_of};
use super::{Error, Result, Workshop};
use crate::pause::pause;
use crate::recorder::CallRecord;

/// Where the sandbox of a setup keeps what it must remember.
const SANDBOX: &str = "sandbox";

/// How long a moment is.
const MOMENT: Duration = Duration::from_millis(10);

/// How many moments others may have what they need for a moment.
pub(super) const PATIENCE: usize = 300;

/// From here on, making a copy takes long enough to be told.
const WORTH_TELLING: u64 = 10_000;

impl Workshop {
    /// Makes the copy that a session works in: layers where the backend can put them together, else a directory.
    pub(super) async fn make_copy(&self, session: &mut Session, placement: &Placement, paths: &Paths) -> Result<()> {
        let backend = self.backends.get(&placement.backend)?;
        let made = fs::create_dir_all(&self.home);
        made.map_err(|error| machine(format!("making {}", self.home.display()), error))?;
        let version = session.state().workspace.clone();
        let Some(version) = version.filter(|_| backend.layers_in(&self.home)) else {
            let made = fs::create_dir_all(&paths.files);
            return made.map_err(|error| machine(format!("making {}", paths.files.display()), error));
        };
        if let Some(line) = &placement.setup {
            let began = placement.base.clone().unwrap_or_else(|| version.clone());
            let ready = self.ready(session, placement, &began, line).await?;
            let mut template = self.take(&ready, None, placement).await?;
            paths.expect(&template.save()?.version)?;
            paths.note_set_up(line)?;
            template.seal_for(&paths.state)?;
            return Ok(());
        }
        // What a fork began with is there already, and the rest is little.
        let began = placement.base.as_ref().filter(|base| self.has_checkout(base)).unwrap_or(&version);
        paths.expect(began)?;
        self.lay(&paths.state, began, placement)?;
        Ok(())
    }

    fn has_checkout(&self, version: &Version) -> bool {
        self.home.join("checkouts").join(version.tree.digest.hex().as_str()).is_dir()
    }

    fn lay(&self, state: &Path, version: &Version, placement: &Placement) -> Result<Workspace> {
        let options = self.options(placement.origin.as_ref());
        let (workspace, laid) = Workspace::lay(self.store.clone(), &self.home, state, version, &options)?;
        if let (Laid { reused: false, files: WORTH_TELLING.., .. }, Some(told)) = (&laid, &self.told) {
            let megabytes = laid.bytes / 1_000_000;
            told(format!("{} files ({megabytes} MB) were checked out once; forks share them", laid.files));
        }
        Ok(workspace)
    }

    /// The site where `line` has been run over `version`. The call is on the record, also when it had been run before.
    async fn ready(
        &self,
        session: &mut Session,
        placement: &Placement,
        version: &Version,
        line: &str,
    ) -> Result<PathBuf> {
        let key = Digest::of(format!("{}\n{line}", version.tree.digest.hex().as_str()).as_bytes());
        let state = self.home.join(format!("setup-{}", &key.hex().as_str()[..32]));
        let begun = self.begin_setup(&state, version, line, placement).await?;
        let started = ToolStarted::new(format!("setup-{}", fresh_name()), SETUP, Effect::Workspace);
        let arguments = Some(json!({ "shell": line, "ran_before": begun.is_none() }).to_string().into());
        let call = CallRecord::start(session, ToolStarted { arguments, isolated: Some(true), ..started })?;
        session.publish().await?;
        let ran = match begun {
            None => Ok(None),
            Some(workspace) => self.run_setup(workspace, &state, placement, line).await.map(Some),
        };
        let (ending, error) = match ran {
            Ok(None) => (call.ended(CallOutcome::Done), None),
            Ok(Some(finished)) => {
                let failed = (!finished.ended.well()).then(|| setup_failed(line, &finished));
                (self.ending(&call, &finished, Vec::new()).await?, failed)
            }
            Err(error) => {
                let remarks = vec![error.to_string()];
                (ToolFinished { remarks, ..call.ended(CallOutcome::Failed) }, Some(error))
            }
        };
        session.append(ending)?;
        session.publish().await?;
        error.map_or(Ok(state), Err)
    }

    /// Takes the site of a setup, when nobody else has it. Who is told waits for somebody who runs it.
    async fn take(&self, state: &Path, line: Option<&str>, placement: &Placement) -> Result<Workspace> {
        let options = self.options(placement.origin.as_ref());
        let mut waits = false;
        loop {
            match Workspace::open_layered(self.store.clone(), &self.home, state, &options) {
                Err(workspace::Error::Busy { process, .. }) => {
                    if let (false, Some(line), Some(told)) = (waits, line, &self.told) {
                        told(format!("waiting for process {process}, which runs the setup `{line}`"));
                    }
                    waits = true;
                }
                taken => return Ok(taken?.0),
            }
            nap().await;
        }
    }

    /// Runs a setup in a site of its own.
    async fn run_setup(
        &self,
        workspace: Workspace,
        state: &Path,
        placement: &Placement,
        line: &str,
    ) -> Result<Finished> {
        let origin = placement.origin.as_ref().map(path_of);
        let mut spec = self.spec_of(&workspace, &state.join(SANDBOX), origin.as_deref())?;
        spec.limits.wall_time = None;
        let sandbox = self.backends.get(&placement.backend)?.open(spec).await?;
        let ran = match sandbox.exec(Command::shell(line)).await {
            Ok(running) => running.finish().await,
            Err(error) => Err(error),
        };
        sandbox.close().await?;
        match ran {
            Ok(finished) if finished.ended.well() => {
                let written = fs::write(state.join(READY), line);
                written.map_err(|error| machine(format!("writing {}", state.display()), error))?;
                Ok(finished)
            }
            // While it is ours nobody else begins there.
            failed => {
                let removed = remove_tree(state);
                drop(workspace);
                removed.map_err(|error| machine(format!("removing {}", state.display()), error))?;
                Ok(failed?)
            }
        }
    }

    /// Lays the files that a setup begins with; nothing where it has been run. What one left that was killed goes first.
    async fn begin_setup(
        &self,
        state: &Path,
        version: &Version,
        line: &str,
        placement: &Placement,
    ) -> Result<Option<Workspace>> {
        let is_ready = || state.join(READY).exists() && Workspace::is_layered(state);
        while !is_ready() {
            if !Workspace::is_layered(state) {
                let _ = fs::remove_file(state.join(READY));
                match self.lay(state, version, placement) {
                    // Somebody else is at it, or was faster.
                    Err(Error::Workspace(workspace::Error::Busy { .. })) => nap().await,
                    Err(_) if Workspace::is_layered(state) => {}
                    begun => return begun.map(Some),
                }
                continue;
            }
            let left = match self.take(state, Some(line), placement).await {
                // Whoever had it took it away.
                Err(Error::Workspace(workspace::Error::Missing(_))) => continue,
                left => left?,
            };
            // Whoever had it was done.
            if is_ready() {
                break;
            }
            rath_sandbox::await_anchor(&state.join(SANDBOX))?;
            let removed = remove_tree(state);
            drop(left);
            removed.map_err(|error| machine(format!("removing {}", state.display()), error))?;
        }
        Ok(None)
    }
}

/// Waits a moment, without keeping the thread, for a directory that another process has.
pub(super) async fn nap() {
    pause(MOMENT).await;
}

/// What to say of a setup that went wrong.
pub(super) fn setup_failed(line: &str, finished: &Finished) -> Error {
    let ended = match finished.ended {
        Ended::Exited(code) => format!("exit {code}"),
        Ended::Signalled { signal, .. } => format!("signal {signal}"),
    };
    // Some complain where others talk.
    let said = if finished.stderr.bytes.is_empty() { &finished.stdout } else { &finished.stderr };
    let output = String::from_utf8_lossy(&said.bytes).chars().take(2000).collect();
    Error::Setup { line: line.into(), ended, output }
}

/// What to say of a setup that somebody stopped.
pub(super) fn stopped(line: &str) -> Error {
    Error::Setup { line: line.into(), ended: "stopped".into(), output: String::new() }
}
