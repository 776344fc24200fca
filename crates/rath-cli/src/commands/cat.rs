use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::{Result, bail};
use rath::files::{Forest, Name, NodeKind};

use super::Answer;
use crate::expression;
use crate::settings::Settings;

/// Print a file of a session, as it is or was after a record
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Cat {
    /// What and where: SESSION:PATH, SESSION@4:PATH or VERSION:PATH
    #[arg(value_name = "WHAT:PATH")]
    what: OsString,
}

impl Cat {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let unclear = || expression::unclear(format!("{:?} names no file: write SESSION:PATH", self.what));
        let (what, path) = split(self.what.as_bytes()).ok_or_else(unclear)?;
        let store = settings.store()?;
        let version = expression::version(settings, &store, what).await?;
        let (forest, path) = (Forest::new(&*store), Name::from(path));
        let Some(node) = forest.at(&version, &path).await? else {
            bail!("there is no {path} in version {version}\n  help: `rath files {what}` lists what there is");
        };
        let mut out = std::io::stdout().lock();
        let mut write = |bytes: &[u8]| match out.write_all(bytes) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        };
        match node.kind {
            NodeKind::Directory => bail!("{path} is a directory\n  help: `rath files {what}` lists what is in it"),
            _ => match store.blob_pieces(node.sha256).await? {
                Some(pieces) => {
                    for piece in pieces {
                        write(&forest.content(piece.digest).await?)?;
                    }
                }
                None => write(&forest.content(node.sha256).await?)?,
            },
        }
        Ok(Answer::Yes)
    }
}

/// What is before the first colon, and the path after it.
fn split(argument: &[u8]) -> Option<(&str, &[u8])> {
    let at = argument.iter().position(|byte| *byte == b':')?;
    Some((std::str::from_utf8(&argument[..at]).ok()?, &argument[at + 1..]))
}
