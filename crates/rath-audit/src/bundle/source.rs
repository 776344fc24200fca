//! Where a bundle is read: a directory or a zip. Only what belongs in a bundle is ever opened.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Cursor, Read, Seek};
use std::path::{Path, PathBuf};

use rath_core::Digest;
use zip::ZipArchive;

use super::{BLOBS, Broken, GRAPH, README, RECORDS, SUMS, VERIFIER};

/// Files that every bundle has.
const ALWAYS: [&str; 5] = [README, SUMS, GRAPH, RECORDS, VERIFIER];

/// A bundle that somebody handed over. Nothing in it is trusted.
pub(super) struct Source {
    form: Form,
    /// The files in it with their lengths.
    pub(super) names: BTreeMap<String, u64>,
}

enum Form {
    Directory(PathBuf),
    Zip(Box<ZipArchive<Bytes>>),
}

/// What a zip is read from.
pub(super) enum Bytes {
    File(BufReader<File>),
    Memory(Cursor<Vec<u8>>),
}

impl Read for Bytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Bytes::File(file) => file.read(into),
            Bytes::Memory(memory) => memory.read(into),
        }
    }
}

impl Seek for Bytes {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        match self {
            Bytes::File(file) => file.seek(to),
            Bytes::Memory(memory) => memory.seek(to),
        }
    }
}

fn file_error(name: &str, why: impl ToString) -> Broken {
    Broken::File { name: name.into(), why: why.to_string() }
}

impl Source {
    /// Opens the bundle at `path`.
    pub(super) fn open(path: &Path) -> Result<Self, Broken> {
        let unreadable = |why: &dyn std::fmt::Display| Broken::Unreadable(format!("{}: {why}", path.display()));
        let metadata = fs::metadata(path).map_err(|error| unreadable(&error))?;
        if metadata.is_dir() {
            return Self::directory(path);
        }
        if !metadata.is_file() {
            return Err(unreadable(&"it is neither a directory nor a file"));
        }
        let file = File::open(path).map_err(|error| unreadable(&error))?;
        Self::zip(Bytes::File(BufReader::new(file))).map_err(|broken| match broken {
            Broken::Unreadable(why) => unreadable(&why),
            other => other,
        })
    }

    fn directory(root: &Path) -> Result<Self, Broken> {
        let mut names = BTreeMap::new();
        let mut list = |under: &str| -> Result<(), Broken> {
            let at = |error: io::Error| file_error(if under.is_empty() { "." } else { under }, error);
            for entry in fs::read_dir(root.join(under)).map_err(at)? {
                let entry = entry.map_err(at)?;
                let name = format!("{under}{}", entry.file_name().to_string_lossy());
                // Links are not followed: a bundle holds its own contents.
                let kind = entry.file_type().map_err(|error| file_error(&name, error))?;
                if under.is_empty() && kind.is_dir() && format!("{name}/") == BLOBS {
                    continue;
                }
                if !kind.is_file() {
                    return Err(file_error(&name, "it is not a plain file, and a bundle has nothing else"));
                }
                let length = entry.metadata().map_err(|error| file_error(&name, error))?.len();
                names.insert(name, length);
            }
            Ok(())
        };
        list("")?;
        if root.join(BLOBS).is_dir() {
            list(BLOBS)?;
        }
        Self { form: Form::Directory(root.into()), names }.checked()
    }

    /// Opens a zip.
    pub(super) fn zip(bytes: Bytes) -> Result<Self, Broken> {
        let unreadable = |error: zip::result::ZipError| Broken::Unreadable(format!("it is not a whole zip: {error}"));
        let mut archive = ZipArchive::new(bytes).map_err(unreadable)?;
        if archive.has_duplicate_names() {
            return Err(Broken::Unreadable("the zip has a name twice".into()));
        }
        if archive.has_overlapping_entries().map_err(unreadable)? {
            return Err(Broken::Unreadable("files in the zip lie over each other".into()));
        }
        let mut names = BTreeMap::new();
        for at in 0..archive.len() {
            let file = archive.by_index_raw(at).map_err(unreadable)?;
            let name = String::from_utf8_lossy(file.name_raw()).into_owned();
            if name == BLOBS && file.is_dir() {
                continue;
            }
            if !file.is_file() || file.is_symlink() {
                return Err(file_error(&name, "it is not a plain file, and a bundle has nothing else"));
            }
            if file.encrypted() {
                return Err(file_error(&name, "it is encrypted"));
            }
            names.insert(name, file.size());
        }
        Self { form: Form::Zip(Box::new(archive)), names }.checked()
    }

    /// A bundle has these files and no other: no path leads out of it.
    fn checked(self) -> Result<Self, Broken> {
        if let Some(missing) = ALWAYS.iter().find(|name| !self.names.contains_key(**name)) {
            return Err(file_error(missing, "it is missing: this is not a whole bundle"));
        }
        let belongs = |name: &str| ALWAYS.contains(&name) || blob_of(name).is_some();
        match self.names.keys().find(|name| !belongs(name)) {
            Some(name) => Err(file_error(name, "it is no part of a bundle")),
            None => Ok(self),
        }
    }

    /// Reads a file of the bundle, from its beginning. Gives its length as listed and one byte more at most.
    pub(super) fn read(&mut self, name: &str) -> Result<impl Read + Send + '_, Broken> {
        let Some(length) = self.names.get(name).copied() else { return Err(file_error(name, "it is missing")) };
        let reader: Box<dyn Read + Send + '_> = match &mut self.form {
            Form::Directory(root) => Box::new(File::open(root.join(name)).map_err(|error| file_error(name, error))?),
            Form::Zip(archive) => Box::new(archive.by_name(name).map_err(|error| file_error(name, error))?),
        };
        Ok(reader.take(length.saturating_add(1)))
    }

    /// Reads a whole file of at most `most` bytes.
    pub(super) fn whole(&mut self, name: &str, most: u64) -> Result<Vec<u8>, Broken> {
        let length = self.names.get(name).copied().unwrap_or(0);
        if length > most {
            return Err(file_error(name, format!("it has {length} bytes; {most} are the most")));
        }
        let mut bytes = Vec::new();
        self.read(name)?.read_to_end(&mut bytes).map_err(|error| file_error(name, error))?;
        match bytes.len() as u64 == length {
            true => Ok(bytes),
            false => Err(file_error(name, "it is not as long as it says")),
        }
    }

    /// The blobs in it.
    pub(super) fn blobs(&self) -> impl Iterator<Item = Digest> + '_ {
        self.names.keys().filter_map(|name| blob_of(name))
    }
}

fn blob_of(name: &str) -> Option<Digest> {
    name.strip_prefix(BLOBS)?.parse().ok()
}
