use std::ffi::OsString;
use std::io::Write as _;

use anyhow::{Result, bail};
use rath::files::{NodeKind, TreeStore};
use serde::Serialize;

use super::FileAddress;
use crate::commands::Answer;
use crate::expression;
use crate::output;
use crate::settings::Settings;

/// Print a file of a session, at its head or after a record
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Cat {
    /// The file: SESSION:PATH, SESSION@4:PATH, VERSION:PATH, or PATH of the session that changed last
    #[arg(value_name = "SESSION:PATH")]
    what: OsString,
}

/// A file with `--json`. Content that is not UTF-8 is in `bytes` instead of `text`.
#[derive(Serialize)]
struct Printed {
    path: rath::files::FilePath,
    version: rath::files::Version,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<Vec<u8>>,
}

impl Cat {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let FileAddress { of, path } = FileAddress::parse(&self.what);
        let store = settings.store()?;
        let version = expression::version(settings, &store, &of).await?;
        let trees = TreeStore::new(&*store);
        let Some(node) = trees.at(&version, &path).await? else {
            let text = format!("there is no {path} in version {version}\n  help: `rath file ls {of}` lists its files");
            return Err(expression::usage_error(text));
        };
        if node.kind == NodeKind::Directory {
            bail!("{path} is a directory\n  help: `rath file ls {of}` lists the files in it");
        }
        let mut out = std::io::stdout().lock();
        let mut all = Vec::new();
        let mut write = |bytes: &[u8]| {
            if settings.json {
                all.extend_from_slice(bytes);
                return Ok(());
            }
            match out.write_all(bytes) {
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error),
                _ => Ok(()),
            }
        };
        match store.blob_chunks(node.sha256).await? {
            Some(chunks) => {
                for chunk in chunks {
                    write(&trees.content(chunk.digest).await?)?;
                }
            }
            None => write(&trees.content(node.sha256).await?)?,
        }
        drop(out);
        if settings.json {
            let (text, bytes) = match String::from_utf8(all) {
                Ok(text) => (Some(text), None),
                Err(error) => (None, Some(error.into_bytes())),
            };
            output::json("rath.file.cat/1", &Printed { path, version, text, bytes })?;
        }
        Ok(Answer::Yes)
    }
}
