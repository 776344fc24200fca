//! The view of a workspace that tools have: the sandbox, its files, and background commands.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rath_core::ToolSpec;
use rath_core::body::{BackgroundCommand, Effect};
use rath_sandbox::{ByteRange, Command, Error, FileContent, PathError, Sandbox, SandboxStatus};

use super::background::{BackgroundCommands, DirtyCommands};
use super::nearest;
use super::path_policy::PathPolicy;
use super::retained::RetainedByCall;
use super::truncated::TruncatedOutput;

/// The largest file that tools read at once, in bytes.
pub(super) const LARGEST: u64 = 10 << 20;

/// The workspace in which the tools of a session work. A tool gets it with `call.get::<ToolWorkspace>()`.
#[derive(Debug)]
pub struct ToolWorkspace {
    sandbox: Arc<dyn Sandbox>,
    mount_path: Option<PathBuf>,
    ceiling: Option<PathBuf>,
    path_policy: PathPolicy,
    pub(super) background: Arc<BackgroundCommands>,
    pub(super) truncated: Arc<TruncatedOutput>,
}

impl ToolWorkspace {
    /// A tool workspace in `sandbox`, whose commands see the files at `mount_path`.
    pub fn new(sandbox: Arc<dyn Sandbox>, mount_path: Option<PathBuf>) -> Self {
        let (background, truncated) = (Arc::default(), Arc::default());
        Self { sandbox, mount_path, ceiling: None, path_policy: PathPolicy::default(), background, truncated }
    }

    /// Sets the directory above which git must not look for a repository.
    #[must_use]
    pub fn with_ceiling(mut self, ceiling: Option<PathBuf>) -> Self {
        self.ceiling = ceiling;
        self
    }

    /// Sets the policies for files that tools reach.
    #[must_use]
    pub(crate) fn with_path_policy(mut self, path_policy: PathPolicy) -> Self {
        self.path_policy = path_policy;
        self
    }

    /// Continues after another process, whose calls left this state, oldest first.
    #[must_use]
    pub(crate) fn after(self, kept: &[RetainedByCall]) -> Self {
        let background = BackgroundCommands::after(kept.iter().flat_map(|kept| &kept.background)).into();
        let truncated = TruncatedOutput::after(kept.iter().flat_map(|kept| &kept.rest_ids)).into();
        Self { background, truncated, ..self }
    }

    /// Replaces another value of this process, keeping its background commands and outputs.
    #[must_use]
    pub(crate) async fn instead_of(self, other: &ToolWorkspace) -> Self {
        let (background, truncated) = (other.background.clone(), other.truncated.clone());
        // If the sandbox is still open, its background commands are still running.
        if !matches!(other.sandbox.status().await, Ok(SandboxStatus::Open { .. })) {
            background.lose();
        }
        Self { background, truncated, ..self }
    }

    /// The background commands that may have changed files since the last save.
    pub(crate) fn dirty(&self) -> DirtyCommands {
        self.background.dirty()
    }

    /// Notes that the files were saved after `asked` was taken.
    pub(crate) fn mark_saved(&self, asked: &DirtyCommands) {
        self.background.mark_saved(asked);
    }

    /// The calls of background commands whose changes the next save would find.
    pub(crate) fn unsaved_calls(&self) -> Vec<String> {
        self.background.unsaved_calls()
    }

    /// The lost background commands that were not reported yet. Each is returned once.
    pub(crate) fn take_gone(&self) -> Vec<BackgroundCommand> {
        self.background.take_gone()
    }

    /// Checks the policies for files that a call's paths reach through links. The error is for the model.
    pub(crate) async fn check_links(&self, spec: &ToolSpec, effect: Effect, arguments: &str) -> Result<(), String> {
        if self.path_policy.is_open() {
            return Ok(());
        }
        let arguments = serde_json::from_str(arguments).unwrap_or_default();
        for path in spec.paths.in_call(&spec.schema, &arguments).unwrap_or_default() {
            // The tool itself reports a path that is wrong or does not exist.
            let Ok(path) = self.path(&path) else { continue };
            let Ok(real) = self.sandbox.real_path(&path).await else { continue };
            self.path_policy.check_link(&spec.name, effect, &path, &real).map_err(|rule| {
                let (path, real) = (path.display(), real.display());
                format!(
                    "{path} is a link to {real}, which is not allowed (rule: {rule}): name that file directly if you need it"
                )
            })?;
        }
        Ok(())
    }

