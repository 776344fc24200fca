//! Many layers made one, with the same view.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rath_core::files::Name;
use rustix::fs::{
    AtFlags, CWD, Dir as Listing, FileType, Mode, Timespec, Timestamps, XattrFlags, fchmod, fgetxattr, flistxattr,
    fsetxattr, fstat, futimens, linkat, mkdirat, openat, statat,
};
use rustix::io::Errno;

use super::home::{Home, remove_tree};
use super::marks::{self, Opacity};
use super::stack::{Layer, Spot, Stack};
use crate::error::{Error, Result};
use crate::root::{DIRECTORY, Root, os};

/// Makes one layer of all but the first of these, and says its name. Files are not copied: they get another name.
pub(super) fn squash(home: &Home, lowers: &[String]) -> Result<String> {
    let open = |name: &String| Root::open(&home.path.join(name));
    let stack = Stack::of(lowers.iter().rev().map(open).collect::<Result<_>>()?);
    let name = Home::fresh_layer();
    let aside = home.unfinished(&name)?;
    let make = || {
        let fd = openat(CWD, &aside, DIRECTORY, Mode::empty())?;
        let layers: Vec<Layer> = stack.all();
        let (checkout, sealed) = layers.split_last().unwrap_or((&0, &[]));
        Squash { stack: &stack, checkout: *checkout }.directory(fd, &Name::root(), sealed, true)
    };
    let made = make().map_err(|error| Error::machine(format!("making {}", aside.display()), error));
    match made.and_then(|()| home.put(&aside, &name)) {
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
    /// Fills a directory with what these layers have at a path. `shows` says whether the checkout shows through there.
    fn directory(&self, to: OwnedFd, path: &Name, layers: &[Layer], shows: bool) -> rustix::io::Result<()> {
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
            if listed.is_gone {
                // A whiteout with nothing below it would be seen.
                if !matches!(self.stack.step(path, &below(), &name)?, Spot::Nothing) {
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
            let Spot::Directory(inside, _) = self.stack.step(path, layers, &name)? else { continue };
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
            Some(from) => copy_dress(from.as_fd(), to.as_fd()),
            None => Ok(()),
        }
    }

    /// Whether something in the layers hides what the checkout has at a directory's path.
    fn is_opaque(&self, path: &Name, around: &[Layer], inside: &[Layer]) -> rustix::io::Result<bool> {
        let last = inside.last().copied().unwrap_or_default();
        let fd = self.stack.root(last).directory(path)?;
        if marks::opacity(fd.as_fd()) == Opacity::Opaque {
            return Ok(true);
        }
        // A file or a whiteout further down ends the view as well.
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

/// Gives a file another name; where that is not possible any more, copies it.
fn link(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &Name) -> rustix::io::Result<()> {
    match linkat(from, os(name), to, os(name), AtFlags::empty()) {
        Err(Errno::MLINK) => copy(from, to, name),
        done => done,
    }
}

fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &Name) -> rustix::io::Result<()> {
    use rustix::fs::OFlags;
    let mut source = File::from(openat(from, os(name), crate::root::READ, Mode::empty())?);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut copy = File::from(openat(to, os(name), flags, Mode::from_raw_mode(0o600))?);
    let io = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    std::io::copy(&mut source, &mut copy).map_err(io)?;
    fchmod(&copy, Mode::from_raw_mode(fstat(&source)?.st_mode & 0o7777))
}

/// Gives a directory the permissions, times and attributes of another one; the marks are its own.
fn copy_dress(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> rustix::io::Result<()> {
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
