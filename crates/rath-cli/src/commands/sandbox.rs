use anyhow::Result;
use rath::workshop::Prune;

use super::Answer;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;

/// Look after the places where sessions work
#[derive(clap::Args)]
pub(crate) struct Sandbox {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// List the sessions that have a place, and what their copies take; of layers, what is a session's own (+)
    Ls,
    /// Print the directory that a session works in; a copy is made if it is not there yet. Layers have none
    Path {
        /// The session
        session: String,
    },
    /// Remove copies that are no longer needed: of sessions that have ended, and with nothing unsaved
    Prune {
        /// Those of open sessions too: they are made again from their version
        #[arg(long)]
        all: bool,
        /// Those that hold ignored files too, which no version has
        #[arg(long)]
        ignored: bool,
        /// Only say what would go
        #[arg(long)]
        dry_run: bool,
    },
}

impl Sandbox {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let workshop = settings.workshop(false)?;
        match self.what {
            What::Ls => {
                let sites = workshop.sites().await?;
                if settings.json {
                    return output::json(&sites).map(|()| Answer::Yes);
                }
                let mut page = Page::default();
                for site in &sites {
                    let isolated = if site.placement.isolated { "isolated" } else { "not isolated" };
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
                        "{} {} {} {sandbox:<14} {size:>9} {}{}",
                        style::session(site.session.short()),
                        site.placement.backend,
                        if site.placement.isolated { style::good(isolated) } else { style::label(isolated) },
                        output::harmless(&settings.shown(&site.directory)),
                        if site.closed { style::dim(" (closed)") } else { String::new() },
                    ));
                }
                page.show(settings)?;
                if sites.is_empty() {
                    output::remark("no session has a place yet\n  help: `rath place SESSION --in DIR`");
                }
            }
            What::Path { session } => {
                let id = expression::resolve_session(workshop.store(), &session).await?;
                let mut session = workshop.store().open(id, settings.actor()).await?;
                let directory = workshop.directory(&mut session).await?;
                match settings.json {
                    true => output::json(&directory)?,
                    false => output::answer(settings.shown(&directory))?,
                }
            }
            What::Prune { all, ignored, dry_run } => {
                let pruned = workshop.prune(Prune { all, ignored, dry: dry_run }).await?;
                if settings.json {
                    return output::json(&pruned).map(|()| Answer::Yes);
                }
                let verb = if dry_run { "would remove" } else { "removed" };
                for copy in &pruned.removed {
                    output::answer(format_args!("{verb} {}", settings.shown(copy)))?;
                }
                for kept in &pruned.kept {
                    output::remark(style::dim(format!("kept {}: {}", settings.shown(&kept.directory), kept.why)));
                }
                let number = pruned.removed.len();
                let copies = if number == 1 { "copy" } else { "copies" };
                output::remark(format_args!("{number} {copies}, {}", output::bytes(pruned.bytes)));
            }
        }
        Ok(Answer::Yes)
    }
}
