mod witness;

use std::path::PathBuf;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rath_audit::bundle::CutShort;
use rath_audit::care::Care;
use rath_audit::checkpoint::PublicKey;

use self::witness::Witness;
use super::Answer;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;

/// Check that nothing was altered, dropped, reordered or forged
///
/// Re-derives every hash, link and index column from the stored bytes. Exits with 3 and names the first bad record
/// if anything is wrong. What it cannot find by itself: a store whose newest records were cut off, or that was written
/// anew as a whole. `--since` finds both, behind a checkpoint (`rath checkpoint`): whoever has this machine has its
/// signing key too, so only a line that left the machine, or a key that is pinned elsewhere, protects against them.
#[derive(clap::Args)]
#[command(after_help = expression::HELP, group(clap::ArgGroup::new("witness").args(["since", "against"]).multiple(true)))]
pub(crate) struct Verify {
    /// A session, checked with everything it stands on; without it, the whole store
    session: Option<String>,
    /// Print a verifier in Python that needs nothing else; it reads what `rath log SESSION --raw` prints
    #[arg(long, conflicts_with = "session")]
    script: bool,
    /// Hold the store also against a checkpoint and all after it: a line, a file of lines, the number or digest of one in
    /// the store; without a value, the last one
    #[arg(long, value_name = "CHECKPOINT", num_args = 0..=1, default_missing_value = "last", conflicts_with_all = ["session", "script"])]
    since: Option<String>,
    /// Hold it also against another copy of the store, or against checkpoints from one: a file of lines, or a line
    #[arg(long, value_name = "COPY", conflicts_with_all = ["session", "script"])]
    against: Option<PathBuf>,
    /// The public key that must be behind the checkpoints; else `checkpoint.key` of your configuration, else your own
    #[arg(long, value_name = "HEX", requires = "witness")]
    key: Option<PublicKey>,
}

impl Verify {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        if self.script {
            output::answer(rath_audit::bundle::VERIFY_PY.trim_end())?;
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
        let mut report = store.verify(session, &mut |done, total| {
            bar.set_length(total.max(done));
            bar.set_position(done);
        })?;
        bar.finish_and_clear();
        let witness = Witness { since: self.since, against: self.against, key: self.key };
        let held = match witness.is_none() {
            true => None,
            false => Some(witness.look(settings).await?),
        };
        report.findings.extend(held.iter().flat_map(|held| held.findings.clone()));
        let care = Care::new(settings.embedded()?, settings.actor());
        let left_out = care.explain(&mut report).await;
        let erasing = match care.unfinished().await {
            Ok(erasing) if erasing.is_empty() => None,
            Ok(erasing) => Some(super::erase::unfinished(erasing.len() as u64)),
            Err(error) => Some(error.to_string()),
        };
        let cut_short = CutShort::of(&settings.store()?).await.unwrap_or_default();
        if settings.json {
            let mut value = serde_json::to_value(&report)?;
            if let Some(held) = &held {
                value["held_against"] = serde_json::to_value(held)?;
            }
            value["sound"] = report.is_sound().into();
            value["left_out_blobs"] = left_out.into();
            value["unfinished_erasure"] = erasing.into();
            value["unfinished_imports"] = serde_json::to_value(&cut_short)?;
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
            let (fits, remarks) = held.map(|held| (held.fits, held.remarks)).unwrap_or_default();
            fits.iter().for_each(|fits| page.line(format_args!("{} {fits}", style::good("✓"))));
            page.show(settings)?;
            remarks.iter().for_each(|remark| output::remark(format_args!("{} {remark}", style::label("!"))));
            if let Some(erasing) = erasing {
                output::remark(format_args!("{} {}", style::label("!"), output::harmless(&erasing)));
            }
            for line in cut_short.iter().map(super::import::cut_short) {
                output::remark(format_args!("{} {line}", style::label("!")));
            }
            if left_out > 0 {
                let (blobs, it) = (output::count(left_out, "blob"), if left_out == 1 { "it" } else { "them" });
                output::remark(format_args!("{blobs} not here, because a bundle came without {it}"));
            }
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
