//! What a store is held against: its checkpoints, lines that were kept elsewhere, and other copies.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rath::Embedded;
use rath::verify::{Finding, What};
use rath_audit::care::Care;
use rath_audit::checkpoint::{self, Checkpoint, PublicKey};
use serde::Serialize;

use crate::expression;
use crate::output::count;
use crate::settings::{STORE_DIR, Settings};
use crate::{signing, time};

/// A file of lines has at most so many bytes.
const LONGEST_FILE: u64 = 64 << 20;

/// What to hold the store against.
pub(super) struct Witness {
    /// A checkpoint: `last`, a number, a digest, a line or a file.
    pub(super) since: Option<String>,
    /// Another copy, or a file of lines.
    pub(super) against: Option<PathBuf>,
    /// The key that the person trusts.
    pub(super) key: Option<PublicKey>,
}

/// What came of it.
#[derive(Default, Serialize)]
pub(super) struct Held {
    #[serde(skip)]
    pub(super) findings: Vec<Finding>,
    /// What fits, in words.
    pub(super) fits: Vec<String>,
    /// What a person should know, and is not wrong.
    pub(super) remarks: Vec<String>,
}

impl Witness {
    pub(super) fn is_none(&self) -> bool {
        self.since.is_none() && self.against.is_none()
    }

    /// Holds the store against it.
    pub(super) async fn look(&self, settings: &Settings) -> Result<Held> {
        let mut held = Held::default();
        let mut lines = Vec::new();
        if let Some(other) = &self.against {
            let inside = other.join(STORE_DIR);
            let line = other.to_str().filter(|text| is_line(text) && !other.exists());
            match other {
                _ if let Some(line) = line => lines.extend(parse(line, "the line", &mut held)?),
                _ if Embedded::exists(other) => compare(settings, other, &mut held).await?,
                _ if Embedded::exists(&inside) => compare(settings, &inside, &mut held).await?,
                _ if other.is_dir() => {
                    let text = format!(
                        "there is no store in {}: neither a database nor a directory {STORE_DIR} with one",
                        other.display()
                    );
                    return Err(expression::unclear(text));
                }
                _ => lines.extend(read_file(other, &mut held)?),
            }
        }
        let mut from = u64::MAX;
        match self.since.as_deref() {
            None => {}
            Some(text) if is_line(text) => lines.extend(parse(text, "the line", &mut held)?),
            Some("-") => lines.extend(read_lines(std::io::stdin().lock(), "the standard input", &mut held)?),
            Some(text) => from = self.stored(settings, text, &mut lines, &mut held).await?,
        }
        // Against a copy alone the key is still to be behind the checkpoints.
        if self.since.is_some() || !lines.is_empty() || self.key.is_some() {
            self.audit(settings, &lines, from, &mut held).await?;
        }
        if !held.findings.is_empty() {
            let help = "keep the store as it is; `rath verify --against COPY` holds it against a backup and names where they part";
            held.remarks.push(format!("it does not fit what it is held against\n  help: {help}"));
        }
        Ok(held)
    }

    /// The number of a checkpoint that the store has, by what names it; a file names the lines in it.
    async fn stored(
        &self,
        settings: &Settings,
        text: &str,
        lines: &mut Vec<Checkpoint>,
        held: &mut Held,
    ) -> Result<u64> {
        let stored = checkpoint::chain(&settings.store()?).await?.stored;
        let number = |no: u64| stored.iter().find(|it| it.checkpoint.no == no).map(|it| it.checkpoint.no);
        let is_hex = text.len() >= 4 && text.len() <= 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let found = match text.parse::<u64>() {
            Ok(0) => {
                let text =
                    "there is no checkpoint 0: they are counted from 1\n  help: `rath checkpoint list` shows them";
                return Err(expression::unclear(text));
            }
            _ if text == "last" => stored.last().map(|it| it.checkpoint.no),
            Ok(no) if number(no).is_some() || !is_hex => number(no),
            _ if is_hex && !Path::new(text).exists() => {
                let named = |it: &&checkpoint::Stored| it.checkpoint.digest().to_string().starts_with(text);
                stored.iter().find(named).map(|it| it.checkpoint.no)
            }
            _ => {
                lines.extend(read_file(Path::new(text), held)?);
                return Ok(u64::MAX);
            }
        };
        if found.is_none() {
            let why = match (text, stored.last()) {
                ("last", _) => {
                    "the store has no checkpoint to be held against: it never had one, or its end was cut off".into()
                }
                (_, None) => format!("checkpoint {text} is not in this store: it has none"),
                (_, Some(last)) => format!(
                    "checkpoint {text} is not in this store, its last is {}: its end was cut off, or this is an older copy",
                    last.checkpoint.no
                ),
            };
            held.findings.push(Finding { what: What::CutOff, session: None, seq: None, why });
        }
        Ok(found.unwrap_or(1))
    }

