use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use rath::View;
use rath::files::{FilePath, TreeStore, marked};
use rath::workspaces::Resolution;

use super::Answer;
use super::file::FileAddress;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;

/// Resolve a file conflict, or list the open ones (--list)
///
/// --ours and --theirs take one side's whole file, without the changes that the other side made elsewhere in it. To edit
/// a file by hand, print it with both sides between markers (`--list SESSION:PATH`) and pass the result with --with.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
#[command(group = clap::ArgGroup::new("choice").required(true))]
pub(crate) struct Resolve {
    /// The file in conflict; with --list a session, or a file to print with markers
    #[arg(value_name = "SESSION:PATH", default_value = "@", hide_default_value = true)]
    file: OsString,
    /// The path, where the first argument is only a session
    #[arg(hide = true)]
    path: Option<OsString>,
    /// List the open conflicts; exit code 3 if there are any
    #[arg(long, short, group = "choice")]
    list: bool,
    /// Take the file of the session that stayed open
    #[arg(long, group = "choice")]
    ours: bool,
    /// Take the file of the branch
    #[arg(long, group = "choice")]
    theirs: bool,
    /// Which branch, if several are in conflict
    #[arg(long, value_name = "BRANCH", requires = "theirs")]
    of: Option<String>,
    /// Take the file of the common ancestor
    #[arg(long, group = "choice")]
    base: bool,
    /// Remove the file
    #[arg(long, group = "choice")]
    remove: bool,
    /// Take the file in the workspace
    #[arg(long, alias = "as-it-is", group = "choice")]
    working_copy: bool,
    /// Take the content of this file; `-` reads standard input
    #[arg(long, value_name = "FILE", group = "choice")]
    with: Option<PathBuf>,
}

impl Resolve {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let (session, path) = match self.path {
            Some(path) => (self.file.to_string_lossy().into_owned(), Some(path)),
            None if self.list && !self.file.as_bytes().contains(&b':') => {
                (self.file.to_string_lossy().into_owned(), None)
            }
            None => {
                let FileAddress { of, path } = FileAddress::parse(&self.file);
                (of, Some(OsStr::from_bytes(path.as_bytes()).to_owned()))
            }
        };
        if self.list {
            return list(settings, &session, path.as_deref()).await;
        }
        let Some(path) = path else {
            return Err(expression::usage_error(
                "no file is named\n  help: name it as SESSION:PATH; --list lists the conflicts",
            ));
        };
        let workspaces = settings.workspaces(false)?;
        let id = expression::resolve_session(workspaces.store(), &session).await?;
        let decision = match &self.with {
            Some(file) if file.as_os_str() == "-" => {
                let mut bytes = Vec::new();
                std::io::stdin().lock().read_to_end(&mut bytes).context("reading standard input")?;
                Resolution::Content(bytes)
            }
            Some(file) => Resolution::Content(
                std::fs::read(settings.here.join(file)).with_context(|| format!("reading {}", file.display()))?,
            ),
            None if self.ours => Resolution::Ours,
            None if self.theirs => match &self.of {
                Some(branch) => Resolution::TheirsOf(expression::resolve_session(workspaces.store(), branch).await?),
                None => Resolution::Theirs,
            },
            None if self.base => Resolution::Base,
            None if self.remove => Resolution::Remove,
            None => Resolution::Current,
        };
        let mut session = super::open_session(settings, workspaces.store(), id).await?;
        let record = workspaces.resolve(&mut session, &FilePath::from(path.as_bytes()), decision).await?;
        output::added(settings, record)?;
        let open = session.state().conflicts.len() as u64;
        if open > 0 && !settings.json {
            output::remark(format_args!("{} still open", output::count(open, "conflict")));
        }
        Ok(Answer::Yes)
    }
}

/// Lists the open conflicts of a session, or prints one file with both sides between markers.
pub(crate) async fn list(settings: &Settings, session: &str, path: Option<&OsStr>) -> Result<Answer> {
    let store = settings.store()?;
    let place = expression::resolve(&store, session).await?;
    let view = View::of(&store, place.session, Some(place.seq)).await?;
    let conflicts = &view.state().conflicts;
    if let Some(path) = path {
        let path = FilePath::from(path.as_bytes());
        let Some(conflict) = conflicts.iter().find(|conflict| conflict.path == path) else {
            bail!("there is no open conflict on {path}");
        };
        match marked(&TreeStore::new(&*store), conflict).await? {
            Some(text) => output::raw(&text)?,
            None => bail!("{path}: {}; it cannot be merged by hand: choose a side", conflict.kind),
        }
        return Ok(Answer::No);
    }
    let answer = if conflicts.is_empty() { Answer::Yes } else { Answer::No };
    if settings.json {
        output::json_list("rath.resolve.list/1", conflicts)?;
        return Ok(answer);
    }
    let mut page = Page::default();
    for conflict in conflicts {
        let branch = conflict.branch.map(|branch| format!(" (with {})", branch.short())).unwrap_or_default();
        let path = output::escaped(&conflict.path.to_string());
        page.line(format_args!("{} {}{branch}", style::bad(path), conflict.kind));
    }
    page.show(settings)?;
    if conflicts.is_empty() {
        output::remark("no conflicts");
    } else {
        let session = place.session.short();
        output::remark(format_args!("help: `rath resolve {session}:PATH --ours`, --theirs, --with FILE, …"));
    }
    Ok(answer)
}
