use anyhow::Result;

use super::Answer;
use crate::expression;
use crate::output::{self, Page};
use crate::settings::Settings;

/// Say what an error means and what to do
#[derive(clap::Args)]
pub(crate) struct Explain {
    /// The error's code; without it, all codes are listed
    code: Option<String>,
}

macro_rules! pages {
    ($($code:literal),* $(,)?) => {
        &[$(($code, include_str!(concat!("../../../../docs/errors/", $code, ".md")))),*]
    };
}

/// Code and text of every page in docs/errors.
pub(crate) const PAGES: &[(&str, &str)] = pages![
    "backend-incapable",
    "bad-body",
    "bad-merge",
    "bad-path",
    "bad-range",
    "bad-rule",
    "body-too-large",
    "broken-bundle",
    "broken-journal",
    "budget-spent",
    "bundle-diverged",
    "bundle-exists",
    "cancelled",
    "cannot-start",
    "changed-meanwhile",
    "directory-not-empty",
    "disk-failed",
    "disk-full",
    "detach-in-run",
    "diverged",
    "erased",
    "erasure-unfinished",
    "head-moved",
    "import-differs",
    "in-the-way",
    "layered",
    "lease-lost",
    "machine",
    "model-failed",
    "no-conflict",
    "no-directory",
    "no-isolation",
    "no-step",
    "not-a-store",
    "not-found",
    "not-in-history",
    "not-placed",
    "nothing-to-apply",
    "nothing-to-undo",
    "open-conflicts",
    "operator-session",
    "outside-changes",
    "over-budget",
    "protected-directory",
    "read-only-store",
    "run-taken",
    "sandbox-closed",
    "sandbox-lost",
    "session-closed",
    "session-held",
    "setup-failed",
    "several-sides",
    "step-ended",
    "still-open",
    "store-busy",
    "store-damaged",
    "store-from-the-future",
    "tampered",
    "unknown-backend",
    "unreadable-import",
    "unsaved-changes",
    "waiting",
    "workflow-failed",
    "workspace-busy",
];

impl Explain {
    pub(crate) fn run(self, settings: &Settings) -> Result<Answer> {
        let Some(code) = self.code else {
            if settings.json {
                output::json(&PAGES.iter().map(|(code, _)| code).collect::<Vec<_>>())?;
                return Ok(Answer::Yes);
            }
            for (code, page) in PAGES {
                output::answer(format_args!("{code:<24} {}", first_sentence(page)))?;
            }
            return Ok(Answer::Yes);
        };
        let Some((_, text)) = PAGES.iter().find(|(known, _)| *known == code) else {
            return Err(expression::unclear(format!(
                "there is no error {code:?}\n  help: `rath explain` lists them all"
            )));
        };
        let mut page = Page::default();
        page.text(text);
        page.show(settings)?;
        Ok(Answer::Yes)
    }
}

fn first_sentence(page: &str) -> &str {
    page.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default()
}
