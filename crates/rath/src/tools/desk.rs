//! Where tools work: the session's sandbox, and what runs there in the background.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rath_core::ToolSpec;
use rath_core::body::{BackgroundCommand, Effect};
use rath_sandbox::{Command, Contents, Error, Part, Sandbox, Status, Why};

use super::background::{Backgrounds, Busy};
use super::kept::Kept;
use super::nearest;
use super::permit::Permit;
use super::truncated::LeftOut;

/// The largest file that tools read.
pub(super) const LARGEST: u64 = 10 << 20;

/// Where the tools of a session work: `call.get::<Desk>()`.
#[derive(Debug)]
pub struct Desk {
    sandbox: Arc<dyn Sandbox>,
    appears_at: Option<PathBuf>,
    ceiling: Option<PathBuf>,
    permit: Permit,
    pub(super) background: Arc<Backgrounds>,
    pub(super) left_out: Arc<LeftOut>,
}

impl Desk {
    /// A desk in `sandbox`, whose commands see the workspace at `appears_at`.
    pub fn new(sandbox: Arc<dyn Sandbox>, appears_at: Option<PathBuf>) -> Self {
        let (background, left_out) = (Arc::default(), Arc::default());
        Self { sandbox, appears_at, ceiling: None, permit: Permit::default(), background, left_out }
    }

    /// With a directory above which git is not to look for a repository.
    #[must_use]
    pub fn with_ceiling(mut self, ceiling: Option<PathBuf>) -> Self {
        self.ceiling = ceiling;
        self
    }

    /// With rules about the files that its tools come to.
    #[must_use]
    pub(crate) fn with_permit(mut self, permit: Permit) -> Self {
        self.permit = permit;
        self
    }

    /// Where another process worked before, whose calls kept this, oldest first.
    #[must_use]
    pub(crate) fn after(self, kept: &[Kept]) -> Self {
        let background = Backgrounds::after(kept.iter().flat_map(|kept| &kept.background)).into();
        let left_out = LeftOut::after(kept.iter().flat_map(|kept| &kept.continued)).into();
        Self { background, left_out, ..self }
    }

    /// In the place of another one of this process, which has another sandbox.
    #[must_use]
    pub(crate) async fn instead_of(self, other: &Desk) -> Self {
        let (background, left_out) = (other.background.clone(), other.left_out.clone());
        // Two values may be of one sandbox, in which everything runs on.
        if !matches!(other.sandbox.status().await, Ok(Status::Open { .. })) {
            background.lose();
        }
        Self { background, left_out, ..self }
    }

    /// The commands in the background that may have changed files since the files were last looked at.
    pub(crate) fn busy(&self) -> Busy {
        self.background.busy()
    }

    /// The files were looked at, after these had been asked for.
    pub(crate) fn looked_at(&self, asked: &Busy) {
        self.background.looked_at(asked);
    }

    /// The calls of those whose changes a look at the files would find now.
    pub(crate) fn beside(&self) -> Vec<String> {
        self.background.beside()
    }

    /// The commands in the background that are gone, each once.
    pub(crate) fn take_gone(&self) -> Vec<BackgroundCommand> {
        self.background.take_gone()
    }

    /// Checks the files that a call's paths lead to through links. The error is for the model.
    pub(crate) async fn check_links(&self, spec: &ToolSpec, effect: Effect, arguments: &str) -> Result<(), String> {
        if self.permit.is_open() {
            return Ok(());
        }
        let arguments = serde_json::from_str(arguments).unwrap_or_default();
        for path in spec.paths.in_call(&spec.schema, &arguments).unwrap_or_default() {
            // The tool says what is wrong with a path that leads nowhere.
            let Ok(path) = self.path(&path) else { continue };
            let Ok(real) = self.sandbox.real(&path).await else { continue };
            self.permit.check_link(&spec.name, effect, &path, &real).map_err(|rule| {
                let (path, real) = (path.display(), real.display());
                format!(
                    "{path} leads to {real}, which is not allowed here (rule: {rule}): name that file, if you need it"
                )
            })?;
        }
        Ok(())
    }

    /// Whether the rules let a call that was made about `start` look into a file below it.
    pub(super) fn may_look_into(&self, tool: &str, start: &Path, file: &Path) -> bool {
        self.permit.check_below(tool, Effect::Pure, start, file).is_ok()
    }

    /// A shell line as it may run here.
    pub(super) fn shell(&self, line: &str) -> Command {
        match &self.ceiling {
            Some(ceiling) => Command::shell(line).env("GIT_CEILING_DIRECTORIES", ceiling),
            None => Command::shell(line),
        }
    }

    /// Where commands run and files are touched.
    pub fn sandbox(&self) -> &Arc<dyn Sandbox> {
        &self.sandbox
    }

    /// Where commands see the workspace.
    pub fn appears_at(&self) -> Option<&Path> {
        self.appears_at.as_deref()
    }

    /// The calls whose commands still run in the background.
    pub fn live(&self) -> Vec<String> {
        self.background.live()
    }

    /// Stops all that runs in the background, and says what that was.
    pub async fn stop_all(&self) -> Vec<String> {
        self.background.stop_all().await
    }

    /// A path of a model's, relative to the workspace and without `.` and `..`. Empty for the workspace itself.
    pub fn path(&self, given: &str) -> Result<PathBuf, String> {
        let given = Path::new(given.trim());
        let inside = match (given.is_absolute(), &self.appears_at) {
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

    /// As [`path`](Self::path), of something in the workspace.
    pub(super) fn file_path(&self, given: &str) -> Result<PathBuf, String> {
        let path = self.path(given)?;
        match path.as_os_str().is_empty() {
            true => Err("this is the workspace itself: name a file in it".into()),
            false => Ok(path),
        }
    }

    /// The whole of a file, unless it is too large. What is wrong is said in words for a model.
    pub(super) async fn contents(&self, path: &Path) -> Result<Contents, String> {
        match self.sandbox.read(path, Part::first(LARGEST + 1)).await {
            Ok(contents) if contents.size > LARGEST || contents.bytes.len() as u64 > LARGEST => Err(format!(
                "{} has {} bytes, and at most {LARGEST} are read at once: use `grep`, or `shell` with `sed -n 1,100p`",
                path.display(),
                contents.size.max(contents.bytes.len() as u64)
            )),
            Ok(contents) => Ok(contents),
            Err(error) => Err(self.explain(path, error).await),
        }
    }

    /// Why something did not work at `path`, and what may have been meant.
    pub(super) async fn explain(&self, path: &Path, error: Error) -> String {
        match error {
            Error::BadPath { why: Why::Missing, .. } => {
                let missing = format!("there is no {}", path.display());
                match nearest::paths(self, path).await {
                    near if near.is_empty() => format!("{missing}: look with `ls` or `glob` for what there is"),
                    near => format!("{missing}. Did you mean {}?", near.join(" or ")),
                }
            }
            Error::BadPath { why: Why::IsDirectory, .. } => {
                format!("{} is a directory: use `ls` to see what it holds", path.display())
            }
            error => error.to_string(),
        }
    }
}

/// Whether this is not text.
pub(super) fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(8 << 10).any(|byte| *byte == 0)
}
