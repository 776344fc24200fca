//! Where a call goes: which file, in which directory.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use crate::trace;

/// A name in a directory below the root.
pub(crate) struct Entry {
    /// The directory's inode.
    pub(crate) parent: u64,
    pub(crate) name: Vec<u8>,
    path: CString,
}

impl Entry {
    /// What a path names, when that is below the root and its directory exists.
    ///
    /// # Safety
    /// `path` is a string of C.
    pub(crate) unsafe fn of(dir: c_int, path: *const c_char) -> Option<Self> {
        let setup = trace::setup()?;
        // SAFETY: promised by the caller.
        let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
        let Some(Component::Normal(name)) = path.components().next_back() else { return None };
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let above = match above.is_absolute() || dir == libc::AT_FDCWD {
            true => above.to_path_buf(),
            false => path_of(dir)?.join(above),
        };
        let above = real_path(&above)?;
        if !setup.holds(above.as_os_str().as_bytes()) {
            return None;
        }
        let parent = inode(&c_string(&above)?)?;
        Some(Self { parent, name: name.as_bytes().to_vec(), path: c_string(&above.join(name))? })
    }

    /// The inode it names now.
    pub(crate) fn inode(&self) -> Option<u64> {
        inode(&self.path)
    }
}

/// An open file below the root.
pub(crate) struct Open {
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) name: Vec<u8>,
}

impl Open {
    pub(crate) fn of(fd: c_int) -> Option<Self> {
        let setup = trace::setup()?;
        let path = path_of(fd)?;
        if !setup.holds(path.as_os_str().as_bytes()) {
            return None;
        }
        let stat = stat_of(fd)?;
        let name = path.file_name().unwrap_or_default().as_bytes().to_vec();
        Some(Self { inode: stat.st_ino, size: stat.st_size as u64, name })
    }
}

pub(crate) fn stat_of(fd: c_int) -> Option<libc::stat> {
    // SAFETY: a stat of zeros is one, and the call fills it.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut stat) == 0).then_some(stat)
    }
}

fn path_of(fd: c_int) -> Option<PathBuf> {
    let link = CString::new(format!("/proc/self/fd/{fd}")).ok()?;
    let mut path = [0u8; 4096];
    // SAFETY: the buffer is as long as is said.
    let length = unsafe { libc::readlink(link.as_ptr(), path.as_mut_ptr().cast(), path.len()) };
    let path = path.get(..usize::try_from(length).ok()?)?;
    Some(OsStr::from_bytes(path).into())
}

fn inode(path: &CStr) -> Option<u64> {
    // SAFETY: a stat of zeros is one, and the call fills it.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::lstat(path.as_ptr(), &mut stat) == 0).then_some(stat.st_ino)
    }
}

fn real_path(path: &Path) -> Option<PathBuf> {
    let mut real = [0u8; libc::PATH_MAX as usize];
    let path = c_string(path)?;
    // SAFETY: `realpath` writes at most PATH_MAX bytes, with a zero at their end.
    let found = unsafe { libc::realpath(path.as_ptr(), real.as_mut_ptr().cast()) };
    if found.is_null() {
        return None;
    }
    Some(OsStr::from_bytes(CStr::from_bytes_until_nul(&real).ok()?.to_bytes()).into())
}

fn c_string(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}
