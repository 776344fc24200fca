//! A git repository in a workspace, as long as commands may write to it.

use std::fs;
use std::path::{Path, PathBuf};

/// What git takes the file that names the common directory for when it names the repository itself.
const ITSELF: &str = ".\n";

/// A `.git/commondir` that says what is so without it. Git reads configuration and hooks from the directory that this
/// file names, so no command must make one; but what is not there cannot be covered. It goes when the sandbox rests,
/// and one that a crash leaves behind changes nothing.
pub(super) struct CommonDir {
    path: PathBuf,
}

impl CommonDir {
    /// Puts one where there is a repository without.
    pub(super) fn put(workspace: &Path) -> Option<Self> {
        let git = workspace.join(".git");
        let path = git.join("commondir");
        let is_directory = fs::symlink_metadata(&git).is_ok_and(|meta| meta.is_dir());
        match fs::read_to_string(&path) {
            // Left behind by a crash.
            Ok(text) if text == ITSELF => Some(Self { path }),
            Ok(_) => None,
            Err(_) if is_directory => {
                use std::io::Write as _;
                let mut file = fs::File::options().write(true).create_new(true).open(&path).ok()?;
                let made = Self { path };
                file.write_all(ITSELF.as_bytes()).ok().map(|()| made)
            }
            Err(_) => None,
        }
    }
}

impl Drop for CommonDir {
    fn drop(&mut self) {
        if fs::read_to_string(&self.path).is_ok_and(|text| text == ITSELF) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
