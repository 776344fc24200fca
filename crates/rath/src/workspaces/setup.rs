//! Creating a session's copy, and running its setup command.
//!
//! A setup command runs once for a version of the files. The result is a layer, which is shared by every session with
//! the same files and the same command. The layer is kept in a workspace of its own, in which no session works.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rath_core::body::{CallOutcome, Effect, ToolFinished, ToolStarted};
use rath_core::files::Version;
use rath_core::{Digest, Placement, Session, fresh_name};
use rath_sandbox::{Command, ExitStatus, Finished};
use rath_workspace::{self as workspace, CheckoutStats, Workspace, remove_tree};
use serde_json::json;

use super::exec::SETUP;
use super::open_workspace::{Paths, READY, io_error, path_of};
use super::{Error, Result, Workspaces};
use crate::recorder::CallRecord;
use crate::sleep::sleep;

/// The state directory of a setup's sandbox.
const SANDBOX: &str = "sandbox";

/// The time between two attempts to open a directory that another process has open.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// The number of attempts to open a directory that another process has open: 3 s.
pub(super) const PATIENCE: usize = 300;

/// The number of files from which a checkout takes long enough for a notice.
const NOTICE_FROM: u64 = 10_000;

impl Workspaces {
    /// Creates the copy that a session works in: layers if the backend can mount them, else a directory.
    pub(super) async fn create_copy(&self, session: &mut Session, placement: &Placement, paths: &Paths) -> Result<()> {
        let backend = self.backends.get(&placement.backend)?;
        let made = fs::create_dir_all(&self.home);
        made.map_err(|error| io_error(format!("making {}", self.home.display()), error))?;
        let version = session.state().workspace.clone();
        let Some(version) = version.filter(|_| backend.supports_layers_in(&self.home)) else {
            let made = fs::create_dir_all(&paths.files);
            return made.map_err(|error| io_error(format!("making {}", paths.files.display()), error));
        };
        if self.share_from_origin(session, placement).await? {
            return Ok(());
        }
        if let Some(line) = &placement.setup {
            let began = placement.base.clone().unwrap_or_else(|| version.clone());
            let ready = self.prepared_layers(session, placement, &began, line).await?;
            let mut template = self.open_setup(&ready, None, placement).await?;
            let _sharing = self.sharing.lock().await;
            if paths.are_there() {
                return Ok(());
            }
            paths.expect(&template.save()?.version)?;
            paths.note_setup_line(line)?;
            template.fork_into(&paths.state)?;
            return Ok(());
        }
        // The origin may have shared its layers since.
        let _sharing = self.sharing.lock().await;
        if paths.are_there() {
            return Ok(());
        }
        // The checkout of the base exists already, and the session usually differs little from it.
        let began = placement.base.as_ref().filter(|base| self.has_checkout(base)).unwrap_or(&version);
        paths.expect(began)?;
        self.create_layered(&paths.state, began, placement)?;
        Ok(())
    }

    fn has_checkout(&self, version: &Version) -> bool {
        self.home.join("checkouts").join(version.tree.digest.hex().as_str()).is_dir()
    }

    fn create_layered(&self, state: &Path, version: &Version, placement: &Placement) -> Result<Workspace> {
        let options = self.options(placement.origin.as_ref());
        let (workspace, laid) = Workspace::create_layered(self.store.clone(), &self.home, state, version, &options)?;
        if let (CheckoutStats { reused: false, files: NOTICE_FROM.., .. }, Some(notice)) = (&laid, &self.on_notice) {
            let megabytes = laid.bytes / 1_000_000;
            notice(format!("{} files ({megabytes} MB) were checked out once; forks share them", laid.files));
        }
        Ok(workspace)
    }

    /// The workspace in which the setup command `line` was run on `version`. Records a call, also if the command was
    /// run before.
    async fn prepared_layers(
        &self,
        session: &mut Session,
        placement: &Placement,
        version: &Version,
        line: &str,
    ) -> Result<PathBuf> {
        let key = Digest::of(format!("{}\n{line}", version.tree.digest.hex().as_str()).as_bytes());
        let state = self.home.join(format!("setup-{}", &key.hex().as_str()[..32]));
        let begun = self.take_setup_layers(&state, version, line, placement).await?;
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
                let failed = (!finished.ended.success()).then(|| setup_failed(line, &finished));
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

    /// Opens the workspace of a setup. Waits while another process has it open. With `line` the other process runs the
    /// setup, and a notice is sent.
    async fn open_setup(&self, state: &Path, line: Option<&str>, placement: &Placement) -> Result<Workspace> {
        let options = self.options(placement.origin.as_ref());
        let mut waits = false;
        loop {
            match Workspace::open_layered(self.store.clone(), &self.home, state, &options) {
                Err(workspace::Error::Busy { process, .. }) => {
                    if let (false, Some(line), Some(notice)) = (waits, line, &self.on_notice) {
                        notice(format!("waiting for process {process}, which runs the setup `{line}`"));
                    }
                    waits = true;
                }
                taken => return Ok(taken?.0),
            }
            sleep_briefly().await;
        }
    }

    /// Runs a setup command in its workspace.
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
            Ok(finished) if finished.ended.success() => {
                let written = fs::write(state.join(READY), line);
                written.map_err(|error| io_error(format!("writing {}", state.display()), error))?;
                Ok(finished)
            }
            // Removed while it is locked, so that no other process starts there.
            failed => {
                let removed = remove_tree(state);
                drop(workspace);
                removed.map_err(|error| io_error(format!("removing {}", state.display()), error))?;
                Ok(failed?)
            }
        }
    }

    /// Creates the workspace of a setup with the files of `version`; `None` if the setup was run already. The leftovers
    /// of a killed setup are removed first.
    async fn take_setup_layers(
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
                match self.create_layered(state, version, placement) {
                    // Another process creates it, or was faster.
                    Err(Error::Workspace(workspace::Error::Busy { .. })) => sleep_briefly().await,
                    Err(_) if Workspace::is_layered(state) => {}
                    begun => return begun.map(Some),
                }
                continue;
            }
            let left = match self.open_setup(state, Some(line), placement).await {
                // The other process failed and removed it.
                Err(Error::Workspace(workspace::Error::Missing(_))) => continue,
                left => left?,
            };
            // The other process finished the setup.
            if is_ready() {
                break;
            }
            rath_sandbox::await_supervisor(&state.join(SANDBOX))?;
            let removed = remove_tree(state);
            drop(left);
            removed.map_err(|error| io_error(format!("removing {}", state.display()), error))?;
        }
        Ok(None)
    }
}

/// Waits 10 ms for a directory that another process has open, without blocking the thread.
pub(super) async fn sleep_briefly() {
    sleep(RETRY_INTERVAL).await;
}

/// The error of a setup command that failed.
pub(super) fn setup_failed(line: &str, finished: &Finished) -> Error {
    let ended = match finished.ended {
        ExitStatus::Exited(code) => format!("exit {code}"),
        ExitStatus::Signalled { signal, .. } => format!("signal {signal}"),
    };
    // Some programs write errors to standard output.
    let said = if finished.stderr.bytes.is_empty() { &finished.stdout } else { &finished.stderr };
    let output = String::from_utf8_lossy(&said.bytes).chars().take(2000).collect();
    Error::Setup { line: line.into(), ended, output }
}

/// The error of a setup command that was stopped.
pub(super) fn stopped(line: &str) -> Error {
    Error::Setup { line: line.into(), ended: "stopped".into(), output: String::new() }
}
