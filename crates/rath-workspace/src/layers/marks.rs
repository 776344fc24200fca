//! The marks by which overlayfs hides entries of lower layers.
//!
//! A *whiteout* hides the entry with the same name in lower layers. It is either a character device 0/0, or an empty
//! file with the attribute `user.overlay.whiteout` in a directory whose attribute `user.overlay.opaque` is `x`. An
//! *opaque* directory (`user.overlay.opaque` is `y`) hides everything in the same directory of lower layers.

use std::os::fd::{AsFd as _, BorrowedFd};

use rath_core::files::FilePath;
use rustix::fs::{
    AtFlags, CWD, Dir as Listing, FileType, Mode, XattrFlags, fgetxattr, fremovexattr, fsetxattr, mknodat, openat,
    statat,
};
use rustix::io::Errno;

use super::stack::Layer;
use crate::root::{DIRECTORY, READ, os};

const OPAQUE: &str = "user.overlay.opaque";
const WHITEOUT: &str = "user.overlay.whiteout";

/// The value of a directory's `user.overlay.opaque` attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirMarker {
    /// Merged with the same directory in lower layers.
    None,
    /// Hides the same directory in lower layers.
    Opaque,
    /// Merged with lower layers; empty files in it may be whiteouts.
    FileWhiteouts,
}

/// An entry of a directory in one layer.
pub(crate) struct ListedEntry {
    pub(crate) name: FilePath,
    pub(crate) kind: FileType,
    pub(crate) layer: Layer,
    pub(crate) is_whiteout: bool,
}

pub(crate) fn dir_marker(directory: BorrowedFd<'_>) -> DirMarker {
    let mut value = [0; 2];
    match fgetxattr(directory, OPAQUE, &mut value) {
        Ok(1) if value[0] == b'y' => DirMarker::Opaque,
        Ok(1) if value[0] == b'x' => DirMarker::FileWhiteouts,
        _ => DirMarker::None,
    }
}

pub(crate) fn set_opaque(directory: BorrowedFd<'_>) -> rustix::io::Result<()> {
    fsetxattr(directory, OPAQUE, b"y", XattrFlags::empty())
}

pub(crate) fn set_clear(directory: BorrowedFd<'_>) -> rustix::io::Result<()> {
    match fremovexattr(directory, OPAQUE) {
        Err(Errno::NODATA) => Ok(()),
        done => done,
    }
}

pub(crate) fn make_whiteout(at: BorrowedFd<'_>, name: &FilePath) -> rustix::io::Result<()> {
    mknodat(at, os(name), FileType::CharacterDevice, Mode::empty(), 0)
}

/// Whether an entry is a whiteout.
pub(crate) fn is_whiteout(at: BorrowedFd<'_>, name: &FilePath, kind: FileType, around: DirMarker) -> bool {
    match kind {
        FileType::CharacterDevice | FileType::Unknown => statat(at, os(name), AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0),
        FileType::RegularFile if around == DirMarker::FileWhiteouts => {
            let is_empty = statat(at, os(name), AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| stat.st_size == 0);
            is_empty
                && openat(at, os(name), READ, Mode::empty())
                    .is_ok_and(|file| fgetxattr(file, WHITEOUT, &mut [0; 16]).is_ok())
        }
        _ => false,
    }
}

/// Lists a directory of one layer. Recognizes whiteouts only if `marks` is true.
pub(crate) fn list(listing: &mut Listing, layer: Layer, marks: bool) -> rustix::io::Result<Vec<ListedEntry>> {
    let mut names = Vec::with_capacity(16);
    while let Some(entry) = listing.read() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(ListedEntry { name: FilePath::from(name), kind: entry.file_type(), layer, is_whiteout: false });
        }
    }
    if marks {
        let fd = listing.fd()?;
        let around = dir_marker(fd);
        for listed in &mut names {
            listed.is_whiteout = is_whiteout(fd, &listed.name, listed.kind, around);
        }
    }
    Ok(names)
}

/// Fails if the file system of a directory does not support the marks.
pub(crate) fn check_supported(directory: &std::path::Path) -> rustix::io::Result<()> {
    let fd = openat(CWD, directory, DIRECTORY, Mode::empty())?;
    set_opaque(fd.as_fd())?;
    set_clear(fd.as_fd())
}
