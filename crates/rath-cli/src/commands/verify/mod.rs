//! `rath verify`: checks the hash chain and everything that is derived from it.

mod evidence;

use std::path::PathBuf;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rath_audit::admin::StoreAdmin;
use rath_audit::bundle::PartialImport;
use rath_audit::checkpoint::PublicKey;

use self::evidence::Evidence;
use super::Answer;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;

/// Check that no record was altered, dropped, reordered or forged
///
/// Recomputes every hash, link and index column from the stored bytes. Exit code 3 if anything is wrong.
///
/// By itself it cannot detect a store whose newest records were cut off, or that was rewritten as a whole. `--since`
/// detects both, up to a checkpoint (`rath checkpoint`). The signing key is on this machine, so only a checkpoint that was
/// copied to another machine, or a public key that is pinned elsewhere, protects against someone who controls it.
#[derive(clap::Args)]
#[command(after_help = expression::HELP, group(clap::ArgGroup::new("evidence").args(["since", "against"]).multiple(true)))]
pub(crate) struct Verify {
    /// Check this session and everything that it is based on [default: the whole store]
    session: Option<String>,
    /// Print a standalone verifier in Python; it reads the output of `rath log SESSION --raw`
    #[arg(long, conflicts_with = "session")]
    script: bool,
    /// Also compare the store with a checkpoint and all later ones: a line, a file of lines, or the number or digest of a
    /// stored one [default value: the last one]
    #[arg(long, value_name = "CHECKPOINT", num_args = 0..=1, default_missing_value = "last", conflicts_with_all = ["session", "script"])]
    since: Option<String>,
    /// Also compare the store with another copy of it, or with checkpoints of that copy: a file of lines, or a line
    #[arg(long, value_name = "COPY", conflicts_with_all = ["session", "script"])]
    against: Option<PathBuf>,
    /// The public key that must have signed the checkpoints [default: checkpoint.key of the configuration, then yours]
    #[arg(long, value_name = "HEX", requires = "evidence")]
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
        let evidence = Evidence { since: self.since, against: self.against, key: self.key };
        let held = if evidence.is_none() { None } else { Some(evidence.check(settings).await?) };
        report.findings.extend(held.iter().flat_map(|held| held.findings.clone()));
        let admin = StoreAdmin::new(settings.embedded()?, settings.actor());
        let left_out = admin.explain(&mut report).await;
        let erasing = match admin.unfinished().await {
            Ok(erasing) if erasing.is_empty() => None,
            Ok(erasing) => Some(super::store::unfinished(erasing.len() as u64)),
            Err(error) => Some(error.to_string()),
        };
        let cut_short = PartialImport::of(&settings.store()?).await.unwrap_or_default();
        if settings.json {
            let mut value = serde_json::to_value(&report)?;
            if let Some(held) = &held {
                value["held_against"] = serde_json::to_value(held)?;
            }
            value["sound"] = report.is_valid().into();
            value["left_out_blobs"] = left_out.into();
            value["unfinished_erasure"] = erasing.into();
            value["unfinished_imports"] = serde_json::to_value(&cut_short)?;
            output::json("rath.verify/1", &value)?;
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
            match report.is_valid() {
                true => page.line(format_args!("{} valid: {seen}{erased}", style::good("✓"))),
                false => {
                    let findings = output::count(report.findings.len() as u64, "finding");
                    page.line(format_args!("{} not valid: {findings} in {seen}{erased}", style::bad("✗")));
                }
            }
            let (fits, remarks) = held.map(|held| (held.fits, held.remarks)).unwrap_or_default();
            fits.iter().for_each(|fits| page.line(format_args!("{} {fits}", style::good("✓"))));
            page.show(settings)?;
            remarks.iter().for_each(|remark| output::remark(format_args!("{} {remark}", style::label("!"))));
            if let Some(erasing) = erasing {
                output::remark(format_args!("{} {}", style::label("!"), output::escaped(&erasing)));
            }
            for line in cut_short.iter().map(super::import::cut_short) {
                output::remark(format_args!("{} {line}", style::label("!")));
            }
            if left_out > 0 {
                let (blobs, it) = (output::count(left_out, "blob"), if left_out == 1 { "it" } else { "them" });
                output::remark(format_args!("{blobs} not in this store, because a bundle was made without {it}"));
            }
        }
        Ok(if report.is_valid() { Answer::Yes } else { Answer::No })
    }
}

/// Reports a store that exists and cannot be opened as not valid.
fn unreadable(settings: &Settings, error: anyhow::Error) -> Result<Answer> {
    use rath::store::{Error, IoErrorKind};
    let damaged = match error.downcast_ref() {
        // These errors say nothing about the content of the database.
        Some(Error::Machine { kind, .. }) => {
            !matches!(kind, IoErrorKind::ReadOnly | IoErrorKind::Full | IoErrorKind::Busy | IoErrorKind::Disk)
        }
        Some(Error::NotAStore(_)) => true,
        _ => false,
    };
    if !damaged || !settings.store_path().is_ok_and(rath::Embedded::exists) {
        return Err(error);
    }
    if settings.json {
        let finding =
            serde_json::json!({ "what": "unreadable", "session": null, "seq": null, "why": error.to_string() });
        output::json("rath.verify/1", &serde_json::json!({ "sound": false, "findings": [finding] }))?;
    } else {
        let mut page = Page::default();
        page.line(format_args!("{} the database cannot be read: {error}", style::bad("✗")));
        page.show(settings)?;
    }
    Ok(Answer::No)
}
