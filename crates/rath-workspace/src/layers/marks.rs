//! The marks by which overlayfs says that something of the layers below is gone.
//!
//! A *whiteout* hides what has its name below: a device 0/0, or an empty file with an attribute in a directory that
//! says so. An *opaque* directory hides all that is in the directories below it.

use std::os::fd::{AsFd as _, BorrowedFd};

use rath_core::files::Name;
use rustix::fs::{
    AtFlags, CWD, Dir as Listing, FileType, Mode, XattrFlags, fgetxattr, fremovexattr, fsetxattr, mknodat, openat,
    statat,
};
use rustix::io::Errno;

use super::stack::Layer;
use crate::root::{DIRECTORY, READ, os};

const OPAQUE: &str = "user.overlay.opaque";
const WHITEOUT: &str = "user.overlay.whiteout";

/// What a directory says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opacity {
    /// It goes together with the directories below it.
    Clear,
    /// It stands alone.
    Opaque,
    /// It goes together with those below, and empty files in it may be whiteouts.
    MarkedFiles,
}

/// A name in a directory of one layer.
pub(crate) struct Listed {
    pub(crate) name: Name,
    pub(crate) kind: FileType,
    pub(crate) layer: Layer,
    /// Whether it is a whiteout.
    pub(crate) is_gone: bool,
}

pub(crate) fn opacity(directory: BorrowedFd<'_>) -> Opacity {
    let mut value = [0; 2];
    match fgetxattr(directory, OPAQUE, &mut value) {
        Ok(1) if value[0] == b'y' => Opacity::Opaque,
        Ok(1) if value[0] == b'x' => Opacity::MarkedFiles,
        _ => Opacity::Clear,
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

pub(crate) fn make_whiteout(at: BorrowedFd<'_>, name: &Name) -> rustix::io::Result<()> {
    mknodat(at, os(name), FileType::CharacterDevice, Mode::empty(), 0)
}

/// Whether an entry is a whiteout.
pub(crate) fn is_whiteout(at: BorrowedFd<'_>, name: &Name, kind: FileType, around: Opacity) -> bool {
    match kind {
        FileType::CharacterDevice | FileType::Unknown => statat(at, os(name), AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0),
        FileType::RegularFile if around == Opacity::MarkedFiles => {
            let is_empty = statat(at, os(name), AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| stat.st_size == 0);
            is_empty
                && openat(at, os(name), READ, Mode::empty())
                    .is_ok_and(|file| fgetxattr(file, WHITEOUT, &mut [0; 16]).is_ok())
        }
        _ => false,
    }
}

/// The names in a directory of one layer. Without `marks` nothing is a whiteout.
pub(crate) fn list(listing: &mut Listing, layer: Layer, marks: bool) -> rustix::io::Result<Vec<Listed>> {
    let mut names = Vec::with_capacity(16);
    while let Some(entry) = listing.read() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(Listed { name: Name::from(name), kind: entry.file_type(), layer, is_gone: false });
        }
    }
    if marks {
        let fd = listing.fd()?;
        let around = opacity(fd);
        for listed in &mut names {
            listed.is_gone = is_whiteout(fd, &listed.name, listed.kind, around);
        }
    }
    Ok(names)
}

/// Whether a directory can hold the marks.
pub(crate) fn are_possible_in(directory: &std::path::Path) -> rustix::io::Result<()> {
    let fd = openat(CWD, directory, DIRECTORY, Mode::empty())?;
    set_opaque(fd.as_fd())?;
    set_clear(fd.as_fd())
}
