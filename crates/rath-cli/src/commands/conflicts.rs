use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::{Result, bail};
use rath::View;
use rath::files::{Forest, Name, marked};

use super::Answer;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;

/// List the conflicts between files that nobody has decided
///
/// With a path, prints that file with both sides between markers, ready to be edited. Exits with 3 if any is open.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Conflicts {
    /// The session
    #[arg(default_value = "@")]
    session: String,
    /// One path: print the file with markers
    path: Option<OsString>,
}

impl Conflicts {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let place = expression::resolve(&store, &self.session).await?;
        let view = View::of(&store, place.session, Some(place.seq)).await?;
        let conflicts = &view.state().conflicts;
        if let Some(path) = self.path {
            let path = Name::from(path.as_bytes());
            let Some(conflict) = conflicts.iter().find(|conflict| conflict.path == path) else {
                bail!("there is no open conflict on {path}");
            };
            match marked(&Forest::new(&*store), conflict).await? {
                Some(text) => output::raw(&text)?,
                None => bail!("{path}: {}; choose a side with `rath resolve`", conflict.kind),
            }
            return Ok(Answer::No);
        }
        if settings.json {
            output::json(conflicts)?;
            return Ok(if conflicts.is_empty() { Answer::Yes } else { Answer::No });
        }
        let mut page = Page::default();
        for conflict in conflicts {
            let branch = conflict.branch.map(|branch| format!(" (with {})", branch.short())).unwrap_or_default();
            page.line(format_args!("{} {}{branch}", style::bad(&conflict.path), conflict.kind));
        }
        page.show(settings)?;
        match conflicts.is_empty() {
            true => output::remark("no conflicts"),
            false => output::remark(format_args!(
                "help: `rath resolve {} PATH --ours`, --theirs, --with FILE, …",
                place.session.short()
            )),
        }
        Ok(if conflicts.is_empty() { Answer::Yes } else { Answer::No })
    }
}
