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
    "bad-body",
    "bad-merge",
    "bad-range",
    "body-too-large",
    "head-moved",
    "lease-lost",
    "machine",
    "no-step",
    "not-a-store",
    "not-found",
    "not-in-history",
    "session-closed",
    "session-held",
    "still-open",
    "store-from-the-future",
    "tampered",
    "workflow-failed",
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
