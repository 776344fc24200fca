//! The paths at which a sandbox shows the workspace and the home directory.

use std::path::{Component, Path, PathBuf};

use super::inside::SYSTEM;
use crate::backend::SandboxSpec;

/// The path of the workspace if the wanted path is not possible.
const FALLBACK: &str = "/workspace";

/// Paths that the sandbox uses itself. Paths below them are possible.
const RESERVED: &[&str] = &["/", "/run", "/tmp", "/var"];

/// Paths that the sandbox uses itself, including everything below them.
const RESERVED_TREES: &[&str] = &["/dev", "/proc", "/sys", "/var/run", "/var/tmp"];

/// The path at which the workspace is shown: the wanted one, unless that would cover something.
pub(super) fn for_workspace(spec: &SandboxSpec) -> PathBuf {
    let wanted = spec.mount_path.as_deref().unwrap_or(&spec.directory);
    let holds_home = spec.home.as_ref().is_some_and(|home| home != wanted && home.starts_with(wanted));
    // System directories are read-only, so the mount point must exist there, and it must not cover system files.
    let is_empty = || wanted.read_dir().is_ok_and(|mut entries| entries.next().is_none());
    let is_there = || wanted == spec.directory || is_empty();
    match is_free(wanted) && !holds_home && (!is_of_system(wanted) || is_there()) {
        true => wanted.into(),
        false => FALLBACK.into(),
    }
}

/// Whether a home directory can be replaced by an empty one. Not if it is a system directory, as for some system users.
pub(super) fn is_replaceable_home(home: &Path) -> bool {
    is_free(home) && (!is_of_system(home) || home.starts_with("/opt"))
}

fn is_free(path: &Path) -> bool {
    let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let is_system = SYSTEM.iter().any(|name| path == Path::new("/").join(name));
    let is_taken = RESERVED.iter().any(|taken| path == Path::new(taken));
    let is_below = RESERVED_TREES.iter().any(|taken| path.starts_with(taken));
    path.is_absolute() && is_plain && !is_system && !is_taken && !is_below
}

fn is_of_system(path: &Path) -> bool {
    SYSTEM.iter().any(|name| path.starts_with(Path::new("/").join(name)))
}
