//! Writes a bundle to a directory or a zip, under a temporary name until it is complete.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rath_core::Digest;
use sha2::{Digest as _, Sha256};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::{BundleError, SUMS, io_error};

/// A bundle while it is written. Files are written one after the other; their digests are collected for `SHA256SUMS`.
pub(super) struct BundleWriter {
    path: PathBuf,
    unfinished: PathBuf,
    form: Form,
    sums: BTreeMap<String, Digest>,
}

enum Form {
    Directory,
    Zip(Box<ZipWriter<ZipFile>>, Arc<AtomicBool>),
}

/// The file of a zip. After an error, or once the writer gives up, it ignores all writes: a `ZipWriter` that is dropped
/// still writes its end, and prints an error if that fails.
struct ZipFile {
    file: BufWriter<File>,
    at: u64,
    failed: Arc<AtomicBool>,
}

impl ZipFile {
    fn unless_failed<T>(
        &mut self,
        nothing: T,
        work: impl FnOnce(&mut BufWriter<File>) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.failed.load(Ordering::Relaxed) {
            return Ok(nothing);
        }
        let done = work(&mut self.file);
        let is_refused = done.as_ref().err().is_some_and(|error| error.kind() != io::ErrorKind::Interrupted);
        self.failed.fetch_or(is_refused, Ordering::Relaxed);
        done
    }

    /// Flushes the file. Fails if the file was given up.
    fn end(mut self) -> io::Result<()> {
        self.flush()?;
        match self.failed.load(Ordering::Relaxed) {
            true => Err(io::Error::other("an earlier write failed")),
            false => Ok(()),
        }
    }
}

impl Write for ZipFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.unless_failed(bytes.len(), |file| file.write(bytes))?;
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.unless_failed((), BufWriter::flush)
    }
}

impl Seek for ZipFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let supposed = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) | SeekFrom::End(by) => self.at.saturating_add_signed(by),
        };
        self.at = self.unless_failed(supposed, |file| file.seek(to))?;
        Ok(self.at)
    }
}

/// A file of the bundle while it is written.
pub(super) struct Entry<'a> {
    name: String,
    out: Out<'a>,
    hash: Option<Sha256>,
    bytes: u64,
    sums: &'a mut BTreeMap<String, Digest>,
}

enum Out<'a> {
    File(BufWriter<File>),
    Zip(&'a mut ZipWriter<ZipFile>),
}

impl BundleWriter {
    /// Starts a bundle at `path`: a zip if the name ends in `.zip`, otherwise a directory.
    pub(super) fn create(path: &Path) -> Result<Self, BundleError> {
        let empty = || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        if path.symlink_metadata().is_ok() && !(path.is_dir() && empty()) {
            return Err(BundleError::Exists(path.display().to_string()));
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let unfinished = parent.join(format!(".{name}.{}.unfinished", rath_core::fresh_name()));
        let made = io_error(format!("creating {}", unfinished.display()));
        let zipped = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("zip"));
        let form = match zipped {
            true => File::create_new(&unfinished).map(|file| {
                let failed = Arc::new(AtomicBool::new(false));
                let file = BufWriter::with_capacity(1 << 20, file);
                Form::Zip(Box::new(ZipWriter::new(ZipFile { file, at: 0, failed: failed.clone() })), failed)
            }),
            false => fs::create_dir(&unfinished)
                .and_then(|()| fs::create_dir(unfinished.join(super::BLOBS)))
                .map(|()| Form::Directory),
        };
        Ok(Self { path: path.into(), form: form.map_err(made)?, unfinished, sums: BTreeMap::new() })
    }

    /// Starts a file that is not listed in `SHA256SUMS`.
    pub(super) fn start_unlisted(&mut self, name: &str) -> Result<Entry<'_>, BundleError> {
        Ok(Entry { hash: None, ..self.start(name)? })
    }

    /// Starts a file.
    pub(super) fn start(&mut self, name: impl Into<String>) -> Result<Entry<'_>, BundleError> {
        let name = name.into();
        let out = match &mut self.form {
            Form::Directory => {
                let path = self.unfinished.join(&name);
                let file = File::create_new(&path).map_err(io_error(format!("creating {}", path.display())))?;
                Out::File(BufWriter::with_capacity(1 << 16, file))
            }
            Form::Zip(zip, _) => {
                // A fixed time and fixed options: the same content gives the same bytes.
                let options = SimpleFileOptions::default()
                    .compression_method(CompressionMethod::Deflated)
                    .last_modified_time(DateTime::DEFAULT)
                    .unix_permissions(0o644)
                    .large_file(true);
                zip.start_file(&name, options).map_err(|error| io_error(format!("writing {name}"))(error.into()))?;
                Out::Zip(zip)
            }
        };
        Ok(Entry { name, out, hash: Some(Sha256::new()), bytes: 0, sums: &mut self.sums })
    }

    /// Writes a whole file.
    pub(super) fn file(&mut self, name: &str, content: &[u8]) -> Result<(), BundleError> {
        let mut entry = self.start(name)?;
        entry.write(content)?;
        entry.end().map(drop)
    }

    /// Writes `SHA256SUMS` and gives the bundle its final name. Nothing is synced: a bundle shows by itself whether it
    /// is complete.
    pub(super) fn finish(mut self) -> Result<(), BundleError> {
        let mut sums = Vec::new();
        for (name, digest) in std::mem::take(&mut self.sums) {
            sums.extend_from_slice(format!("{digest}  {name}\n").as_bytes());
        }
        self.file(SUMS, &sums)?;
        let Self { path, unfinished, form, .. } = &mut self;
        let doing = format!("writing {}", path.display());
        let finished = match std::mem::replace(form, Form::Directory) {
            Form::Directory => Ok(()),
            Form::Zip(zip, _) => zip.finish().map_err(io::Error::from).and_then(ZipFile::end),
        };
        // Renaming replaces an empty directory.
        finished.and_then(|()| fs::rename(unfinished, path)).map_err(io_error(doing))
    }
}

impl Drop for BundleWriter {
    fn drop(&mut self) {
        if let Form::Zip(_, failed) = &self.form {
            failed.store(true, Ordering::Relaxed);
        }
        // Removes an unfinished bundle.
        let _ = match self.unfinished.is_dir() {
            true => fs::remove_dir_all(&self.unfinished),
            false => fs::remove_file(&self.unfinished),
        };
    }
}

impl Entry<'_> {
    pub(super) fn write(&mut self, part: &[u8]) -> Result<(), BundleError> {
        if let Some(hash) = &mut self.hash {
            hash.update(part);
        }
        self.bytes += part.len() as u64;
        let written = match &mut self.out {
            Out::File(file) => file.write_all(part),
            Out::Zip(zip) => zip.write_all(part),
        };
        written.map_err(io_error(format!("writing {}", self.name)))
    }

    /// Ends the file. Returns its digest, if it is listed, and its length.
    pub(super) fn end(self) -> Result<(Option<Digest>, u64), BundleError> {
        let digest = self.hash.map(|hash| Digest(hash.finalize().into()));
        if let Out::File(mut file) = self.out {
            file.flush().map_err(io_error(format!("writing {}", self.name)))?;
        }
        self.sums.extend(digest.map(|digest| (self.name, digest)));
        Ok((digest, self.bytes))
    }
}