    async fn audit(&self, settings: &Settings, lines: &[Checkpoint], from: u64, held: &mut Held) -> Result<()> {
        let trusted = self.trusted(settings, held)?;
        let audit = checkpoint::audit(&settings.store()?, lines, from, &trusted).await?;
        if let (Some(since), true) = (&audit.since, audit.findings.is_empty() && held.findings.is_empty()) {
            held.fits.push(format!(
                "all that checkpoint {} ({}) vouches for is there: {} in {}; the chain has {}",
                since.no,
                time::local(since.time),
                count(since.records, "record"),
                count(since.sessions, "session"),
                count(audit.stored, "checkpoint")
            ));
        }
        if let (Some(key), 0, true) = (self.key, audit.stored, lines.is_empty() && self.since.is_none()) {
            let why = format!("key {key} is behind no checkpoint: the store has none");
            held.findings.push(Finding { what: What::Checkpoint, session: None, seq: None, why });
        }
        held.findings.extend(audit.findings);
        held.remarks.extend(audit.remarks);
        Ok(())
    }

    /// The key that the person names, or has pinned, or else has: then also those before it.
    fn trusted(&self, settings: &Settings, held: &mut Held) -> Result<Vec<PublicKey>> {
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
                held.remarks.push(format!("your own key is not asked: {error}"));
                Ok(Vec::new())
            }
        }
    }
}

/// Whether this is a checkpoint itself, not what one is called.
fn is_line(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

async fn compare(settings: &Settings, other: &Path, held: &mut Held) -> Result<()> {
    let copy = Embedded::open_here(other, "rath")?;
    // What does not verify by itself is no witness.
    let mut report = copy.verify(None, &mut |_, _| {})?;
    let care = Care::new(copy, settings.actor());
    care.explain(&mut report).await;
    let is_sound = report.is_sound();
    let told = report.findings.into_iter();
    held.findings.extend(told.map(|told| Finding { why: format!("in the other copy: {}", told.why), ..told }));
    let comparison = match checkpoint::compare(&settings.store()?, care.store()).await {
        Err(error) if !is_sound => {
            held.remarks.push(format!("the other copy cannot be compared any further: {error}"));
            return Ok(());
        }
        comparison => comparison?,
    };
    if is_sound && comparison.findings.is_empty() {
        held.fits.push(format!(
            "the other copy contradicts nothing: {} and {} are in both",
            count(comparison.sessions, "session"),
            count(comparison.checkpoints, "checkpoint")
        ));
    }
    held.findings.extend(comparison.findings);
    held.remarks.extend(comparison.remarks);
    Ok(())
}

fn read_file(path: &Path, held: &mut Held) -> Result<Vec<Checkpoint>> {
    let file = std::fs::File::open(path).map_err(|error| {
        expression::unclear(format!(
            "{} is neither a checkpoint of this store nor a file of lines or another store: {error}",
            path.display()
        ))
    })?;
    read_lines(file, &path.display().to_string(), held)
}

fn read_lines(from: impl std::io::Read, name: &str, held: &mut Held) -> Result<Vec<Checkpoint>> {
    let mut text = String::new();
    let read = from.take(LONGEST_FILE + 1).read_to_string(&mut text).with_context(|| format!("reading {name}"))?;
    if read as u64 > LONGEST_FILE {
        bail!("{name} is too long for a file of checkpoints");
    }
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        lines.extend(parse(line, &format!("line {} of {name}", at + 1), held)?);
    }
    match lines.is_empty() && held.findings.is_empty() {
        true => bail!("{name} has no checkpoint in it"),
        false => Ok(lines),
    }
}

/// A line that its key signed. One that was altered is a finding; what never was a checkpoint is an error.
fn parse(line: &str, name: &str, held: &mut Held) -> Result<Option<Checkpoint>> {
    let was_one = || match serde_json::from_str::<serde_json::Value>(line) {
        Ok(value) => value.get("checkpoint").is_some() && value.get("signature").is_some(),
        // Cut off, behind or before: all lines begin and end alike.
        Err(_) => {
            let line = line.trim();
            let begins = ["{\"checkpoint\":", "{\"anew\":true,\"checkpoint\":"].iter().any(|it| line.starts_with(it));
            begins || line.contains("\"signature\":\"") && line.contains(",\"time\":")
        }
    };
    let why = match Checkpoint::parse(line) {
        Ok(read) if checkpoint::is_signed(&read) => return Ok(Some(read)),
        Ok(_) => "its signature does not fit".to_owned(),
        Err(why) if was_one() => why.to_string(),
        Err(why) => return Err(why).with_context(|| format!("{name} is not a checkpoint")),
    };
    let why = format!("{name} is not what was signed: {why}; it was altered, or copied wrong");
    held.findings.push(Finding { what: What::Checkpoint, session: None, seq: None, why });
    Ok(None)
}
