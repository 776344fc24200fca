use anyhow::Result;
use rath::files::{NodeKind, TreeStore};
use rath::inspect::{FileListing, ListedFile};

use crate::commands::Answer;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;

/// List the files of a session, at its head or after a record
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Ls {
    /// The session, record or version
    #[arg(default_value = "@", value_name = "SESSION")]
    what: String,
    /// Show permissions, sizes and digests
    #[arg(long, short)]
    long: bool,
}

impl Ls {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let version = expression::version(settings, &store, &self.what).await?;
        let files = TreeStore::new(&*store).list(&version).await?;
        if settings.json {
            let files = files.into_iter().map(|(path, node)| ListedFile { path, node }).collect();
            output::json("rath.file.ls/1", &FileListing { version, files })?;
            return Ok(Answer::Yes);
        }
        let mut page = Page::default();
        for (path, node) in files {
            let (mark, letter) = match node.kind {
                NodeKind::Directory => ("/", 'd'),
                NodeKind::Symlink => ("@", 'l'),
                NodeKind::File => ("", '-'),
            };
            if self.long {
                page.line(format_args!(
                    "{letter} {:04o} {:>10} {} {path}{mark}",
                    node.mode,
                    node.size,
                    style::dim(format!("{:?}", node.sha256)),
                ));
            } else if !node.is_directory() {
                page.line(format_args!("{path}{mark}"));
            }
        }
        page.show(settings)?;
        Ok(Answer::Yes)
    }
}
