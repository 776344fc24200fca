//! `rath workspace`: the directories in which sessions work.

mod save;
mod set;

use std::path::PathBuf;

use anyhow::Result;
use rath::workspaces::PruneOptions;
use serde::Serialize;

use super::Answer;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;

pub(crate) use save::Save;
pub(crate) use set::{PlacementArgs, Set};

/// Set, save, list and prune the directories of sessions
#[derive(clap::Args)]
pub(crate) struct Workspace {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Set(Set),
    Save(Save),
    /// List the sessions that have a workspace, with its backend and size; for an overlay, the size of its changes (+)
    Ls,
    /// Print the directory that a session works in, and make its copy if there is none; an overlay has no such directory
    Path {
        /// The session
        #[arg(default_value = "@")]
        session: String,
    },
    /// Remove copies that are no longer needed: those of closed sessions, unless they hold unsaved changes
    Prune {
        /// Also those of open sessions; they are made again from their version
        #[arg(long)]
        all: bool,
        /// Also those that hold ignored files, which no version has
        #[arg(long)]
        ignored: bool,
        /// Only show what would be removed
        #[arg(long)]
        dry_run: bool,
    },
}

/// The directory of a session.
#[derive(Serialize)]
struct Directory {
    directory: PathBuf,
}

impl Workspace {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        match self.what {
            What::Set(command) => command.run(settings).await,
            What::Save(command) => command.run(settings).await,
            What::Ls => list(settings).await,
            What::Path { session } => path(settings, &session).await,
            What::Prune { all, ignored, dry_run } => prune(settings, PruneOptions { all, ignored, dry: dry_run }).await,
        }
    }
}

async fn list(settings: &Settings) -> Result<Answer> {
    let sites = settings.workspaces(false)?.list().await?;
    if settings.json {
        return output::json_list("rath.workspace.ls/1", &sites).map(|()| Answer::Yes);
    }
    let mut page = Page::default();
    for site in &sites {
        let isolated = if site.placement.isolated { style::good("isolated") } else { style::label("not isolated") };
        let sandbox = match &site.placement.sandbox {
            Some(sandbox) => format!("generation {}", sandbox.generation),
            None => "not open".into(),
        };
        let size = match (site.exists, site.bytes) {
            (false, _) => style::bad("gone"),
            (true, Some(bytes)) if site.layers => format!("+{}", output::bytes(bytes)),
            (true, Some(bytes)) => output::bytes(bytes),
            (true, None) => "in place".into(),
        };
        page.line(format_args!(
            "{} {} {isolated} {sandbox:<14} {size:>9} {}{}",
            style::session(site.session.short()),
            site.placement.backend,
            output::escaped(&settings.shown(&site.directory)),
            if site.closed { style::dim(" (closed)") } else { String::new() },
        ));
    }
    page.show(settings)?;
    if sites.is_empty() {
        output::remark("no session has a workspace yet\n  help: `rath workspace set SESSION --in DIR`");
    }
    Ok(Answer::Yes)
}

async fn path(settings: &Settings, session: &str) -> Result<Answer> {
    let workspaces = settings.workspaces(false)?;
    let id = expression::resolve_session(workspaces.store(), session).await?;
    let mut session = super::open_session(settings, workspaces.store(), id).await?;
    let directory = workspaces.directory(&mut session).await?;
    if settings.json {
        output::json("rath.workspace.path/1", &Directory { directory })?;
    } else {
        output::answer(settings.shown(&directory))?;
    }
    Ok(Answer::Yes)
}

async fn prune(settings: &Settings, what: PruneOptions) -> Result<Answer> {
    let verb = if what.dry { "would remove" } else { "removed" };
    let pruned = settings.workspaces(false)?.prune(what).await?;
    if settings.json {
        return output::json("rath.workspace.prune/1", &pruned).map(|()| Answer::Yes);
    }
    for copy in &pruned.removed {
        output::answer(format_args!("{verb} {}", settings.shown(copy)))?;
    }
    for kept in &pruned.kept {
        output::remark(style::dim(format!("kept {}: {}", settings.shown(&kept.directory), kept.why)));
    }
    let copies = output::count(pruned.removed.len() as u64, "copy");
    output::remark(format_args!("{copies}, {}", output::bytes(pruned.bytes)));
    Ok(Answer::Yes)
}
