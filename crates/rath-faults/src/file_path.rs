//! Resolves paths and file descriptors to files below the root.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use crate::trace;

/// A directory entry below the root.
pub(crate) struct Entry {
    /// The inode of the directory.
    pub(crate) parent: u64,
    pub(crate) name: Vec<u8>,
    path: CString,
}

impl Entry {
    /// Resolves a path; `None` if it is not below the root or its directory does not exist.
    ///
    /// # Safety
    /// `path` must be a valid C string.
    pub(crate) unsafe fn of(dir: c_int, path: *const c_char) -> Option<Self> {
        let setup = trace::setup()?;
        // SAFETY: the caller guarantees a C string.
        let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
        let Some(Component::Normal(name)) = path.components().next_back() else { return None };
        let dir_path = path.parent().filter(|dir_path| !dir_path.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let dir_path = match dir_path.is_absolute() || dir == libc::AT_FDCWD {
            true => dir_path.to_path_buf(),
            false => path_of(dir)?.join(dir_path),
        };
        let dir_path = real_path(&dir_path)?;
        if !setup.contains(dir_path.as_os_str().as_bytes()) {
            return None;
        }
        let parent = inode(&c_string(&dir_path)?)?;
        Some(Self { parent, name: name.as_bytes().to_vec(), path: c_string(&dir_path.join(name))? })
    }

    /// The inode that the entry refers to now.
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
        if !setup.contains(path.as_os_str().as_bytes()) {
            return None;
        }
        let stat = stat_of(fd)?;
        let name = path.file_name().unwrap_or_default().as_bytes().to_vec();
        Some(Self { inode: stat.st_ino, size: stat.st_size as u64, name })
    }
}

pub(crate) fn stat_of(fd: c_int) -> Option<libc::stat> {
    // SAFETY: a zeroed `stat` is valid, and the call fills it.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut stat) == 0).then_some(stat)
    }
}

fn path_of(fd: c_int) -> Option<PathBuf> {
    let link = CString::new(format!("/proc/self/fd/{fd}")).ok()?;
    let mut path = [0u8; 4096];
    // SAFETY: the length is that of the buffer.
    let length = unsafe { libc::readlink(link.as_ptr(), path.as_mut_ptr().cast(), path.len()) };
    let path = path.get(..usize::try_from(length).ok()?)?;
    Some(OsStr::from_bytes(path).into())
}

fn inode(path: &CStr) -> Option<u64> {
    // SAFETY: a zeroed `stat` is valid, and the call fills it.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::lstat(path.as_ptr(), &mut stat) == 0).then_some(stat.st_ino)
    }
}

fn real_path(path: &Path) -> Option<PathBuf> {
    let mut real = [0u8; libc::PATH_MAX as usize];
    let path = c_string(path)?;
    // SAFETY: `realpath` writes at most PATH_MAX bytes, including the terminating zero.
    let found = unsafe { libc::realpath(path.as_ptr(), real.as_mut_ptr().cast()) };
    if found.is_null() {
        return None;
    }
    Some(OsStr::from_bytes(CStr::from_bytes_until_nul(&real).ok()?.to_bytes()).into())
}

fn c_string(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}
