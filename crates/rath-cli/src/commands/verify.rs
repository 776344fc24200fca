use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Answer;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;

/// Check that nothing was altered, dropped, reordered or forged
///
/// Re-derives every hash, link and index column from the stored bytes. Exits with 3 and names the first bad record
/// if anything is wrong. What it cannot find by itself: a store whose newest records were cut off and whose index
/// was changed to match.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Verify {
    /// A session, checked with everything it stands on; without it, the whole store
    session: Option<String>,
    /// Print a verifier in Python that needs nothing else; it reads what `rath log SESSION --raw` prints
    #[arg(long, conflicts_with = "session")]
    script: bool,
}

/// The verifier that an auditor can read in ten minutes.
const SCRIPT: &str = include_str!("../../../../docs/verify.py");

impl Verify {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        if self.script {
            output::answer(SCRIPT.trim_end())?;
            return Ok(Answer::Yes);
        }
        let store = match settings.embedded() {
            Ok(store) => store,
            Err(error) => return unreadable(settings, error),
        };
        let session = match &self.session {
            Some(text) => Some(expression::resolve_session(&settings.store()?, text).await?),
            None => None,
        };
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("verifying {human_pos} of {human_len} records {bar:30}") {
            bar.set_style(style);
        }
        let report = store.verify(session, &mut |done, total| {
            bar.set_length(total.max(done));
            bar.set_position(done);
        })?;
        bar.finish_and_clear();
        if settings.json {
            let mut value = serde_json::to_value(&report)?;
            value["sound"] = report.is_sound().into();
            output::json(&value)?;
        } else {
            let mut page = Page::default();
            for finding in &report.findings {
                page.line(format_args!("{} {finding}", style::bad("✗")));
            }
            let seen = [
                output::count(report.sessions, "session"),
                output::count(report.records, "record"),
                output::count(report.blobs, "blob"),
            ];
            let seen = seen.join(", ");
            let erased = if report.erased > 0 { format!(", {} erased", report.erased) } else { String::new() };
            match report.is_sound() {
                true => page.line(format_args!("{} sound: {seen}{erased}", style::good("✓"))),
                false => {
                    let findings = output::count(report.findings.len() as u64, "finding");
                    page.line(format_args!("{} not sound: {findings} in {seen}{erased}", style::bad("✗")));
                }
            }
            page.show(settings)?;
        }
        Ok(if report.is_sound() { Answer::Yes } else { Answer::No })
    }
}

/// A store that is there and cannot even be opened is not sound.
fn unreadable(settings: &Settings, error: anyhow::Error) -> Result<Answer> {
    use rath::store::{Error, Trouble};
    let damaged = match error.downcast_ref() {
        // Who could not look does not know.
        Some(Error::Machine { trouble, .. }) => {
            !matches!(trouble, Trouble::ReadOnly | Trouble::Full | Trouble::Busy | Trouble::Disk)
        }
        Some(Error::NotAStore(_)) => true,
        _ => false,
    };
    if !damaged || !settings.store_path().is_ok_and(rath::Embedded::exists) {
        return Err(error);
    }
    match settings.json {
        true => {
            let finding =
                serde_json::json!({ "what": "unreadable", "session": null, "seq": null, "why": error.to_string() });
            output::json(&serde_json::json!({ "sound": false, "findings": [finding] }))?;
        }
        false => {
            let mut page = Page::default();
            page.line(format_args!("{} the database cannot be read: {error}", style::bad("✗")));
            page.show(settings)?;
        }
    }
    Ok(Answer::No)
}
