use anyhow::Result;
use rath::files::hunks;
use rath::inspect::{Comparison, ContextComparison, FileComparison};
use rath::{Message, Session, View};

use super::Answer;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;

/// Compare two sessions, records or versions: where they part, how their contexts and their files differ
///
/// With one, what it changed in the files that it was given. Exits with 0 if contexts and files are equal, with 3 if they
/// differ.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Diff {
    /// The one
    a: String,
    /// The other
    b: Option<String>,
    /// Only the files, as a patch that `git apply` takes
    #[arg(long, short, conflicts_with = "stat")]
    patch: bool,
    /// Only the files, a line each
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
            // One of them may be the digest of a version: then only files can be compared.
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
        let compared = Comparison::new(contexts, files);
        let answer = if compared.same { Answer::Yes } else { Answer::No };
        if settings.json {
            output::json(&compared)?;
            return Ok(answer);
        }
        let Comparison { contexts, files, .. } = compared;
        if self.patch {
            output::raw(&files.patch)?;
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

/// Shows what a session changed in the files that it was given.
pub(crate) async fn since_placed(settings: &Settings, session: &Session) -> Result<()> {
    let files = FileComparison::since_placed(&**session.store(), session.state()).await?;
    let mut page = Page::default();
    show_files(&files, &mut page, false, false);
    page.show(settings)
}

/// How the files differ.
fn show_files(files: &FileComparison, page: &mut Page, stat: bool, after_contexts: bool) {
    if files.before.is_none() && files.after.is_none() {
        return;
    }
    if files.changes.is_empty() {
        page.line(format_args!("{} their files are equal", style::good("✓")));
        return;
    }
    if after_contexts {
        page.line("");
    }
    if stat {
        for stat in &files.stat {
            let size = match stat.binary {
                true => "binary".to_owned(),
                false => {
                    format!("{} {}", style::good(format!("+{}", stat.added)), style::bad(format!("-{}", stat.removed)))
                }
            };
            page.line(format_args!("{} {} {size}", style::label(stat.letter), stat.path));
        }
        let (added, removed) =
            files.stat.iter().fold((0, 0), |(added, removed), stat| (added + stat.added, removed + stat.removed));
        let paths = output::count(files.stat.len() as u64, "path");
        page.line(style::dim(format!("{paths}, {added} lines added, {removed} removed")));
        return;
    }
    for line in String::from_utf8_lossy(&files.patch).lines() {
        let line = output::harmless(line);
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

/// How the contexts differ.
fn show_contexts(contexts: &ContextComparison, page: &mut Page) {
    let (name_a, name_b) = (contexts.a.point(), contexts.b.point());
    let (shown_a, shown_b) = (style::session(name_a), style::session(name_b));
    match contexts.base {
        Some(base) => page.line(format_args!("{shown_a} and {shown_b} part at {}", style::record(base))),
        None => page.line(format_args!("{shown_a} and {shown_b} have nothing in common")),
    }
    for (name, runs) in [(name_a, &contexts.only_a), (name_b, &contexts.only_b)] {
        for run in runs {
            page.line(style::dim(format!("only {name}: {} @{} to @{}", run.session.short(), run.from, run.to)));
        }
    }
    if contexts.are_same() {
        page.line(format_args!("{} their contexts are equal", style::good("✓")));
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

/// A context, line by line.
fn lines(messages: &[Message]) -> Vec<String> {
    let text = |message: &Message| output::harmless(&message.to_string());
    messages.iter().flat_map(|message| text(message).lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

fn as_bytes(lines: &[String]) -> Vec<&[u8]> {
    lines.iter().map(String::as_bytes).collect()
}
