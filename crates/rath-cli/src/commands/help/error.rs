//! The pages about error codes.

use std::collections::BTreeSet;

use anyhow::Result;
use serde::Serialize;

use super::show;
use crate::commands::Answer;
use crate::expression;
use crate::output;
use crate::settings::Settings;

/// Explain an error code: what it means and what to do
#[derive(clap::Args)]
pub(crate) struct Explain {
    /// The code; without it, all codes are listed
    code: Option<String>,
}

macro_rules! pages {
    ($($code:literal),* $(,)?) => {
        &[$(($code, include_str!(concat!("../../../../../docs/errors/", $code, ".md")))),*]
    };
}

/// Code and text of every page in docs/errors.
const PAGES: &[(&str, &str)] = pages![
    "backend-incapable",
    "bad-body",
    "bad-merge",
    "bad-output",
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
    "cut-off",
    "detach-in-run",
    "directory-not-empty",
    "disk-failed",
    "disk-full",
    "diverged",
    "erased",
    "erasure-unfinished",
    "head-moved",
    "import-differs",
    "in-the-way",
    "layered",
    "lease-lost",
    "machine",
    "merge-conflict",
    "model-failed",
    "no-branch-accepted",
    "no-conflict",
    "no-directory",
    "no-isolation",
    "no-majority",
    "no-step",
    "not-a-store",
    "not-found",
    "not-in-history",
    "not-placed",
    "nothing-failed",
    "nothing-to-apply",
    "nothing-to-undo",
    "open-conflicts",
    "operator-session",
    "outside-changes",
    "over-budget",
    "protected-directory",
    "read-only-store",
    "refused",
    "rejected",
    "rounds-used-up",
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
    "timed-out",
    "too-few-succeeded",
    "unknown-backend",
    "unreadable-import",
    "unsaved-changes",
    "waiting",
    "workflow-failed",
    "workflow-panicked",
    "workspace-busy",
];

/// The codes that have a page.
pub(crate) fn explained_codes() -> BTreeSet<&'static str> {
    PAGES.iter().map(|(code, _)| *code).collect()
}

impl Explain {
    pub(crate) fn run(self, settings: &Settings) -> Result<Answer> {
        match self.code {
            Some(code) => explain(settings, &code),
            None => list(settings),
        }
    }
}

/// An item of the JSON list of error codes.
#[derive(Serialize)]
struct ListedCode {
    code: &'static str,
    summary: &'static str,
}

/// Lists the codes with a sentence each.
pub(super) fn list(settings: &Settings) -> Result<Answer> {
    let codes = PAGES.iter().map(|(code, page)| ListedCode { code, summary: first_sentence(page) });
    if settings.json {
        output::json_list("rath.help.errors/1", codes)?;
        return Ok(Answer::Yes);
    }
    for ListedCode { code, summary } in codes {
        output::answer(format_args!("{code:<24} {summary}"))?;
    }
    Ok(Answer::Yes)
}

/// Shows the page of a code.
pub(super) fn explain(settings: &Settings, code: &str) -> Result<Answer> {
    match PAGES.iter().find(|(known, _)| *known == code) {
        Some((code, text)) => show(settings, code, text),
        None => Err(expression::usage_error(format!(
            "there is no error code {code:?}\n  help: `rath help error` lists them"
        ))),
    }
}

fn first_sentence(page: &'static str) -> &'static str {
    page.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default()
}
