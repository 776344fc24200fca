use anyhow::Result;
use rath::files::{Change, Forest, Patch, Version, diff, hunks, patch};
use rath::{Session, State, Store, View};
use serde_json::json;

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
        let versions = match (&views, &self.b) {
            (Some((a, b)), _) => (a.state().workspace.clone(), b.state().workspace.clone()),
            // One of them may be the digest of a version: then only files can be compared.
            (None, Some(b)) => (
                Some(expression::version(settings, &store, &self.a).await?),
                Some(expression::version(settings, &store, b).await?),
            ),
            (None, None) => {
                let at = place_a?;
                own_versions(View::of(&store, at.session, Some(at.seq)).await?.state())
            }
        };
        let files = Files::between(&*store, versions).await?;
        let only_files = self.patch || self.stat || views.is_none();
        let contexts = match views {
            Some((a, b)) if !only_files => Some(Contexts::of(a, b).await?),
            _ => None,
        };
        let same = files.changes.is_empty() && contexts.as_ref().is_none_or(Contexts::are_same);
        let answer = if same { Answer::Yes } else { Answer::No };
        if settings.json {
            let mut value = match &contexts {
                Some(contexts) => contexts.json().await?,
                None => json!({}),
            };
            value["same"] = same.into();
            value["files"] = json!({
                "before": files.versions.0, "after": files.versions.1, "changes": files.changes,
                "stat": files.patch.stat.iter().map(|stat| json!({
                    "path": stat.path, "letter": stat.letter, "added": stat.added, "removed": stat.removed, "binary": stat.binary,
                })).collect::<Vec<_>>(),
            });
            output::json(&value)?;
            return Ok(answer);
        }
        if self.patch {
            output::raw(&files.patch.text)?;
            return Ok(answer);
        }
        let mut page = Page::default();
        if let Some(contexts) = &contexts {
            contexts.show(&mut page);
        }
        files.show(&mut page, self.stat, contexts.is_some());
        page.show(settings)?;
        Ok(answer)
    }
}

/// The files that a session was given, and those it has.
fn own_versions(state: &State) -> (Option<Version>, Option<Version>) {
    (state.placement.as_ref().and_then(|place| place.base.clone()), state.workspace.clone())
}

/// Shows what a session changed in the files that it was given.
pub(crate) async fn since_placed(settings: &Settings, session: &Session) -> Result<()> {
    let files = Files::between(&**session.store(), own_versions(session.state())).await?;
    let mut page = Page::default();
    files.show(&mut page, false, false);
    page.show(settings)
}

/// How the files differ.
struct Files {
    versions: (Option<Version>, Option<Version>),
    changes: Vec<Change>,
    patch: Patch,
}

impl Files {
    async fn between(store: &dyn Store, versions: (Option<Version>, Option<Version>)) -> Result<Self> {
        let forest = Forest::new(store);
        let changes = match &versions {
            (Some(a), Some(b)) => diff(&forest, a, b).await?,
            (None, None) => Vec::new(),
            // One side has no files at all: everything is new, or gone.
            (None, Some(all)) => {
                let added = |(path, node)| Change { path, before: None, after: Some(node) };
                forest.list(all).await?.into_iter().map(added).collect()
            }
            (Some(all), None) => {
                let gone = |(path, node)| Change { path, before: Some(node), after: None };
                forest.list(all).await?.into_iter().map(gone).collect()
            }
        };
        let patch = patch(&forest, &changes).await?;
        Ok(Self { versions, changes, patch })
    }

    fn show(&self, page: &mut Page, stat: bool, after_contexts: bool) {
        if self.versions.0.is_none() && self.versions.1.is_none() {
            return;
        }
        if self.changes.is_empty() {
            page.line(format_args!("{} their files are equal", style::good("✓")));
            return;
        }
        if after_contexts {
            page.line("");
        }
        if stat {
            for stat in &self.patch.stat {
                let size = match stat.binary {
                    true => "binary".to_owned(),
                    false => format!(
                        "{} {}",
                        style::good(format!("+{}", stat.added)),
                        style::bad(format!("-{}", stat.removed))
                    ),
                };
                page.line(format_args!("{} {} {size}", style::label(stat.letter), stat.path));
            }
            let (added, removed) = self
                .patch
                .stat
                .iter()
                .fold((0, 0), |(added, removed), stat| (added + stat.added, removed + stat.removed));
            let paths = output::count(self.patch.stat.len() as u64, "path");
            page.line(style::dim(format!("{paths}, {added} lines added, {removed} removed")));
            return;
        }
        for line in String::from_utf8_lossy(&self.patch.text).lines() {
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
}

/// How the contexts differ.
struct Contexts {
    a: View,
    b: View,
    only_a: rath::Divergence,
    only_b: rath::Divergence,
    left: Vec<String>,
    right: Vec<String>,
}

impl Contexts {
    async fn of(a: View, b: View) -> Result<Self> {
        let (only_b, only_a) = (a.divergence(&b).await?, b.divergence(&a).await?);
        let (left, right) = (lines(&a).await?, lines(&b).await?);
        Ok(Self { a, b, only_a, only_b, left, right })
    }

    fn are_same(&self) -> bool {
        self.left == self.right
    }

    async fn json(&self) -> Result<serde_json::Value> {
        Ok(json!({
            "a": self.a.reference(), "b": self.b.reference(), "base": self.only_b.base,
            "only_a": self.only_a.brought, "only_b": self.only_b.brought,
            "context_a": self.a.context().await?, "context_b": self.b.context().await?,
        }))
    }

    fn show(&self, page: &mut Page) {
        let (name_a, name_b) = (self.a.reference().point(), self.b.reference().point());
        let (shown_a, shown_b) = (style::session(name_a), style::session(name_b));
        match self.only_b.base {
            Some(base) => page.line(format_args!("{shown_a} and {shown_b} part at {}", style::record(base))),
            None => page.line(format_args!("{shown_a} and {shown_b} have nothing in common")),
        }
        for (name, runs) in [(name_a, &self.only_a.brought), (name_b, &self.only_b.brought)] {
            for run in runs {
                page.line(style::dim(format!("only {name}: {} @{} to @{}", run.session.short(), run.from, run.to)));
            }
        }
        if self.are_same() {
            page.line(format_args!("{} their contexts are equal", style::good("✓")));
            return;
        }
        page.line("");
        let (left, right): (Vec<&[u8]>, Vec<&[u8]>) =
            (self.left.iter().map(String::as_bytes).collect(), self.right.iter().map(String::as_bytes).collect());
        let mut same = 0;
        for hunk in hunks(&left, &right) {
            self.left[same..hunk.old.start].iter().for_each(|line| page.line(format_args!(" {line}")));
            self.left[hunk.old.clone()].iter().for_each(|line| page.line(style::bad(format!("-{line}"))));
            self.right[hunk.new].iter().for_each(|line| page.line(style::good(format!("+{line}"))));
            same = hunk.old.end;
        }
        self.left[same..].iter().for_each(|line| page.line(format_args!(" {line}")));
    }
}

/// A context, line by line.
async fn lines(view: &View) -> Result<Vec<String>> {
    let messages = view.context().await?;
    let text = |message: &rath::Message| output::harmless(&message.to_string());
    Ok(messages.iter().flat_map(|message| text(message).lines().map(str::to_owned).collect::<Vec<_>>()).collect())
}
