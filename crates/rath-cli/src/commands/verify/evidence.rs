//! What a store is compared with: its checkpoints, checkpoint lines from elsewhere, and other copies of the store.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rath::Embedded;
use rath::verify::{Finding, FindingKind};
use rath_audit::admin::StoreAdmin;
use rath_audit::checkpoint::{self, Checkpoint, PublicKey};
use serde::Serialize;

use crate::expression;
use crate::output::count;
use crate::settings::{STORE_DIR, Settings};
use crate::{signing, time};

/// The size limit of a file of checkpoint lines.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// What to compare the store with.
pub(super) struct Evidence {
    /// A checkpoint: `last`, a number, a digest, a line or a file.
    pub(super) since: Option<String>,
    /// Another copy, or a file of lines.
    pub(super) against: Option<PathBuf>,
    /// The public key that the user trusts.
    pub(super) key: Option<PublicKey>,
}

/// The result of the comparison.
#[derive(Default, Serialize)]
pub(super) struct EvidenceReport {
    #[serde(skip)]
    pub(super) findings: Vec<Finding>,
    /// What agrees, in words.
    pub(super) fits: Vec<String>,
    /// Remarks that are not findings.
    pub(super) remarks: Vec<String>,
}

impl Evidence {
    pub(super) fn is_none(&self) -> bool {
        self.since.is_none() && self.against.is_none()
    }

    /// Compares the store with it.
    pub(super) async fn check(&self, settings: &Settings) -> Result<EvidenceReport> {
        let mut report = EvidenceReport::default();
        let mut lines = Vec::new();
        if let Some(other) = &self.against {
            let inside = other.join(STORE_DIR);
            let line = other.to_str().filter(|text| is_line(text) && !other.exists());
            match other {
                _ if let Some(line) = line => lines.extend(parse(line, "the line", &mut report)?),
                _ if Embedded::exists(other) => compare(settings, other, &mut report).await?,
                _ if Embedded::exists(&inside) => compare(settings, &inside, &mut report).await?,
                _ if other.is_dir() => {
                    let text = format!(
                        "there is no store in {}: neither a database nor a directory {STORE_DIR} with one",
                        other.display()
                    );
                    return Err(expression::usage_error(text));
                }
                _ => lines.extend(read_file(other, &mut report)?),
            }
        }
        let mut from = u64::MAX;
        match self.since.as_deref() {
            None => {}
            Some(text) if is_line(text) => lines.extend(parse(text, "the line", &mut report)?),
            Some("-") => lines.extend(read_lines(std::io::stdin().lock(), "standard input", &mut report)?),
            Some(text) => from = self.stored(settings, text, &mut lines, &mut report).await?,
        }
        // With a copy and a key, the checkpoints must still be signed with that key.
        if self.since.is_some() || !lines.is_empty() || self.key.is_some() {
            self.audit(settings, &lines, from, &mut report).await?;
        }
        if !report.findings.is_empty() {
            let help = "keep the store as it is; `rath verify --against COPY` compares it with a backup and shows where they differ";
            report.remarks.push(format!("the store contradicts what it is compared with\n  help: {help}"));
        }
        Ok(report)
    }

    /// The number of the stored checkpoint that `text` names. If `text` names a file, adds the file's lines to `lines`.
    async fn stored(
        &self,
        settings: &Settings,
        text: &str,
        lines: &mut Vec<Checkpoint>,
        report: &mut EvidenceReport,
    ) -> Result<u64> {
        let stored = checkpoint::chain(&settings.store()?).await?.stored;
        let number = |no: u64| stored.iter().find(|it| it.checkpoint.no == no).map(|it| it.checkpoint.no);
        let is_hex = text.len() >= 4 && text.len() <= 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let found = match text.parse::<u64>() {
            Ok(0) => {
                let text = "there is no checkpoint 0: numbers start at 1\n  help: `rath checkpoint list` shows them";
                return Err(expression::usage_error(text));
            }
            _ if text == "last" => stored.last().map(|it| it.checkpoint.no),
            Ok(no) if number(no).is_some() || !is_hex => number(no),
            _ if is_hex && !Path::new(text).exists() => {
                let named = |it: &&checkpoint::StoredCheckpoint| it.checkpoint.digest().to_string().starts_with(text);
                stored.iter().find(named).map(|it| it.checkpoint.no)
            }
            _ => {
                lines.extend(read_file(Path::new(text), report)?);
                return Ok(u64::MAX);
            }
        };
        if found.is_none() {
            let why = match (text, stored.last()) {
                ("last", _) => {
                    "the store has no checkpoint to compare with: it never had one, or its end was cut off".into()
                }
                (_, None) => format!("checkpoint {text} is not in this store, which has none"),
                (_, Some(last)) => format!(
                    "checkpoint {text} is not in this store, whose last is {}: its end was cut off, or this is an older copy",
                    last.checkpoint.no
                ),
            };
            report.findings.push(Finding { what: FindingKind::CutOff, session: None, seq: None, why });
        }
        Ok(found.unwrap_or(1))
    }

