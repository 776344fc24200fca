//! Files of a workspace.

mod beneath;
mod kept;
pub(crate) mod tree;

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::error::Why;
use crate::sandbox::{Contents, Entry, EntryKind, Part, Written};
use crate::starting;
use beneath::{speakable, split};

pub(crate) use beneath::Root;
pub(crate) use kept::Kept;

/// What comes of touching files.
pub(crate) type Outcome<T> = Result<T, Fault>;

/// Why it failed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The path is at fault.
    Path(Why),
    /// The machine is.
    Machine(io::Error),
}

impl From<Errno> for Fault {
    fn from(error: Errno) -> Self {
        Fault::Path(match error {
            Errno::NOENT => Why::Missing,
            Errno::XDEV => Why::Outside,
            Errno::LOOP => Why::Links,
            Errno::NOTDIR => Why::NotADirectory,
            Errno::ISDIR => Why::IsDirectory,
            Errno::NXIO => Why::Special,
            Errno::ACCESS | Errno::PERM => Why::Denied,
            Errno::NAMETOOLONG | Errno::INVAL => Why::Unspeakable,
            other => return Fault::Machine(other.into()),
        })
    }
}

/// How many links in a row are followed to the file that is written.
const MOST_LINKS: usize = 40;

/// How much of a file is read at once.
const AT_ONCE: usize = 1 << 20;

const PERMISSIONS: u32 = 0o7777;

pub(crate) fn read(root: &Root, path: &Path, part: Part) -> Outcome<Contents> {
    // Without NONBLOCK a pipe would make us wait for its writer.
    let file = root.look_up(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    let stat = rustix::fs::fstat(&file)?;
    regular(&stat)?;
    let size = stat.st_size as u64;
    let there = size.saturating_sub(part.offset).min(part.limit);
    let mut bytes = Vec::new();
    // One byte more than there should be: the read that finds the end.
    let room = usize::try_from(there).unwrap_or(usize::MAX).saturating_add(1);
    bytes.try_reserve_exact(room).map_err(|error| Fault::Machine(io::Error::new(io::ErrorKind::OutOfMemory, error)))?;
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
            let length = again(|| rustix::io::pread(&file, &mut bytes[end..], at))?;
            bytes.truncate(end + length);
            length
        } else {
            let most = wanted.min(chunk.len());
            let length = again(|| rustix::io::pread(&file, &mut chunk[..most], at))?;
            bytes.extend_from_slice(&chunk[..length]);
            length
        };
        if length == 0 {
            break;
        }
    }
    Ok(Contents { bytes, size, mode: stat.st_mode & PERMISSIONS })
}

/// The content goes to a new file, which then takes the name: nobody sees half of it, and other names of the old file
/// are left alone.
pub(crate) fn write(root: &Root, path: &Path, bytes: &[u8], mode: Option<u32>) -> Outcome<Written> {
    let (directory, path, old) = place(root, path)?;
    let (_, name) = split(&path).ok_or(Fault::Path(Why::Workspace))?;
    if let Some(old) = &old {
        regular(old)?;
    }
    root.may_change(&directory, name)?;
    let is = if old.is_some() { Written::Replaced } else { Written::New };
    let mode = mode.map(|mode| mode & PERMISSIONS).or_else(|| old.map(|old| old.st_mode & PERMISSIONS));
    let fresh = format!(".rath-{}.tmp", rath_core::fresh_name());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let _quiet = mode.is_some_and(|mode| mode & 0o111 != 0).then(starting::none);
    let file = rustix::fs::openat(&directory, &fresh, flags, Mode::from_raw_mode(0o666))?;
    let written = fill(&file, bytes, mode).and_then(|()| take_name(&directory, &fresh, name, old.is_some()));
    if written != Ok(false) {
        // The old file after an exchange, or the new one after a failure.
        let _ = rustix::fs::unlinkat(&directory, &fresh, AtFlags::empty());
    }
    Ok(written.map(|_| is)?)
}

/// Gives the file `fresh` the name of the one it replaces. Says whether `fresh` is the old one now.
///
/// Renaming over a file makes ext4 find a place on disk for the new one at once, which takes longer than all the
/// rest; exchanging names does not.
fn take_name(directory: &OwnedFd, fresh: &str, name: &OsStr, replaces: bool) -> Result<bool, Errno> {
    if replaces && rustix::fs::renameat_with(directory, fresh, directory, name, RenameFlags::EXCHANGE).is_ok() {
        return Ok(true);
    }
    rustix::fs::renameat(directory, fresh, directory, name).map(|()| false)
}

