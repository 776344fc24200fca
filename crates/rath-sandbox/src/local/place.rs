//! Where a view has room for the workspace and for the home.

use std::path::{Component, Path, PathBuf};

use super::inside::SYSTEM;
use crate::backend::Spec;

/// Where the workspace appears when it cannot appear where it is wanted.
const ELSEWHERE: &str = "/workspace";

/// Places that something else has.
const TAKEN: &[&str] = &["/", "/run", "/tmp", "/var"];

/// Those that are not shared either.
const WHOLLY_TAKEN: &[&str] = &["/dev", "/proc", "/sys", "/var/run", "/var/tmp"];

/// Where the workspace is shown: where it is wanted, if that takes nothing away.
pub(super) fn of_workspace(spec: &Spec) -> PathBuf {
    let wanted = spec.appears_at.as_deref().unwrap_or(&spec.directory);
    let holds_home = spec.home.as_ref().is_some_and(|home| home != wanted && home.starts_with(wanted));
    // The system is shown to read: nothing can be made there, and nothing of it is covered.
    let is_empty = || wanted.read_dir().is_ok_and(|mut entries| entries.next().is_none());
    let is_there = || wanted == spec.directory || is_empty();
    match is_free(wanted) && !holds_home && (!is_of_system(wanted) || is_there()) {
        true => wanted.into(),
        false => ELSEWHERE.into(),
    }
}

/// Whether a home can be replaced. Those of some users of the system cannot.
pub(super) fn is_for_home(home: &Path) -> bool {
    is_free(home) && (!is_of_system(home) || home.starts_with("/opt"))
}

fn is_free(place: &Path) -> bool {
    let is_plain = place.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let is_system = SYSTEM.iter().any(|name| place == Path::new("/").join(name));
    let is_taken = TAKEN.iter().any(|taken| place == Path::new(taken));
    let is_below = WHOLLY_TAKEN.iter().any(|taken| place.starts_with(taken));
    place.is_absolute() && is_plain && !is_system && !is_taken && !is_below
}

fn is_of_system(place: &Path) -> bool {
    SYSTEM.iter().any(|name| place.starts_with(Path::new("/").join(name)))
}
