use anyhow::Result;
use rath::View;
use serde_json::json;
use similar::{ChangeTag, TextDiff};

use super::Answer;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;

/// Compare two sessions or records: where they part, what only one has, how their contexts differ
///
/// Exits with 0 if the contexts are equal, with 3 if they differ.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Diff {
    /// The one
    a: String,
    /// The other
    b: String,
}

impl Diff {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let (a, b) = (expression::resolve(&store, &self.a).await?, expression::resolve(&store, &self.b).await?);
        let a = View::of(&store, a.session, Some(a.seq)).await?;
        let b = View::of(&store, b.session, Some(b.seq)).await?;
        let (only_b, only_a) = (a.divergence(&b).await?, b.divergence(&a).await?);
        let (left, right) = (lines(&a).await?, lines(&b).await?);
        let same = left == right;
        let answer = if same { Answer::Yes } else { Answer::No };
        if settings.json {
            output::json(&json!({
                "a": a.reference(), "b": b.reference(), "same": same, "base": only_b.base,
                "only_a": only_a.brought, "only_b": only_b.brought,
                "context_a": a.context().await?, "context_b": b.context().await?,
            }))?;
            return Ok(answer);
        }
        let mut page = Page::default();
        let (name_a, name_b) = (a.reference().point(), b.reference().point());
        match only_b.base {
            Some(base) => page.line(format_args!(
                "{} and {} part at {}",
                style::session(name_a),
                style::session(name_b),
                style::record(base)
            )),
            None => page.line(format_args!(
                "{} and {} have nothing in common",
                style::session(name_a),
                style::session(name_b)
            )),
        }
        for (name, runs) in [(name_a, only_a.brought), (name_b, only_b.brought)] {
            for run in runs {
                page.line(style::dim(format!("only {name}: {} @{} to @{}", run.session.short(), run.from, run.to)));
            }
        }
        if same {
            page.line(format_args!("{} their contexts are equal", style::good("✓")));
        } else {
            page.line("");
            let (left, right): (Vec<&str>, Vec<&str>) =
                (left.iter().map(String::as_str).collect(), right.iter().map(String::as_str).collect());
            for change in TextDiff::from_slices(&left, &right).iter_all_changes() {
                match change.tag() {
                    ChangeTag::Equal => page.line(format_args!(" {}", change.value())),
                    ChangeTag::Delete => page.line(style::bad(format!("-{}", change.value()))),
                    ChangeTag::Insert => page.line(style::good(format!("+{}", change.value()))),
                }
            }
        }
        page.show(settings)?;
        Ok(answer)
    }
}

/// A context, line by line.
async fn lines(view: &View) -> Result<Vec<String>> {
    let messages = view.context().await?;
    let text = |message: &rath::Message| output::harmless(&message.to_string());
    Ok(messages.iter().flat_map(|message| text(message).lines().map(str::to_owned).collect::<Vec<_>>()).collect())
}
