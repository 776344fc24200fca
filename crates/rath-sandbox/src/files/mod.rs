//! File operations in a workspace.

mod beneath;
mod protected_paths;
pub(crate) mod tree;

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::error::PathError;
use crate::sandbox::{ByteRange, DirEntry, FileContent, FileKind, WriteOutcome};
use crate::start_lock;
use beneath::{check_path, split};

pub(crate) use beneath::Root;
pub(crate) use protected_paths::ProtectedPaths;

/// The result of a file operation.
pub(crate) type FileResult<T> = Result<T, FileError>;

/// Why a file operation failed.
#[derive(Debug)]
pub(crate) enum FileError {
    /// The path is not accepted.
    Path(PathError),
    /// An operating system call failed.
    Machine(io::Error),
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> Self {
        FileError::Path(match error {
            Errno::NOENT => PathError::Missing,
            Errno::XDEV => PathError::Outside,
            Errno::LOOP => PathError::LinkLoop,
            Errno::NOTDIR => PathError::NotADirectory,
            Errno::ISDIR => PathError::IsDirectory,
            Errno::NXIO => PathError::Special,
            Errno::ACCESS | Errno::PERM => PathError::Denied,
            Errno::NAMETOOLONG | Errno::INVAL => PathError::Invalid,
            other => return FileError::Machine(other.into()),
        })
    }
}

/// Maximum number of links in a path.
const MOST_LINKS: usize = 40;

/// Maximum number of bytes of one read call.
const AT_ONCE: usize = 1 << 20;

const PERMISSIONS: u32 = 0o7777;

pub(crate) fn read(root: &Root, path: &Path, part: ByteRange) -> FileResult<FileContent> {
    // NONBLOCK prevents waiting for the writer of a FIFO.
    let file = root.look_up(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    let stat = rustix::fs::fstat(&file)?;
    check_regular(&stat)?;
    let size = stat.st_size as u64;
    let there = size.saturating_sub(part.offset).min(part.limit);
    let mut bytes = Vec::new();
    // Room for one byte more, for the read that finds the end of the file.
    let room = usize::try_from(there).unwrap_or(usize::MAX).saturating_add(1);
    bytes
        .try_reserve_exact(room)
        .map_err(|error| FileError::Machine(io::Error::new(io::ErrorKind::OutOfMemory, error)))?;
    let mut chunk = [0; 8 << 10];
    loop {
        let room = part.limit - bytes.len() as u64;
        let at = part.offset.saturating_add(bytes.len() as u64);
        if room == 0 || i64::try_from(at).is_err() {
            break;
        }
        let wanted = usize::try_from(room).unwrap_or(usize::MAX);
        let spare = (bytes.capacity() - bytes.len()).min(wanted).min(AT_ONCE);
        let length = if spare > chunk.len() {
            let end = bytes.len();
            bytes.resize(end + spare, 0);
            let length = retry_on_interrupt(|| rustix::io::pread(&file, &mut bytes[end..], at))?;
            bytes.truncate(end + length);
            length
        } else {
            let most = wanted.min(chunk.len());
            let length = retry_on_interrupt(|| rustix::io::pread(&file, &mut chunk[..most], at))?;
            bytes.extend_from_slice(&chunk[..length]);
            length
        };
        if length == 0 {
            break;
        }
    }
    Ok(FileContent { bytes, size, mode: stat.st_mode & PERMISSIONS })
}

/// Writes the content to a new file, then renames it: readers never see a partial file, and other hard links of the old
/// file keep the old content.
pub(crate) fn write(root: &Root, path: &Path, bytes: &[u8], mode: Option<u32>) -> FileResult<WriteOutcome> {
    let (directory, path, old) = resolve_for_write(root, path)?;
    let (_, name) = split(&path).ok_or(FileError::Path(PathError::Workspace))?;
    if let Some(old) = &old {
        check_regular(old)?;
    }
    root.check_writable(&directory, name)?;
    let is = if old.is_some() { WriteOutcome::Replaced } else { WriteOutcome::Created };
    let mode = mode.map(|mode| mode & PERMISSIONS).or_else(|| old.map(|old| old.st_mode & PERMISSIONS));
    let fresh = format!(".rath-{}.tmp", rath_core::fresh_name());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let _quiet = mode.is_some_and(|mode| mode & 0o111 != 0).then(start_lock::block_starts);
    let file = rustix::fs::openat(&directory, &fresh, flags, Mode::from_raw_mode(0o666))?;
    let written = fill(&file, bytes, mode).and_then(|()| rename_over(&directory, &fresh, name, old.is_some()));
    if written != Ok(false) {
        // The temporary name now has the old file (after an exchange) or the new one (after a failure).
        let _ = rustix::fs::unlinkat(&directory, &fresh, AtFlags::empty());
    }
    Ok(written.map(|_| is)?)
}

/// Renames the file `fresh` to `name`. Returns whether `fresh` is the name of the old file now.
///
/// Exchanges the names if a file is replaced. A rename that replaces a file makes ext4 allocate the blocks of the new
/// file at once, which takes longer than everything else here.
fn rename_over(directory: &OwnedFd, fresh: &str, name: &OsStr, replaces: bool) -> Result<bool, Errno> {
    if replaces && rustix::fs::renameat_with(directory, fresh, directory, name, RenameFlags::EXCHANGE).is_ok() {
        return Ok(true);
    }
    rustix::fs::renameat(directory, fresh, directory, name).map(|()| false)
}

fn fill(file: &OwnedFd, mut bytes: &[u8], mode: Option<u32>) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = retry_on_interrupt(|| rustix::io::write(file, bytes))?;
        bytes = &bytes[written..];
    }
    match mode {
        Some(mode) => rustix::fs::fchmod(file, Mode::from_raw_mode(mode)),
        None => Ok(()),
    }
}