    async fn audit(
        &self,
        settings: &Settings,
        lines: &[Checkpoint],
        from: u64,
        report: &mut EvidenceReport,
    ) -> Result<()> {
        let trusted = self.trusted(settings, report)?;
        let audit = checkpoint::audit(&settings.store()?, lines, from, &trusted).await?;
        if let (Some(since), true) = (&audit.since, audit.findings.is_empty() && report.findings.is_empty()) {
            report.fits.push(format!(
                "everything that checkpoint {} ({}) covers is present: {} in {}; the chain has {}",
                since.no,
                time::local(since.time),
                count(since.records, "record"),
                count(since.sessions, "session"),
                count(audit.stored, "checkpoint")
            ));
        }
        if let (Some(key), 0, true) = (self.key, audit.stored, lines.is_empty() && self.since.is_none()) {
            let why = format!("key {key} signed no checkpoint: the store has none");
            report.findings.push(Finding { what: FindingKind::Checkpoint, session: None, seq: None, why });
        }
        report.findings.extend(audit.findings);
        report.remarks.extend(audit.remarks);
        Ok(())
    }

    /// The trusted keys: the one that is named, or else pinned, or else the user's own and its predecessors.
    fn trusted(&self, settings: &Settings, report: &mut EvidenceReport) -> Result<Vec<PublicKey>> {
        if let Some(key) = self.key.or(settings.config()?.checkpoint.key) {
            return Ok(vec![key]);
        }
        match signing::find(settings) {
            Ok(Some((key, _))) => {
                let before = key.successions().iter().rev().map(|succession| succession.from);
                Ok(std::iter::once(key.public()).chain(before).collect())
            }
            Ok(None) => Ok(Vec::new()),
            Err(error) => {
                report.remarks.push(format!("your own key cannot be read and is not used: {error}"));
                Ok(Vec::new())
            }
        }
    }
}

/// Whether the text is a checkpoint line, not the name of one.
fn is_line(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

async fn compare(settings: &Settings, other: &Path, report: &mut EvidenceReport) -> Result<()> {
    let copy = Embedded::open_as(other, "rath")?;
    // A copy that is not valid itself proves nothing.
    let mut copied = copy.verify(None, &mut |_, _| {})?;
    let admin = StoreAdmin::new(copy, settings.actor());
    admin.explain(&mut copied).await;
    let is_valid = copied.is_valid();
    let findings = copied.findings.into_iter();
    report
        .findings
        .extend(findings.map(|finding| Finding { why: format!("in the other copy: {}", finding.why), ..finding }));
    let comparison = match checkpoint::compare(&settings.store()?, admin.store()).await {
        Err(error) if !is_valid => {
            report.remarks.push(format!("the other copy cannot be compared further: {error}"));
            return Ok(());
        }
        comparison => comparison?,
    };
    if is_valid && comparison.findings.is_empty() {
        report.fits.push(format!(
            "the other copy agrees: {} and {} are in both",
            count(comparison.sessions, "session"),
            count(comparison.checkpoints, "checkpoint")
        ));
    }
    report.findings.extend(comparison.findings);
    report.remarks.extend(comparison.remarks);
    Ok(())
}

fn read_file(path: &Path, report: &mut EvidenceReport) -> Result<Vec<Checkpoint>> {
    let file = std::fs::File::open(path).map_err(|error| {
        expression::usage_error(format!(
            "{} is neither a checkpoint of this store, nor a file of checkpoints, nor a store: {error}",
            path.display()
        ))
    })?;
    read_lines(file, &path.display().to_string(), report)
}

fn read_lines(from: impl std::io::Read, name: &str, report: &mut EvidenceReport) -> Result<Vec<Checkpoint>> {
    let mut text = String::new();
    let read = from.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).with_context(|| format!("reading {name}"))?;
    if read as u64 > MAX_FILE_BYTES {
        bail!("{name} is too long for a file of checkpoints");
    }
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        lines.extend(parse(line, &format!("line {} of {name}", at + 1), report)?);
    }
    match lines.is_empty() && report.findings.is_empty() {
        true => bail!("{name} contains no checkpoint"),
        false => Ok(lines),
    }
}

/// Parses a line and checks its signature. An altered checkpoint is a finding; text that is no checkpoint is an error.
fn parse(line: &str, name: &str, report: &mut EvidenceReport) -> Result<Option<Checkpoint>> {
    let was_one = || match serde_json::from_str::<serde_json::Value>(line) {
        Ok(value) => value.get("checkpoint").is_some() && value.get("signature").is_some(),
        // Truncated at either end: all lines start and end alike.
        Err(_) => {
            let line = line.trim();
            let is_start = ["{\"checkpoint\":", "{\"anew\":true,\"checkpoint\":"].iter().any(|it| line.starts_with(it));
            is_start || line.contains("\"signature\":\"") && line.contains(",\"time\":")
        }
    };
    let why = match Checkpoint::parse(line) {
        Ok(read) if checkpoint::is_signed(&read) => return Ok(Some(read)),
        Ok(_) => "its signature is wrong".to_owned(),
        Err(why) if was_one() => why.to_string(),
        Err(why) => return Err(why).with_context(|| format!("{name} is not a checkpoint")),
    };
    let why = format!("{name} is not what was signed: {why}; it was altered, or copied incorrectly");
    report.findings.push(Finding { what: FindingKind::Checkpoint, session: None, seq: None, why });
    Ok(None)
}
