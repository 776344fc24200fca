use anyhow::{Result, anyhow, bail};
use rath_audit::admin::StoreAdmin;
use rath_audit::checkpoint::{self, Checkpoint as Made, CheckpointError, CheckpointOptions};
use serde_json::json;

use super::Answer;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::{signing, time};

/// Sign the state of the store, to detect later loss or rewriting
///
/// A checkpoint is one line: the number of records and sessions, a digest of every session's last record, the previous
/// checkpoint, the time, and a signature. It is recorded in the store's audit session. `rath verify --since` compares the
/// store with it.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Anyone with access to this machine has the signing key. Store a copy of the checkpoint elsewhere:\n\
    `rath checkpoint --print` prints it."
)]
pub(crate) struct Checkpoint {
    #[command(subcommand)]
    what: Option<What>,
    /// Print the checkpoint line, to store it elsewhere
    #[arg(long)]
    print: bool,
    /// A note, which is part of the line and readable by everyone who has it
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// The previous key is lost: start a new chain with the available key, which no earlier key has signed
    #[arg(long, alias = "begin-anew")]
    new_chain: bool,
}

#[derive(clap::Subcommand)]
enum What {
    List(List),
    Key(Key),
}

/// List the checkpoints of the store
#[derive(clap::Args)]
struct List {
    /// Print their lines, for `rath verify --against FILE` elsewhere
    #[arg(long)]
    print: bool,
}

/// Show, create or replace the signing key
#[derive(clap::Args)]
#[command(after_help = "The key is a file that only you can read, or an entry in the system keyring.")]
struct Key {
    #[command(subcommand)]
    what: Option<KeyWhat>,
}

#[derive(clap::Subcommand)]
enum KeyWhat {
    /// Show the public key and where the key is stored
    Show,
    /// Create a key, if there is none
    New {
        /// Store it in the system keyring, not in a file
        #[arg(long)]
        in_keyring: bool,
    },
    /// Replace the key by a new one that the old one signs; the old one is destroyed
    Rotate {
        /// Drop the history of keys: stores whose last checkpoint has an earlier key start a new chain
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
        if !StoreAdmin::new(settings.embedded()?, settings.actor()).unfinished().await?.is_empty() {
            bail!(
                "an erasure is recorded and not finished: a checkpoint would cover what it erases\n  \
                 help: finish it first: `rath store erase --finish`\n  help: rath help error erasure-unfinished"
            );
        }
        let key = match signing::find(settings)? {
            Some((key, _)) => key,
            None => {
                // If the store's checkpoints have a key, a new one must not be created silently.
                let stored = checkpoint::chain(&store).await?.stored;
                if let Some(last) = stored.last().filter(|_| !self.new_chain) {
                    bail!(
                        "there is no signing key here, and checkpoint {} of this store is signed with key {}\n  help: {NEW_CHAIN}",
                        last.checkpoint.no,
                        last.checkpoint.key
                    );
                }
                let (key, place, is_made) = signing::find_or_make(settings, false)?;
                if is_made {
                    output::remark(format_args!("{} created a signing key: {place}", style::good("✓")));
                }
                key
            }
        };
        let options = CheckpointOptions { note: self.note, previous_key_lost: self.new_chain };
        let made = checkpoint::make(&store, settings.actor(), &key, options).await.map_err(|error| match error {
            CheckpointError::OtherKey { .. } => anyhow!("{error}\n  help: {NEW_CHAIN}"),
            CheckpointError::TooManyRotations { .. } => {
                anyhow!("{error}\n  help: `--new-chain` starts a new chain with the available key, which no earlier key has signed")
            }
            CheckpointError::Store(error) => error.into(),
            error => anyhow!("cannot make the checkpoint: {error}"),
        })?;
        if made.previous_key_lost {
            output::remark(format_args!(
                "{} checkpoint {} starts a new chain: no earlier key has signed key {}",
                style::label("!"),
                made.no,
                made.key
            ));
        }
        match (self.print, settings.json) {
            (true, _) => output::answer(made.line())?,
            (false, true) => output::json("rath.checkpoint/1", &described(&made))?,
            (false, false) => {
                let mut page = Page::default();
                page.line(row(&made));
                page.show(settings)?;
                output::remark("  help: store a copy of the line elsewhere: `rath checkpoint list --print`");
            }
        }
        Ok(Answer::Yes)
    }
}

/// Advice if the key of the store's checkpoints is not available.
const NEW_CHAIN: &str = "sign on the machine that has that key, or copy the key here; if it is lost, `--new-chain` starts a new chain with a key that no earlier key has signed";

fn described(made: &Made) -> serde_json::Value {
    json!({ "no": made.no, "digest": made.digest(), "time": made.time, "records": made.records,
        "sessions": made.sessions, "key": made.key, "note": made.note, "anew": made.previous_key_lost, "line": made.line() })
}

fn row(made: &Made) -> String {
    let counted = format!("{} in {}", output::count(made.records, "record"), output::count(made.sessions, "session"));
    let note = made.note.as_ref().map(|note| format!("  {}", output::escaped(note).replace('\n', " ")));
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
            (false, true) => output::json_list("rath.checkpoint.list/1", all.map(described))?,
            (false, false) => {
                let mut page = Page::default();
                all.for_each(|made| page.line(row(made)));
                page.show(settings)?;
                if chain.stored.is_empty() {
                    output::remark("the store has no checkpoint\n  help: `rath checkpoint` makes one");
                }
            }
        }
        Ok(Answer::Yes)
    }
}

impl Key {
    fn run(&self, settings: &Settings) -> Result<Answer> {
        let none = || {
            output::remark("there is no signing key\n  help: `rath checkpoint key new` creates one");
            Ok(Answer::No)
        };
        let (key, place) = match self.what.as_ref().unwrap_or(&KeyWhat::Show) {
            KeyWhat::Show => match signing::find(settings)? {
                Some(found) => found,
                None => return none(),
            },
            KeyWhat::New { in_keyring } => match signing::find_or_make(settings, *in_keyring)? {
                (key, place, true) => {
                    output::remark(format_args!("{} created a signing key: {place}", style::good("✓")));
                    (key, place)
                }
                (_, place, false) => bail!(
                    "there is already a key: {place}\n  help: `rath checkpoint key rotate` replaces it by one that the old key signs"
                ),
            },
            KeyWhat::Rotate { forget } => match signing::rotate(settings, *forget)? {
                Some((old, key, place)) => {
                    output::remark(format_args!(
                        "{} the key is replaced; the old key signed the new one: {}",
                        style::good("✓"),
                        old.public()
                    ));
                    (key, place)
                }
                None => return none(),
            },
        };
        if settings.json {
            output::json(
                "rath.checkpoint.key/1",
                &json!({ "key": key.public(), "place": place.to_string(), "before": key.successions() }),
            )?
        } else {
            output::answer(key.public())?;
            output::remark(style::dim(format!(
                "stored in {place}; verifiers need the public key (`rath verify --since --key`)"
            )));
        }
        Ok(Answer::Yes)
    }
}
