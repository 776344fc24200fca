//! Squashes layers: merges several layers into one with the same view.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rath_core::files::FilePath;
use rustix::fs::{
    AtFlags, CWD, Dir as Listing, FileType, Mode, Timespec, Timestamps, XattrFlags, fchmod, fgetxattr, flistxattr,
    fsetxattr, fstat, futimens, linkat, mkdirat, openat, statat,
};
use rustix::io::Errno;

use super::layers_dir::{LayersDir, remove_tree};
use super::marks::{self, DirMarker};
use super::stack::{Layer, Lookup, Stack};
use crate::error::{Error, Result};
use crate::root::{DIRECTORY, Root, os};

/// Merges all of these layers except the first, which is the checkout, and returns the name of the new layer. Files are
/// hard-linked, not copied.
pub(super) fn squash(layers_dir: &LayersDir, lowers: &[String]) -> Result<String> {
    let open = |name: &String| Root::open(&layers_dir.path.join(name));
    let stack = Stack::of(lowers.iter().rev().map(open).collect::<Result<_>>()?);
    let name = LayersDir::fresh_layer();
    let aside = layers_dir.temporary_dir(&name)?;
    let make = || {
        let fd = openat(CWD, &aside, DIRECTORY, Mode::empty())?;
        let layers: Vec<Layer> = stack.all();
        let (checkout, sealed) = layers.split_last().unwrap_or((&0, &[]));
        Squash { stack: &stack, checkout: *checkout }.directory(fd, &FilePath::root(), sealed, true)
    };
    let made = make().map_err(|error| Error::machine(format!("making {}", aside.display()), error));
    match made.and_then(|()| layers_dir.publish(&aside, &name)) {
        Ok(_) => Ok(name),
        Err(error) => {
            let _ = remove_tree(&aside);
            Err(error)
        }
    }
}

struct Squash<'a> {
    stack: &'a Stack,
    checkout: Layer,
}

impl Squash<'_> {
    /// Fills the directory `to` with the merged content of `layers` at a path. `shows` tells whether the checkout is
    /// visible there.
    fn directory(&self, to: OwnedFd, path: &FilePath, layers: &[Layer], shows: bool) -> rustix::io::Result<()> {
        let mut seen = std::collections::BTreeMap::new();
        let mut first = None;
        for &layer in layers {
            let mut listing = Listing::new(self.stack.root(layer).directory(path)?)?;
            for listed in marks::list(&mut listing, layer, true)? {
                seen.entry(listed.name.clone()).or_insert(listed);
            }
            if first.is_none() {
                first = Some(Root::directory_in(listing.fd()?, &".".into())?);
            }
        }
        let below = || match shows {
            true => vec![self.checkout],
            false => Vec::new(),
        };
        for (name, listed) in seen {
            if listed.is_whiteout {
                // A whiteout is needed only if it hides something. Overlayfs would show one that hides nothing as a
                // device.
                if !matches!(self.stack.look_up_in(path, &below(), &name)?, Lookup::Missing) {
                    marks::make_whiteout(to.as_fd(), &name)?;
                }
                continue;
            }
            let from = self.stack.root(listed.layer).directory(path)?;
            let stat = statat(&from, os(&name), AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                link(from.as_fd(), to.as_fd(), &name)?;
                continue;
            }
            let Lookup::Directory(inside, _) = self.stack.look_up_in(path, layers, &name)? else { continue };
            let path = path.join(&name);
            mkdirat(&to, os(&name), Mode::from_raw_mode(0o700))?;
            let made = Root::directory_in(to.as_fd(), &name)?;
            let is_opaque = self.is_opaque(&path, layers, &inside)?;
            if is_opaque {
                marks::set_opaque(made.as_fd())?;
            }
            self.directory(made, &path, &inside, shows && !is_opaque)?;
        }
        match first {
            Some(from) => copy_metadata(from.as_fd(), to.as_fd()),
            None => Ok(()),
        }
    }

    /// Whether the layers hide the directory that the checkout has at this path.
    fn is_opaque(&self, path: &FilePath, around: &[Layer], inside: &[Layer]) -> rustix::io::Result<bool> {
        let last = inside.last().copied().unwrap_or_default();
        let fd = self.stack.root(last).directory(path)?;
        if marks::dir_marker(fd.as_fd()) == DirMarker::Opaque {
            return Ok(true);
        }
        // A file or whiteout in a deeper layer hides the checkout too.
        let (directory, name) = path.split();
        let further: Vec<Layer> = around.iter().copied().filter(|layer| *layer > last).collect();
        for layer in further {
            let fd = self.stack.root(layer).directory(&directory)?;
            if statat(&fd, os(&name), AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Hard-links a file. Copies it if the file has the maximum number of links.
fn link(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &FilePath) -> rustix::io::Result<()> {
    match linkat(from, os(name), to, os(name), AtFlags::empty()) {
        Err(Errno::MLINK) => copy(from, to, name),
        done => done,
    }
}

fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &FilePath) -> rustix::io::Result<()> {
    use rustix::fs::OFlags;
    let mut source = File::from(openat(from, os(name), crate::root::READ, Mode::empty())?);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut copy = File::from(openat(to, os(name), flags, Mode::from_raw_mode(0o600))?);
    let io = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    std::io::copy(&mut source, &mut copy).map_err(io)?;
    fchmod(&copy, Mode::from_raw_mode(fstat(&source)?.st_mode & 0o7777))
}

/// Copies permissions, times and extended attributes from one directory to another, except overlay marks.
fn copy_metadata(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let mut names = vec![0; 1 << 16];
    let length = flistxattr(from, &mut names).unwrap_or(0);
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if name.starts_with(b"user.overlay.") && !name.starts_with(b"user.overlay.overlay.") {
            continue;
        }
        let mut value = vec![0; 1 << 16];
        if let Ok(length) = fgetxattr(from, name, &mut value) {
            let _ = fsetxattr(to, name, &value[..length], XattrFlags::empty());
        }
    }
    let stat = fstat(from)?;
    fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    let time = |seconds: i64, nanos: u64| Timespec { tv_sec: seconds, tv_nsec: nanos as i64 };
    let times = Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    };
    futimens(to, &times)
}