/// Resolves the path of a file to write: follows links at its end, and creates missing parent directories. Returns the
/// parent directory, the resolved path, and the existing entry.
fn resolve_for_write(root: &Root, path: &Path) -> FileResult<(OwnedFd, PathBuf, Option<Stat>)> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        check_path(&path)?;
        if path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(FileError::Path(PathError::IsDirectory));
        }
        let Some((parent, name)) = split(&path) else {
            // The path is empty or ends in `..`, so it is a directory, in the workspace or outside.
            return Err(root.directory(&path).err().unwrap_or(FileError::Path(PathError::IsDirectory)));
        };
        let directory = root.create_directory(parent)?;
        let stat = match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error.into()),
        };
        if stat.is_none_or(|stat| kind(&stat) != FileKind::Link) {
            return Ok((directory, path, stat));
        }
        let target = rustix::fs::readlinkat(&directory, name, Vec::new())?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        if target.is_absolute() {
            return Err(FileError::Path(PathError::Outside));
        }
        path = parent.join(target);
    }
    Err(FileError::Path(PathError::LinkLoop))
}

pub(crate) fn list(root: &Root, path: &Path) -> FileResult<Vec<DirEntry>> {
    let directory = root.look_up(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut entries = Vec::new();
    for name in names(&directory)? {
        let stat = match rustix::fs::statat(&directory, &*name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue, // removed since it was listed
            Err(error) => return Err(error.into()),
        };
        let name = OsStr::from_bytes(&name).to_owned();
        let (kind, size, mode) = (kind(&stat), stat.st_size as u64, stat.st_mode & PERMISSIONS);
        entries.push(DirEntry { name, kind, size, mode });
    }
    entries.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
    Ok(entries)
}

/// Resolves all links, `.` and `..` of a path.
pub(crate) fn real_path(root: &Root, path: &Path) -> FileResult<PathBuf> {
    check_path(path)?;
    let (mut real_path, mut links) = (PathBuf::new(), 0);
    let mut rest: Vec<PathBuf> = vec![path.to_owned()];
    while let Some(next) = rest.pop() {
        let mut components = next.components();
        let Some(component) = components.next() else { continue };
        rest.push(components.as_path().to_owned());
        let name = match component {
            Component::Normal(name) => name,
            Component::ParentDir if !real_path.pop() => return Err(FileError::Path(PathError::Outside)),
            Component::ParentDir | Component::CurDir => continue,
            Component::RootDir | Component::Prefix(_) => return Err(FileError::Path(PathError::Outside)),
        };
        let target = match root.directory(&real_path) {
            Ok(directory) => rustix::fs::readlinkat(&directory, name, Vec::new()),
            Err(FileError::Path(PathError::Missing | PathError::NotADirectory)) => Err(Errno::NOENT),
            Err(fault) => return Err(fault),
        };
        match target {
            Ok(_) if links == MOST_LINKS => return Err(FileError::Path(PathError::LinkLoop)),
            Ok(target) => {
                links += 1;
                rest.push(Path::new(OsStr::from_bytes(target.as_bytes())).to_owned());
            }
            // Not a link, or it does not exist.
            Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR) => real_path.push(name),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(real_path)
}

pub(crate) fn remove(root: &Root, path: &Path) -> FileResult<()> {
    check_path(path)?;
    let Some((parent, name)) = split(path) else {
        return Err(root.directory(path).err().unwrap_or(FileError::Path(PathError::Workspace)));
    };
    let directory = root.directory(parent)?;
    root.check_writable(&directory, name)?;
    tree::remove_at(directory.as_fd(), name, false).map_err(FileError::from)
}

fn names(directory: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_bytes().to_vec());
        }
    }
    Ok(names)
}

fn kind(stat: &Stat) -> FileKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Special,
    }
}

fn check_regular(stat: &Stat) -> FileResult<()> {
    match kind(stat) {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(FileError::Path(PathError::IsDirectory)),
        FileKind::Link => Err(FileError::Path(PathError::LinkLoop)),
        FileKind::Special => Err(FileError::Path(PathError::Special)),
    }
}

fn retry_on_interrupt<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}
