use std::io::IsTerminal as _;

use anyhow::Result;
use rath::files::hunks;
use rath::inspect::{ContextComparison, FileComparison, SessionComparison};
use rath::model::Message;
use rath::{Session, View};

use super::Answer;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;

/// Compare two sessions, records or versions: contexts and files
///
/// With one session, show what it changed in the files that it was given and has not applied yet. Exit code 0 if
/// contexts and files are equal, 3 if they differ.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Diff {
    /// The first session, record or version
    #[arg(default_value = "@")]
    a: String,
    /// The second session, record or version
    b: Option<String>,
    /// Only the files, as a patch for `git apply`
    #[arg(long, short, conflicts_with = "stat")]
    patch: bool,
    /// Only the files, with line counts
    #[arg(long)]
    stat: bool,
}

impl Diff {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let place_a = expression::resolve(&store, &self.a).await;
        let place_b = match &self.b {
            Some(b) => Some(expression::resolve(&store, b).await),
            None => None,
        };
        let views = match (&place_a, &place_b) {
            (Ok(a), Some(Ok(b))) => {
                Some((View::of(&store, a.session, Some(a.seq)).await?, View::of(&store, b.session, Some(b.seq)).await?))
            }
            _ => None,
        };
        let files = match (&views, &self.b) {
            (Some((a, b)), _) => {
                let (a, b) = (a.state().workspace.clone(), b.state().workspace.clone());
                FileComparison::between(&*store, a, b).await?
            }
            // One of them may be the digest of a version, which has files and no context.
            (None, Some(b)) => {
                let a = expression::version(settings, &store, &self.a).await?;
                let b = expression::version(settings, &store, b).await?;
                FileComparison::between(&*store, Some(a), Some(b)).await?
            }
            (None, None) => {
                let at = place_a?;
                let view = View::of(&store, at.session, Some(at.seq)).await?;
                FileComparison::since_placed(&*store, view.state()).await?
            }
        };
        let only_files = self.patch || self.stat || views.is_none();
        let contexts = match views {
            Some((a, b)) if !only_files => Some(ContextComparison::of(&a, &b).await?),
            _ => None,
        };
        let compared = SessionComparison::new(contexts, files);
        let answer = if compared.same { Answer::Yes } else { Answer::No };
        if settings.json {
            output::json("rath.diff/1", &compared)?;
            return Ok(answer);
        }
        let SessionComparison { contexts, files, .. } = compared;
        if self.patch {
            // A terminal must not run escape sequences of a file; a pipe gets the exact bytes.
            if std::io::stdout().is_terminal() {
                let mut page = Page::default();
                write_patch(&files, &mut page);
                page.show(settings)?;
            } else {
                output::raw(&files.patch)?;
            }
            return Ok(answer);
        }
        let mut page = Page::default();
        if let Some(contexts) = &contexts {
            show_contexts(contexts, &mut page);
        }
        show_files(&files, &mut page, self.stat, contexts.is_some());
        page.show(settings)?;
        Ok(answer)
    }
}

/// Shows the changes of a session that are not applied yet.
pub(crate) async fn since_placed(settings: &Settings, session: &Session) -> Result<()> {
    let files = FileComparison::since_placed(&**session.store(), session.state()).await?;
    let mut page = Page::default();
    show_files(&files, &mut page, false, false);
    page.show(settings)
}

/// Writes how the files differ.
fn show_files(files: &FileComparison, page: &mut Page, stat: bool, after_contexts: bool) {
    if files.before.is_none() && files.after.is_none() {
        return;
    }
    if files.changes.is_empty() {
        page.line(format_args!("{} files are equal", style::good("✓")));
        return;
    }
    if after_contexts {
        page.line("");
    }
    if stat {
        write_stat(files, page);
    } else {
        write_patch(files, page);
    }
}

/// Writes the changed files with line counts.
pub(crate) fn show_stat(files: &FileComparison, page: &mut Page) {
    if files.changes.is_empty() {
        page.line("no files changed");
    } else {
        write_stat(files, page);
    }
}

fn write_stat(files: &FileComparison, page: &mut Page) {
    for stat in &files.stat {
        let size = if stat.binary {
            "binary".to_owned()
        } else {
            format!("{} {}", style::good(format!("+{}", stat.added)), style::bad(format!("-{}", stat.removed)))
        };
        let path = output::escaped(&stat.path.to_string());
        page.line(format_args!("{} {path} {size}", style::label(stat.letter)));
    }
    let (added, removed) =
        files.stat.iter().fold((0, 0), |(added, removed), stat| (added + stat.added, removed + stat.removed));
    let (paths, lines) = (output::count(files.stat.len() as u64, "path"), output::count(added, "line"));
    page.line(style::dim(format!("{paths}, {lines} added, {removed} removed")));
}

/// Writes the patch, coloured and escaped for a terminal.
fn write_patch(files: &FileComparison, page: &mut Page) {
    for line in String::from_utf8_lossy(&files.patch).lines() {
        let line = output::escaped(line);
        match line.as_bytes().first() {
            _ if line.starts_with("diff ") || line.starts_with("+++") || line.starts_with("---") => {
                page.line(style::title(line));
            }
            Some(b'+') => page.line(style::good(line)),
            Some(b'-') => page.line(style::bad(line)),
            Some(b'@') => page.line(style::record(line)),
            _ => page.line(line),
        }
    }
}

/// Writes how the contexts differ.
fn show_contexts(contexts: &ContextComparison, page: &mut Page) {
    let (name_a, name_b) = (contexts.a.point(), contexts.b.point());
    let (shown_a, shown_b) = (style::session(name_a), style::session(name_b));
    match contexts.base {
        Some(base) => page.line(format_args!("common ancestor of {shown_a} and {shown_b}: {}", style::record(base))),
        None => page.line(format_args!("{shown_a} and {shown_b} have no common ancestor")),
    }
    for (name, runs) in [(name_a, &contexts.only_a), (name_b, &contexts.only_b)] {
        for run in runs {
            let (noun, to) = match run.to > run.from {
                true => ("records", format!("..{}", run.to)),
                false => ("record", String::new()),
            };
            page.line(style::dim(format!("only in {name}: {noun} {}@{}{to}", run.session.short(), run.from)));
        }
    }
    if contexts.are_same() {
        page.line(format_args!("{} contexts are equal", style::good("✓")));
        return;
    }
    page.line("");
    let (left, right) = (lines(&contexts.context_a), lines(&contexts.context_b));
    let mut same = 0;
    for hunk in hunks(&as_bytes(&left), &as_bytes(&right)) {
        left[same..hunk.old.start].iter().for_each(|line| page.line(format_args!(" {line}")));
        left[hunk.old.clone()].iter().for_each(|line| page.line(style::bad(format!("-{line}"))));
        right[hunk.new].iter().for_each(|line| page.line(style::good(format!("+{line}"))));
        same = hunk.old.end;
    }
    left[same..].iter().for_each(|line| page.line(format_args!(" {line}")));
}

/// The lines of a context.
fn lines(messages: &[Message]) -> Vec<String> {
    let text = |message: &Message| output::escaped(&message.to_string());
    messages.iter().flat_map(|message| text(message).lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

fn as_bytes(lines: &[String]) -> Vec<&[u8]> {
    lines.iter().map(String::as_bytes).collect()
}