fn fill(file: &OwnedFd, mut bytes: &[u8], mode: Option<u32>) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = again(|| rustix::io::write(file, bytes))?;
        bytes = &bytes[written..];
    }
    match mode {
        Some(mode) => rustix::fs::fchmod(file, Mode::from_raw_mode(mode)),
        None => Ok(()),
    }
}

/// Where a file that is written really is: its directory, its path without a link at the end, and what is there now.
fn place(root: &Root, path: &Path) -> Outcome<(OwnedFd, PathBuf, Option<Stat>)> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        speakable(&path)?;
        if path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(Fault::Path(Why::IsDirectory));
        }
        let Some((parent, name)) = split(&path) else {
            // It ends in `..`, or is empty: a directory, here or outside.
            return Err(root.directory(&path).err().unwrap_or(Fault::Path(Why::IsDirectory)));
        };
        let directory = root.made_directory(parent)?;
        let stat = match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error.into()),
        };
        if stat.is_none_or(|stat| kind(&stat) != EntryKind::Link) {
            return Ok((directory, path, stat));
        }
        let target = rustix::fs::readlinkat(&directory, name, Vec::new())?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        if target.is_absolute() {
            return Err(Fault::Path(Why::Outside));
        }
        path = parent.join(target);
    }
    Err(Fault::Path(Why::Links))
}

pub(crate) fn list(root: &Root, path: &Path) -> Outcome<Vec<Entry>> {
    let directory = root.look_up(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut entries = Vec::new();
    for name in names(&directory)? {
        let stat = match rustix::fs::statat(&directory, &*name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue, // gone meanwhile
            Err(error) => return Err(error.into()),
        };
        let name = OsStr::from_bytes(&name).to_owned();
        let (kind, size, mode) = (kind(&stat), stat.st_size as u64, stat.st_mode & PERMISSIONS);
        entries.push(Entry { name, kind, size, mode });
    }
    entries.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
    Ok(entries)
}

/// The path without links and dots.
pub(crate) fn real(root: &Root, path: &Path) -> Outcome<PathBuf> {
    speakable(path)?;
    let (mut real, mut links) = (PathBuf::new(), 0);
    let mut rest: Vec<PathBuf> = vec![path.to_owned()];
    while let Some(next) = rest.pop() {
        let mut components = next.components();
        let Some(component) = components.next() else { continue };
        rest.push(components.as_path().to_owned());
        let name = match component {
            Component::Normal(name) => name,
            Component::ParentDir if !real.pop() => return Err(Fault::Path(Why::Outside)),
            Component::ParentDir | Component::CurDir => continue,
            Component::RootDir | Component::Prefix(_) => return Err(Fault::Path(Why::Outside)),
        };
        let target = match root.directory(&real) {
            Ok(directory) => rustix::fs::readlinkat(&directory, name, Vec::new()),
            Err(Fault::Path(Why::Missing | Why::NotADirectory)) => Err(Errno::NOENT),
            Err(fault) => return Err(fault),
        };
        match target {
            Ok(_) if links == MOST_LINKS => return Err(Fault::Path(Why::Links)),
            Ok(target) => {
                links += 1;
                rest.push(Path::new(OsStr::from_bytes(target.as_bytes())).to_owned());
            }
            // Not a link, or nothing.
            Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR) => real.push(name),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(real)
}

pub(crate) fn remove(root: &Root, path: &Path) -> Outcome<()> {
    speakable(path)?;
    let Some((parent, name)) = split(path) else {
        return Err(root.directory(path).err().unwrap_or(Fault::Path(Why::Workspace)));
    };
    let directory = root.directory(parent)?;
    root.may_change(&directory, name)?;
    tree::remove_at(directory.as_fd(), name, false).map_err(Fault::from)
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

fn kind(stat: &Stat) -> EntryKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Special,
    }
}

fn regular(stat: &Stat) -> Outcome<()> {
    match kind(stat) {
        EntryKind::File => Ok(()),
        EntryKind::Directory => Err(Fault::Path(Why::IsDirectory)),
        EntryKind::Link => Err(Fault::Path(Why::Links)),
        EntryKind::Special => Err(Fault::Path(Why::Special)),
    }
}

fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}
