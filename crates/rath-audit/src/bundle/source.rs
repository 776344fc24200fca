//! Reads a bundle from a directory or a zip. Opens only files that belong in a bundle.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Cursor, Read, Seek};
use std::path::{Path, PathBuf};

use rath_core::Digest;
use zip::ZipArchive;

use super::{BLOBS, BundleDefect, GRAPH, README, RECORDS, SUMS, VERIFIER};

/// Files that every bundle has.
const ALWAYS: [&str; 5] = [README, SUMS, GRAPH, RECORDS, VERIFIER];

/// A bundle to read. Its content is untrusted.
pub(super) struct BundleSource {
    form: Form,
    /// The names and lengths of its files.
    pub(super) names: BTreeMap<String, u64>,
}

enum Form {
    Directory(PathBuf),
    Zip(Box<ZipArchive<Bytes>>),
}

/// The bytes of a zip.
pub(super) enum Bytes {
    File(BufReader<File>),
    InMemory(Cursor<Vec<u8>>),
}

impl Read for Bytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Bytes::File(file) => file.read(into),
            Bytes::InMemory(memory) => memory.read(into),
        }
    }
}

impl Seek for Bytes {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        match self {
            Bytes::File(file) => file.seek(to),
            Bytes::InMemory(memory) => memory.seek(to),
        }
    }
}

fn file_error(name: &str, why: impl ToString) -> BundleDefect {
    BundleDefect::File { name: name.into(), why: why.to_string() }
}

impl BundleSource {
    /// Opens the bundle at `path`.
    pub(super) fn open(path: &Path) -> Result<Self, BundleDefect> {
        let unreadable = |why: &dyn std::fmt::Display| BundleDefect::Unreadable(format!("{}: {why}", path.display()));
        let metadata = fs::metadata(path).map_err(|error| unreadable(&error))?;
        if metadata.is_dir() {
            return Self::directory(path);
        }
        if !metadata.is_file() {
            return Err(unreadable(&"neither a directory nor a file"));
        }
        let file = File::open(path).map_err(|error| unreadable(&error))?;
        Self::zip(Bytes::File(BufReader::new(file))).map_err(|broken| match broken {
            BundleDefect::Unreadable(why) => unreadable(&why),
            other => other,
        })
    }

    fn directory(root: &Path) -> Result<Self, BundleDefect> {
        let mut names = BTreeMap::new();
        let mut list = |under: &str| -> Result<(), BundleDefect> {
            let at = |error: io::Error| file_error(if under.is_empty() { "." } else { under }, error);
            for entry in fs::read_dir(root.join(under)).map_err(at)? {
                let entry = entry.map_err(at)?;
                let name = format!("{under}{}", entry.file_name().to_string_lossy());
                // Symbolic links are not followed: they could lead out of the bundle.
                let kind = entry.file_type().map_err(|error| file_error(&name, error))?;
                if under.is_empty() && kind.is_dir() && format!("{name}/") == BLOBS {
                    continue;
                }
                if !kind.is_file() {
                    return Err(file_error(&name, "not a regular file; a bundle contains only regular files"));
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
    pub(super) fn zip(bytes: Bytes) -> Result<Self, BundleDefect> {
        let unreadable =
            |error: zip::result::ZipError| BundleDefect::Unreadable(format!("not a complete zip file: {error}"));
        let mut archive = ZipArchive::new(bytes).map_err(unreadable)?;
        if archive.has_duplicate_names() {
            return Err(BundleDefect::Unreadable("the zip contains a name twice".into()));
        }
        if archive.has_overlapping_entries().map_err(unreadable)? {
            return Err(BundleDefect::Unreadable("files in the zip overlap".into()));
        }
        let mut names = BTreeMap::new();
        for at in 0..archive.len() {
            let file = archive.by_index_raw(at).map_err(unreadable)?;
            let name = String::from_utf8_lossy(file.name_raw()).into_owned();
            if name == BLOBS && file.is_dir() {
                continue;
            }
            if !file.is_file() || file.is_symlink() {
                return Err(file_error(&name, "not a regular file; a bundle contains only regular files"));
            }
            if file.encrypted() {
                return Err(file_error(&name, "it is encrypted"));
            }
            names.insert(name, file.size());
        }
        Self { form: Form::Zip(Box::new(archive)), names }.checked()
    }

    /// Checks that the bundle has all required files and no others, so that no path leads out of it.
    fn checked(self) -> Result<Self, BundleDefect> {
        if let Some(missing) = ALWAYS.iter().find(|name| !self.names.contains_key(**name)) {
            return Err(file_error(missing, "missing: the bundle is incomplete"));
        }
        let belongs = |name: &str| ALWAYS.contains(&name) || blob_of(name).is_some();
        match self.names.keys().find(|name| !belongs(name)) {
            Some(name) => Err(file_error(name, "not part of a bundle")),
            None => Ok(self),
        }
    }

    /// Opens a file of the bundle. The reader returns at most one byte more than the listed length.
    pub(super) fn read(&mut self, name: &str) -> Result<impl Read + Send + '_, BundleDefect> {
        let Some(length) = self.names.get(name).copied() else { return Err(file_error(name, "missing")) };
        let reader: Box<dyn Read + Send + '_> = match &mut self.form {
            Form::Directory(root) => Box::new(File::open(root.join(name)).map_err(|error| file_error(name, error))?),
            Form::Zip(archive) => Box::new(archive.by_name(name).map_err(|error| file_error(name, error))?),
        };
        Ok(reader.take(length.saturating_add(1)))
    }

    /// Reads a whole file of at most `most` bytes.
    pub(super) fn whole(&mut self, name: &str, most: u64) -> Result<Vec<u8>, BundleDefect> {
        let length = self.names.get(name).copied().unwrap_or(0);
        if length > most {
            return Err(file_error(name, format!("{length} bytes long; the limit is {most} bytes")));
        }
        let mut bytes = Vec::new();
        self.read(name)?.read_to_end(&mut bytes).map_err(|error| file_error(name, error))?;
        match bytes.len() as u64 == length {
            true => Ok(bytes),
            false => Err(file_error(name, "its length is not the listed one")),
        }
    }

    /// The digests of the blobs in the bundle.
    pub(super) fn blobs(&self) -> impl Iterator<Item = Digest> + '_ {
        self.names.keys().filter_map(|name| blob_of(name))
    }
}

fn blob_of(name: &str) -> Option<Digest> {
    name.strip_prefix(BLOBS)?.parse().ok()
}
