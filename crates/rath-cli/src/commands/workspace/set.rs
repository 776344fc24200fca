use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use anyhow::Result;
use rath::Session;
use rath::workspaces::{PlacementSpec as Target, Workspaces};

use crate::commands::{Answer, open_session};
use crate::expression;
use crate::output;
use crate::settings::Settings;

/// Set a session's working directory and sandbox
///
/// Saves the directory as the session's first version. With --in, the session works in a copy that the store owns, and
/// `rath apply` brings its changes back. With --in-place, it works in the directory itself.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Set {
    /// The session
    #[arg(default_value = "@")]
    session: String,
    #[command(flatten)]
    placement: PlacementArgs,
}

/// The backend of a session for which none is named.
const DEFAULT: &str = "local";

/// Where a session works.
#[derive(clap::Args, Clone)]
pub(crate) struct PlacementArgs {
    /// The backend: `local` isolates commands, `host` runs them as you [default: local]
    #[arg(long, value_name = "BACKEND")]
    pub(crate) on: Option<String>,
    /// Work in a copy of this directory
    #[arg(long = "in", value_name = "DIR", conflicts_with = "in_place")]
    pub(crate) copy_of: Option<PathBuf>,
    /// Work in this directory itself
    #[arg(long, value_name = "DIR")]
    pub(crate) in_place: Option<PathBuf>,
    /// Run this shell command once when a copy is made, e.g. "npm ci"; sessions with the same files share its result
    #[arg(long, value_name = "COMMAND")]
    pub(crate) setup: Option<String>,
    /// Allow your home directory and `/`
    #[arg(long)]
    pub(crate) anywhere: bool,
}

impl PlacementArgs {
    /// Whether any of the flags was given.
    pub(crate) fn is_given(&self) -> bool {
        self.on.is_some() || self.copy_of.is_some() || self.in_place.is_some() || self.setup.is_some()
    }

    pub(crate) async fn apply(
        &self,
        settings: &Settings,
        workspaces: &Workspaces,
        session: &mut Session,
    ) -> Result<()> {
        let now = session.state().placement.as_ref();
        let backend = self.on.clone().or_else(|| now.map(|now| now.backend.clone())).unwrap_or_else(|| DEFAULT.into());
        let mut target = match (&self.copy_of, &self.in_place) {
            (Some(dir), _) => Target::copy_of(backend, settings.here.join(dir)),
            (_, Some(dir)) => Target::in_place(backend, settings.here.join(dir)),
            // Only a backend: the same files on that backend.
            (None, None) => match &session.state().placement {
                Some(now) => Target {
                    backend,
                    origin: now.origin.as_ref().map(|origin| OsStr::from_bytes(origin.as_bytes()).into()),
                    in_place: now.in_place,
                    setup: now.setup.clone(),
                },
                None => Target::empty(backend),
            },
        };
        target.setup = self.setup.clone().or(target.setup);
        Ok(workspaces.assign(session, target).await?)
    }
}

impl Set {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let workspaces = settings.workspaces(self.placement.anywhere)?;
        let store = workspaces.store();
        let id = expression::resolve_session(store, &self.session).await?;
        if !self.placement.is_given() {
            return Err(expression::usage_error(
                "no directory or backend is named\n  help: --in DIR works in a copy of DIR, --in-place DIR in DIR itself",
            ));
        }
        let mut session = open_session(settings, store, id).await?;
        self.placement.apply(settings, &workspaces, &mut session).await?;
        output::added(settings, session.head())?;
        Ok(Answer::Yes)
    }
}
