use anyhow::{Result, anyhow, bail};
use rath_audit::care::Care;
use rath_audit::checkpoint::{self, Checkpoint as Made, Error, Wish};
use serde_json::json;

use super::Answer;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::{signing, time};

/// Sign what the store is now, so that what is lost or rewritten later shows
///
/// A checkpoint is one line: how many records and sessions there are, a digest of every session's last record, the
/// checkpoint before, the time, a signature. It is a record on the store's operator session. `rath verify --since` holds
/// the store against it.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Whoever has this machine has the key too, and can rewrite everything and sign it again. Only a line that\n\
    left the machine protects: `rath checkpoint --print`, and mail it, commit it, put it into a ticket."
)]
pub(crate) struct Checkpoint {
    #[command(subcommand)]
    what: Option<What>,
    /// Print the line, to hand it to somebody else
    #[arg(long)]
    print: bool,
    /// Something to remember it by; everybody who sees the line reads it
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// The key of the checkpoint before is lost: go on with the one at hand, for which no earlier key vouches
    #[arg(long)]
    begin_anew: bool,
}

#[derive(clap::Subcommand)]
enum What {
    List(List),
    Key(Key),
}

/// List the checkpoints that the store has
#[derive(clap::Args)]
struct List {
    /// Print their lines, for `rath verify --against FILE` elsewhere
    #[arg(long)]
    print: bool,
}

/// Show the key that signs, make one, or replace it
#[derive(clap::Args)]
#[command(after_help = "The key is a file that only you can read, or an entry in the keyring of the system.")]
struct Key {
    #[command(subcommand)]
    what: Option<KeyWhat>,
}

#[derive(clap::Subcommand)]
enum KeyWhat {
    /// Show the public key, and where the key is
    Show,
    /// Make a key, if there is none
    New {
        /// Keep it in the keyring of the system instead of a file
        #[arg(long)]
        in_keyring: bool,
    },
    /// Replace the key by a new one that it vouches for; the old one is destroyed
    Rotate {
        /// Carry nothing of how the key at hand came about: stores whose last checkpoint has an earlier key begin anew
        #[arg(long)]
        forget: bool,
    },
}

impl Checkpoint {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        match self.what {
            Some(What::List(ref command)) => command.run(settings).await,
            Some(What::Key(ref command)) => command.run(settings),
            None => self.make(settings).await,
        }
    }

    async fn make(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        if !Care::new(settings.embedded()?, settings.actor()).unfinished().await?.is_empty() {
            bail!(
                "an erasure is on the record and not finished: a checkpoint would vouch for what it removes\n  \
                 help: finish it first: `rath erase --finish`\n  help: rath explain erasure-unfinished"
            );
        }
        let key = match signing::find(settings)? {
            Some((key, _)) => key,
            None => {
                // A chain that has a key is asked before a key is made.
                let stored = checkpoint::chain(&store).await?.stored;
                if let Some(last) = stored.last().filter(|_| !self.begin_anew) {
                    bail!(
                        "there is no signing key here, and checkpoint {} of this store is signed with key {}\n  help: {ANEW}",
                        last.checkpoint.no,
                        last.checkpoint.key
                    );
                }
                let (key, place, is_made) = signing::find_or_make(settings, false)?;
                if is_made {
                    output::remark(format_args!("{} made a signing key: {place}", style::good("✓")));
                }
                key
            }
        };
        let wish = Wish { note: self.note, anew: self.begin_anew };
        let made = checkpoint::make(&store, settings.actor(), &key, wish).await.map_err(|error| match error {
            Error::OtherKey { .. } => anyhow!("{error}\n  help: {ANEW}"),
            Error::TooManyRotations { .. } => {
                anyhow!("{error}\n  help: `--begin-anew` goes on with the key at hand, for which no earlier one vouches then")
            }
            Error::Store(error) => error.into(),
            error => anyhow!("the checkpoint cannot be made: {error}"),
        })?;
        if made.anew {
            output::remark(format_args!(
                "{} checkpoint {} begins anew: no earlier key vouches for key {}",
                style::label("!"),
                made.no,
                made.key
            ));
        }
        match (self.print, settings.json) {
            (true, _) => output::answer(made.line())?,
            (false, true) => output::json(&described(&made))?,
            (false, false) => {
                let mut page = Page::default();
                page.line(row(&made));
                page.show(settings)?;
                output::remark("  help: hand its line to somebody else: `rath checkpoint list --print`");
            }
        }
        Ok(Answer::Yes)
    }
}