    /// Whether the policies let a call on the directory `start` read a file below it.
    pub(super) fn may_read_below(&self, tool: &str, start: &Path, file: &Path) -> bool {
        self.path_policy.check_below(tool, Effect::Pure, start, file).is_ok()
    }

    /// A command for a shell line, with the environment of this workspace.
    pub(super) fn shell(&self, line: &str) -> Command {
        match &self.ceiling {
            Some(ceiling) => Command::shell(line).env("GIT_CEILING_DIRECTORIES", ceiling),
            None => Command::shell(line),
        }
    }

    /// The sandbox.
    pub fn sandbox(&self) -> &Arc<dyn Sandbox> {
        &self.sandbox
    }

    /// The path at which commands see the workspace.
    pub fn mount_path(&self) -> Option<&Path> {
        self.mount_path.as_deref()
    }

    /// The calls whose background commands are running.
    pub fn live(&self) -> Vec<String> {
        self.background.live()
    }

    /// Stops all background commands. Returns their ids.
    pub async fn stop_all(&self) -> Vec<String> {
        self.background.stop_all().await
    }

    /// Resolves a path from a model, relative to the workspace and without `.` and `..`. Empty for the workspace
    /// itself.
    pub fn path(&self, given: &str) -> Result<PathBuf, String> {
        let given = Path::new(given.trim());
        let inside = match (given.is_absolute(), &self.mount_path) {
            (false, _) => given,
            (true, Some(root)) => given.strip_prefix(root).map_err(|_| {
                let (given, root) = (given.display(), root.display());
                format!("{given} is outside the workspace, which is {root}: give a path relative to it")
            })?,
            (true, None) => {
                let given = given.display();
                return Err(format!("{given} is absolute: give a path relative to the workspace"));
            }
        };
        let mut path = PathBuf::new();
        for component in inside.components() {
            match component {
                Component::Normal(name) => path.push(name),
                Component::ParentDir if !path.pop() => {
                    return Err(format!("{} leads out of the workspace: use a path inside it", given.display()));
                }
                _ => {}
            }
        }
        Ok(path)
    }

    /// As [`path`](Self::path), but fails for the workspace itself.
    pub(super) fn file_path(&self, given: &str) -> Result<PathBuf, String> {
        let path = self.path(given)?;
        match path.as_os_str().is_empty() {
            true => Err("this is the workspace itself: name a file in it".into()),
            false => Ok(path),
        }
    }

    /// The whole content of a file. Fails if it is too large. The error is for the model.
    pub(super) async fn contents(&self, path: &Path) -> Result<FileContent, String> {
        match self.sandbox.read(path, ByteRange::first(LARGEST + 1)).await {
            Ok(contents) if contents.size > LARGEST || contents.bytes.len() as u64 > LARGEST => Err(format!(
                "{} has {} bytes, more than the limit of {LARGEST}: use `grep`, or `shell` with `sed -n 1,100p`",
                path.display(),
                contents.size.max(contents.bytes.len() as u64)
            )),
            Ok(contents) => Ok(contents),
            Err(error) => Err(self.explain(path, error).await),
        }
    }

    /// The error at `path` as text for the model, with suggestions if the path does not exist.
    pub(super) async fn explain(&self, path: &Path, error: Error) -> String {
        match error {
            Error::BadPath { why: PathError::Missing, .. } => {
                let missing = format!("{} does not exist", path.display());
                match nearest::paths(self, path).await {
                    near if near.is_empty() => format!("{missing}: list the files with `ls` or `glob`"),
                    near => format!("{missing}. Did you mean {}?", near.join(" or ")),
                }
            }
            Error::BadPath { why: PathError::IsDirectory, .. } => {
                format!("{} is a directory: use `ls` to list it", path.display())
            }
            error => error.to_string(),
        }
    }
}

/// Whether the bytes are binary: a NUL in the first 8 KiB.
pub(super) fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(8 << 10).any(|byte| *byte == 0)
}
