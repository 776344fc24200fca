use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use anyhow::Result;
use rath::Session;
use rath::workshop::{Place as Target, Workshop};

use super::Answer;
use crate::expression;
use crate::output;
use crate::settings::Settings;

/// Say where a session works: on which backend, with which files
///
/// Saves the directory as the session's first version. With --in the session works in a copy that the store owns, and
/// `rath apply` brings its changes back; with --in-place it works in the directory itself.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Place {
    /// The session
    session: String,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Where sessions work unless somebody says otherwise.
const DEFAULT: &str = "local";

/// Where a session is to work.
#[derive(clap::Args, Clone)]
pub(crate) struct PlaceArgs {
    /// The backend: `local` is isolated and the default, `host` runs commands as you
    #[arg(long, value_name = "BACKEND")]
    pub(crate) on: Option<String>,
    /// Work in a copy of this directory
    #[arg(long = "in", value_name = "DIR", conflicts_with = "in_place")]
    pub(crate) copy_of: Option<PathBuf>,
    /// Work in this directory itself
    #[arg(long, value_name = "DIR")]
    pub(crate) in_place: Option<PathBuf>,
    /// Run this shell line once when a copy is made, e.g. "npm ci"; others with the same files share what it leaves
    #[arg(long, value_name = "LINE")]
    pub(crate) setup: Option<String>,
    /// Allow your home directory and `/`
    #[arg(long)]
    pub(crate) anywhere: bool,
}

impl PlaceArgs {
    /// Whether anything was said.
    pub(crate) fn is_given(&self) -> bool {
        self.on.is_some() || self.copy_of.is_some() || self.in_place.is_some() || self.setup.is_some()
    }

    pub(crate) async fn apply(&self, settings: &Settings, workshop: &Workshop, session: &mut Session) -> Result<()> {
        let now = session.state().placement.as_ref();
        let backend = self.on.clone().or_else(|| now.map(|now| now.backend.clone())).unwrap_or_else(|| DEFAULT.into());
        let mut place = match (&self.copy_of, &self.in_place) {
            (Some(dir), _) => Target::copy_of(backend, settings.here.join(dir)),
            (_, Some(dir)) => Target::in_place(backend, settings.here.join(dir)),
            // A backend alone: where the session is, on that one.
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
        place.setup = self.setup.clone().or(place.setup);
        Ok(workshop.place(session, place).await?)
    }
}

impl Place {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let workshop = settings.workshop(self.place.anywhere)?;
        let store = workshop.store();
        let id = expression::resolve_session(store, &self.session).await?;
        if !self.place.is_given() {
            return Err(expression::unclear("say where: --in DIR works in a copy of it, --in-place DIR in itself"));
        }
        let mut session = store.open(id, settings.actor()).await?;
        self.place.apply(settings, &workshop, &mut session).await?;
        output::added(settings, session.head())?;
        Ok(Answer::Yes)
    }
}