/// What to do where the key of the store's checkpoints is not at hand.
const ANEW: &str = "sign where that key is, or bring it here; if it is lost, `--begin-anew` goes on with a key for which no earlier one vouches";

fn described(made: &Made) -> serde_json::Value {
    json!({ "no": made.no, "digest": made.digest(), "time": made.time, "records": made.records,
        "sessions": made.sessions, "key": made.key, "note": made.note, "anew": made.anew, "line": made.line() })
}

fn row(made: &Made) -> String {
    let counted = format!("{} in {}", output::count(made.records, "record"), output::count(made.sessions, "session"));
    let note = made.note.as_ref().map(|note| format!("  {}", output::harmless(note).replace('\n', " ")));
    let (no, digest) = (made.no, &made.digest().to_string()[..12]);
    format!(
        "checkpoint {no}  {}  {counted}  {}{}",
        style::record(digest),
        time::local(made.time),
        note.unwrap_or_default()
    )
}

impl List {
    async fn run(&self, settings: &Settings) -> Result<Answer> {
        let chain = checkpoint::chain(&settings.store()?).await?;
        for finding in &chain.findings {
            output::remark(format_args!("{} {finding}", style::bad("✗")));
        }
        let all = chain.stored.iter().map(|stored| &stored.checkpoint);
        match (self.print, settings.json) {
            (true, _) => {
                let mut page = Page::default();
                all.for_each(|made| page.line(made.line()));
                page.show(settings)?;
            }
            (false, true) => output::json_lines(all.map(described))?,
            (false, false) => {
                let mut page = Page::default();
                all.for_each(|made| page.line(row(made)));
                page.show(settings)?;
                if chain.stored.is_empty() {
                    output::remark("the store has no checkpoint; `rath checkpoint` makes one");
                }
            }
        }
        Ok(Answer::Yes)
    }
}

impl Key {
    fn run(&self, settings: &Settings) -> Result<Answer> {
        let none = || {
            output::remark("there is no signing key; `rath checkpoint key new` makes one");
            Ok(Answer::No)
        };
        let (key, place) = match self.what.as_ref().unwrap_or(&KeyWhat::Show) {
            KeyWhat::Show => match signing::find(settings)? {
                Some(found) => found,
                None => return none(),
            },
            KeyWhat::New { in_keyring } => match signing::find_or_make(settings, *in_keyring)? {
                (key, place, true) => {
                    output::remark(format_args!("{} made a signing key: {place}", style::good("✓")));
                    (key, place)
                }
                (_, place, false) => bail!(
                    "there is a key already: {place}\n  help: `rath checkpoint key rotate` replaces it, and the old one vouches for the new"
                ),
            },
            KeyWhat::Rotate { forget } => match signing::rotate(settings, *forget)? {
                Some((old, key, place)) => {
                    output::remark(format_args!(
                        "{} the key is replaced, and the old one vouches for it: {}",
                        style::good("✓"),
                        old.public()
                    ));
                    (key, place)
                }
                None => return none(),
            },
        };
        match settings.json {
            true => {
                output::json(&json!({ "key": key.public(), "place": place.to_string(), "before": key.successions() }))?
            }
            false => {
                output::answer(key.public())?;
                output::remark(style::dim(format!(
                    "kept in {place}; give the public key to whoever verifies (`rath verify --since --key`)"
                )));
            }
        }
        Ok(Answer::Yes)
    }
}
