//! Where a bundle is written: a directory or a zip, under another name until it is whole.

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

use super::{Error, SUMS, machine};

/// A bundle on its way to disk. Files are written one after the other; their digests are kept for `SHA256SUMS`.
pub(super) struct Target {
    path: PathBuf,
    unfinished: PathBuf,
    form: Form,
    sums: BTreeMap<String, Digest>,
}

enum Form {
    Directory,
    Zip(Box<ZipWriter<Sink>>, Arc<AtomicBool>),
}

/// The file of a zip. Once it is given up, by whoever writes or by a disk that refuses, it swallows what comes: a zip that is
/// dropped writes its end all the same, and prints what it thinks of a disk that does not take it.
struct Sink {
    file: BufWriter<File>,
    at: u64,
    given_up: Arc<AtomicBool>,
}

impl Sink {
    fn unless_given_up<T>(
        &mut self,
        nothing: T,
        work: impl FnOnce(&mut BufWriter<File>) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.given_up.load(Ordering::Relaxed) {
            return Ok(nothing);
        }
        let done = work(&mut self.file);
        let is_refused = done.as_ref().err().is_some_and(|error| error.kind() != io::ErrorKind::Interrupted);
        self.given_up.fetch_or(is_refused, Ordering::Relaxed);
        done
    }

    /// Ends the file; fails where it was given up.
    fn end(mut self) -> io::Result<()> {
        self.flush()?;
        match self.given_up.load(Ordering::Relaxed) {
            true => Err(io::Error::other("it was given up before")),
            false => Ok(()),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.unless_given_up(bytes.len(), |file| file.write(bytes))?;
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.unless_given_up((), BufWriter::flush)
    }
}

impl Seek for Sink {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let supposed = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) | SeekFrom::End(by) => self.at.saturating_add_signed(by),
        };
        self.at = self.unless_given_up(supposed, |file| file.seek(to))?;
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
    Zip(&'a mut ZipWriter<Sink>),
}

impl Target {
    /// Begins a bundle at `path`: a zip when the name ends in `.zip`, else a directory.
    pub(super) fn create(path: &Path) -> Result<Self, Error> {
        let empty = || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        if path.symlink_metadata().is_ok() && !(path.is_dir() && empty()) {
            return Err(Error::Exists(path.display().to_string()));
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let unfinished = parent.join(format!(".{name}.{}.unfinished", rath_core::fresh_name()));
        let made = machine(format!("creating {}", unfinished.display()));
        let zipped = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("zip"));
        let form = match zipped {
            true => File::create_new(&unfinished).map(|file| {
                let given_up = Arc::new(AtomicBool::new(false));
                let file = BufWriter::with_capacity(1 << 20, file);
                Form::Zip(Box::new(ZipWriter::new(Sink { file, at: 0, given_up: given_up.clone() })), given_up)
            }),
            false => fs::create_dir(&unfinished)
                .and_then(|()| fs::create_dir(unfinished.join(super::BLOBS)))
                .map(|()| Form::Directory),
        };
        Ok(Self { path: path.into(), form: form.map_err(made)?, unfinished, sums: BTreeMap::new() })
    }

    /// Begins a file that gets no sum.
    pub(super) fn begin_unsummed(&mut self, name: &str) -> Result<Entry<'_>, Error> {
        Ok(Entry { hash: None, ..self.begin(name)? })
    }

    /// Begins a file.
    pub(super) fn begin(&mut self, name: impl Into<String>) -> Result<Entry<'_>, Error> {
        let name = name.into();
        let out = match &mut self.form {
            Form::Directory => {
                let path = self.unfinished.join(&name);
                let file = File::create_new(&path).map_err(machine(format!("creating {}", path.display())))?;
                Out::File(BufWriter::with_capacity(1 << 16, file))
            }
            Form::Zip(zip, _) => {
                // One moment for all, and room for any length: the same contents are the same bytes.
                let options = SimpleFileOptions::default()
                    .compression_method(CompressionMethod::Deflated)
                    .last_modified_time(DateTime::DEFAULT)
                    .unix_permissions(0o644)
                    .large_file(true);
                zip.start_file(&name, options).map_err(|error| machine(format!("writing {name}"))(error.into()))?;
                Out::Zip(zip)
            }
        };
        Ok(Entry { name, out, hash: Some(Sha256::new()), bytes: 0, sums: &mut self.sums })
    }

    /// Writes a whole file.
    pub(super) fn file(&mut self, name: &str, content: &[u8]) -> Result<(), Error> {
        let mut entry = self.begin(name)?;
        entry.write(content)?;
        entry.end().map(drop)
    }

    /// Writes the sums and gives the bundle its name. It is a copy that shows by itself whether it is whole: nothing is
    /// synced.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        let mut sums = Vec::new();
        for (name, digest) in std::mem::take(&mut self.sums) {
            sums.extend_from_slice(format!("{digest}  {name}\n").as_bytes());
        }
        self.file(SUMS, &sums)?;
        let Self { path, unfinished, form, .. } = &mut self;
        let doing = format!("writing {}", path.display());
        let finished = match std::mem::replace(form, Form::Directory) {
            Form::Directory => Ok(()),
            Form::Zip(zip, _) => zip.finish().map_err(io::Error::from).and_then(Sink::end),
        };
        // An empty directory is replaced.
        finished.and_then(|()| fs::rename(unfinished, path)).map_err(machine(doing))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Form::Zip(_, given_up) = &self.form {
            given_up.store(true, Ordering::Relaxed);
        }
        // What was not finished is nobody's.
        let _ = match self.unfinished.is_dir() {
            true => fs::remove_dir_all(&self.unfinished),
            false => fs::remove_file(&self.unfinished),
        };
    }
}

impl Entry<'_> {
    pub(super) fn write(&mut self, part: &[u8]) -> Result<(), Error> {
        if let Some(hash) = &mut self.hash {
            hash.update(part);
        }
        self.bytes += part.len() as u64;
        let written = match &mut self.out {
            Out::File(file) => file.write_all(part),
            Out::Zip(zip) => zip.write_all(part),
        };
        written.map_err(machine(format!("writing {}", self.name)))
    }

    /// Ends the file: its digest, where it has a sum, and its length.
    pub(super) fn end(self) -> Result<(Option<Digest>, u64), Error> {
        let digest = self.hash.map(|hash| Digest(hash.finalize().into()));
        if let Out::File(mut file) = self.out {
            file.flush().map_err(machine(format!("writing {}", self.name)))?;
        }
        self.sums.extend(digest.map(|digest| (self.name, digest)));
        Ok((digest, self.bytes))
    }
}
