//! `rath file`: the files of a session, at its head or after one of its records.

mod blame;
mod cat;
mod ls;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::Result;
use rath::expression::Expression;
use rath::files::FilePath;

use super::Answer;
use crate::settings::Settings;

pub(crate) use blame::Blame;
pub(crate) use cat::Cat;
pub(crate) use ls::Ls;

/// List, print and blame the files of a session
#[derive(clap::Args)]
pub(crate) struct File {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Ls(Ls),
    Cat(Cat),
    Blame(Blame),
}

impl File {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        match self.what {
            What::Ls(command) => command.run(settings).await,
            What::Cat(command) => command.run(settings).await,
            What::Blame(command) => command.run(settings).await,
        }
    }
}

/// A file of a session, as `SESSION:PATH` names it.
pub(crate) struct FileAddress {
    /// The session, record or version: `@` where none is named.
    pub(crate) of: String,
    /// The path in the workspace.
    pub(crate) path: FilePath,
}

impl FileAddress {
    /// Reads `SESSION:PATH`, `:PATH` or `PATH`. What stands before the first colon is the session if it can name one.
    pub(crate) fn parse(text: &OsStr) -> Self {
        let bytes = text.as_bytes();
        let split = bytes.iter().position(|byte| *byte == b':').and_then(|at| {
            let of = std::str::from_utf8(&bytes[..at]).ok()?;
            (of.is_empty() || Expression::parse(of).is_ok()).then_some((of, &bytes[at + 1..]))
        });
        let (of, path) = split.unwrap_or(("@", bytes));
        let of = if of.is_empty() { "@" } else { of };
        Self { of: of.to_owned(), path: FilePath::from(path) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_by_its_session_and_path() {
        let read = |text: &str| {
            let address = FileAddress::parse(OsStr::new(text));
            (address.of, address.path.to_string())
        };
        let of = |of: &str, path: &str| (of.to_owned(), path.to_owned());
        assert_eq!(read("9f31:src/a.rs"), of("9f31", "src/a.rs"));
        assert_eq!(read("9f31@4:a"), of("9f31@4", "a"));
        assert_eq!(read("@:a:b"), of("@", "a:b"));
        assert_eq!(read(":a"), of("@", "a"));
        assert_eq!(read("src/a.rs"), of("@", "src/a.rs"));
        assert_eq!(read("notes.txt:2"), of("@", "notes.txt:2"));
    }
}
