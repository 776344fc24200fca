use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use rath::files::Name;
use rath::workshop::Decision;

use super::Answer;
use crate::expression;
use crate::output;
use crate::settings::Settings;

/// Decide a conflict between files
///
/// A side is taken whole: what the other one changed elsewhere in the file is not in it. `rath conflicts SESSION PATH`
/// prints the file with both sides between markers, for --with.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
#[command(group = clap::ArgGroup::new("choice").required(true))]
pub(crate) struct Resolve {
    /// The session
    session: String,
    /// The path in conflict
    path: OsString,
    /// Take the whole file of the session that went on
    #[arg(long, group = "choice")]
    ours: bool,
    /// Take the branch's whole file
    #[arg(long, group = "choice")]
    theirs: bool,
    /// Whose, where several branches are in conflict
    #[arg(long, value_name = "BRANCH", requires = "theirs")]
    of: Option<String>,
    /// Take what both began with
    #[arg(long, group = "choice")]
    base: bool,
    /// Remove the path
    #[arg(long, group = "choice")]
    remove: bool,
    /// Take what is in the workspace now
    #[arg(long, group = "choice")]
    as_it_is: bool,
    /// Take the content of this file; `-` reads the input
    #[arg(long, value_name = "FILE", group = "choice")]
    with: Option<PathBuf>,
}

impl Resolve {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let workshop = settings.workshop(false)?;
        let id = expression::resolve_session(workshop.store(), &self.session).await?;
        let decision = match &self.with {
            Some(file) if file.as_os_str() == "-" => {
                let mut bytes = Vec::new();
                std::io::stdin().lock().read_to_end(&mut bytes).context("reading the input")?;
                Decision::Content(bytes)
            }
            Some(file) => Decision::Content(
                std::fs::read(settings.here.join(file)).with_context(|| format!("reading {}", file.display()))?,
            ),
            None if self.ours => Decision::Ours,
            None if self.theirs => match &self.of {
                Some(branch) => Decision::TheirsOf(expression::resolve_session(workshop.store(), branch).await?),
                None => Decision::Theirs,
            },
            None if self.base => Decision::Base,
            None if self.remove => Decision::Remove,
            None => Decision::AsItIs,
        };
        let mut session = workshop.store().open(id, settings.actor()).await?;
        let record = workshop.resolve(&mut session, &Name::from(self.path.as_bytes()), decision).await?;
        output::added(settings, record)?;
        let open = session.state().conflicts.len() as u64;
        if open > 0 && !settings.json {
            output::remark(format_args!("{} still open", output::count(open, "conflict")));
        }
        Ok(Answer::Yes)
    }
}
