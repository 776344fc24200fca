//! Covers the sockets and FIFOs of the workspace, because a process outside of the sandbox may listen on them.
//!
//! Neither a network namespace nor a read-only mount prevents a command from connecting to a socket or opening a FIFO
//! that is visible in the workspace. So each of them is covered by a mount of its own, like a hidden file. The Landlock
//! versions that are used here have no access right for them.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat2, statat};
use rustix::io::Errno;
use rustix::mount::mount_bind_recursive;

use super::view::READ_ONLY;
use super::{Doing as _, Outcome, SetupError, raw};

/// Maximum number of sockets and FIFOs. Each of them is a mount, which is copied into the namespace of each command.
const MOST: usize = 1_000;

/// Maximum number of entries of the workspace that are searched, which takes a few seconds.
const MOST_ENTRIES: usize = 4_000_000;

/// Maximum length of a path for one system call, with some room below the kernel's limit of 4,096 bytes.
const LONGEST_PATH: usize = 3_500;

/// The sockets and FIFOs in a workspace.
#[derive(Default)]
pub(super) struct Endpoints {
    /// Sockets and FIFOs, relative to the workspace.
    pub(super) found: Vec<PathBuf>,
    /// Directories that could not be read.
    pub(super) unread: Vec<PathBuf>,
}

impl Endpoints {
    /// Finds the files of these kinds below `workspace`, without following links. Fails if there are too many of them
    /// or too many entries to search, because a command could hide one among them.
    pub(super) fn find(workspace: &Path, kinds: &[FileType]) -> Outcome<Self> {
        let mut endpoints = Self::default();
        let mut entries = 0;
        let mut directories = vec![PathBuf::new()];
        let root = open_workspace(workspace)?;
        while let Some(path) = directories.pop() {
            let mut listing = match open_directory(root.as_fd(), &path).and_then(Dir::new) {
                Ok(listing) => listing,
                Err(error) if is_gone(error) => continue,
                Err(Errno::ACCESS) => {
                    endpoints.unread.push(path);
                    continue;
                }
                Err(error) => return Err(error).doing(&format!("searching for sockets in {}", path.display())),
            };
            while let Some(entry) = listing.read() {
                let entry = entry.doing(&format!("searching for sockets in {}", path.display()))?;
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                entries += 1;
                if entries > MOST_ENTRIES {
                    return Err(too_many("entries in the workspace were searched for sockets and FIFOs", MOST_ENTRIES));
                }
                let kind = kind_of(&listing, name, entry.file_type());
                if kind == FileType::Directory {
                    directories.push(path.join(OsStr::from_bytes(name.to_bytes())));
                } else if kinds.contains(&kind) {
                    endpoints.found.push(path.join(OsStr::from_bytes(name.to_bytes())));
                }
            }
            if endpoints.found.len() > MOST {
                return Err(too_many("sockets and FIFOs are in the workspace", MOST));
            }
        }
        endpoints.found.sort();
        Ok(endpoints)
    }

    /// Covers each of them. Returns those that were covered; a missing one is skipped.
    pub(super) fn cover(&self, workspace: &Path) -> Outcome<Vec<PathBuf>> {
        let root = open_workspace(workspace)?;
        let mut covered = Vec::with_capacity(self.found.len());
        for path in &self.found {
            let parent = path.parent().unwrap_or(Path::new(""));
            let directory = match open_directory(root.as_fd(), parent) {
                Ok(directory) => directory,
                Err(error) if is_gone(error) => continue,
                Err(error) => return Err(error).doing(&format!("covering {}", path.display())),
            };
            let name = path.file_name().unwrap_or_default();
            let within = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
            match cover(&within.join(name)) {
                Err(error) if is_gone(error) => {}
                done => {
                    done.doing(&format!("covering {}", path.display()))?;
                    covered.push(path.clone());
                }
            }
        }
        Ok(covered)
    }
}

/// Covers a file that is not a directory by a read-only mount of `/dev/null`, so that it can neither be opened nor
/// connected to.
pub(super) fn cover(path: &Path) -> rustix::io::Result<()> {
    mount_bind_recursive("/dev/null", path)?;
    raw::restrict_mounts(path, READ_ONLY)
}

fn open_workspace(workspace: &Path) -> Outcome<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, workspace, flags, Mode::empty()).doing("searching for sockets in the workspace")
}

/// Opens a directory below `root` at any depth, for listing it and for mounting in it.
fn open_directory(root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let open = |at: BorrowedFd<'_>, path: &Path, flags| {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        openat2(at, path, flags | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), beneath)
    };
    let mut above: Option<OwnedFd> = None;
    let mut piece = PathBuf::new();
    for name in path {
        if piece.as_os_str().len() + name.len() > LONGEST_PATH {
            above = Some(open(above.as_ref().map_or(root, |above| above.as_fd()), &piece, OFlags::PATH)?);
            piece = PathBuf::new();
        }
        piece.push(name);
    }
    open(above.as_ref().map_or(root, |above| above.as_fd()), &piece, OFlags::RDONLY)
}

fn kind_of(listing: &Dir, name: &CStr, listed: FileType) -> FileType {
    match (listed, listing.fd()) {
        // Some file systems do not report the kind in listings.
        (FileType::Unknown, Ok(fd)) => statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
        _ => listed,
    }
}

fn is_gone(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
}

fn too_many(what: &str, limit: usize) -> SetupError {
    let doing = format!("opening the workspace in place: more than {limit} {what}; remove some, or work in a copy");
    SetupError { doing, error: Errno::TOOBIG }
}
