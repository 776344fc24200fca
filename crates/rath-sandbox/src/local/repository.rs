//! Protects the git repository of a workspace while commands may write to it.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;

/// Files of a repository that can make git run programs, with a content that has the same effect as a missing file:
/// empty configuration, and a `commondir` that names the repository itself.
const FILES: [(&str, &str); 3] = [("config", ""), ("config.worktree", ""), ("commondir", ".\n")];

/// Maximum number of attempts to lock a placeholder that another process is creating or removing.
const TRIES: u32 = 50;

/// The parts of a repository that commands must not change, relative to it.
pub(super) struct Protected {
    /// Directories that must be mount points, so that they cannot be renamed: under another name, the mounts over their
    /// files would be missing.
    pub(super) mount_points: Vec<PathBuf>,
    /// Paths that must be read-only, whether they exist or not.
    pub(super) covered: Vec<PathBuf>,
}

impl Protected {
    /// The protected parts of the repository at `git`, and of the linked worktrees in it.
    pub(super) fn of(git: &Path) -> Self {
        let mut mount_points = Vec::new();
        let mut covered: Vec<PathBuf> =
            ["hooks"].into_iter().chain(FILES.map(|(name, _)| name)).map(Into::into).collect();
        let is_directory = |path: &Path| fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
        let linked = git.join("worktrees");
        let entries = is_directory(&linked).then(|| fs::read_dir(&linked).ok()).flatten();
        for entry in entries.into_iter().flatten().flatten() {
            if is_directory(&entry.path()) && entry.path().join("commondir").is_file() {
                let mount_point = Path::new("worktrees").join(entry.file_name());
                covered.extend(["commondir", "config.worktree"].map(|name| mount_point.join(name)));
                mount_points.push(mount_point);
            }
        }
        if !mount_points.is_empty() {
            // The parent comes first: mounted later, it would cover the mounts in it.
            mount_points.insert(0, "worktrees".into());
        }
        Self { mount_points, covered }
    }
}

/// Whether `.git` is a file that names a repository inside the workspace.
pub(super) fn links_into_workspace(workspace: &Path) -> bool {
    let git = workspace.join(".git");
    let is_file = fs::symlink_metadata(&git).is_ok_and(|meta| meta.is_file() && meta.len() < 1 << 16);
    let text = is_file.then(|| fs::read_to_string(&git).ok()).flatten();
    let named = text.as_deref().and_then(|text| text.strip_prefix("gitdir:")).map(str::trim);
    let leads_to = named.and_then(|named| workspace.join(named).canonicalize().ok());
    leads_to.is_some_and(|path| workspace.canonicalize().is_ok_and(|workspace| path.starts_with(workspace)))
}

/// Placeholders for missing files of a repository.
///
/// A command must not create these files, but a file that does not exist cannot be covered by a mount. So placeholders
/// are created that have the same effect as a missing file. They are removed when the last sandbox for the repository
/// is suspended. One that a crash leaves behind is harmless.
pub(super) struct GitPlaceholders {
    _all: Vec<GitPlaceholder>,
}

impl GitPlaceholders {
    /// Creates the missing files if the workspace has a repository. If one cannot be created, [`super::inside`] makes
    /// the whole repository read-only.
    pub(super) fn create(workspace: &Path) -> Self {
        let git = workspace.join(".git");
        if !fs::symlink_metadata(&git).is_ok_and(|meta| meta.is_dir()) {
            return Self { _all: Vec::new() };
        }
        let text_of = |path: &Path| FILES.iter().find(|(name, _)| path.ends_with(name)).map(|(_, text)| *text);
        let wanted =
            Protected::of(&git).covered.into_iter().filter_map(|path| Some((git.join(&path), text_of(&path)?)));
        Self { _all: wanted.filter_map(|(path, text)| GitPlaceholder::create(path, text)).collect() }
    }
}

/// A placeholder. It is locked by each process that uses it, so that no other process removes it.
struct GitPlaceholder {
    path: PathBuf,
    text: &'static str,
    file: fs::File,
}

impl GitPlaceholder {
    fn create(path: PathBuf, text: &'static str) -> Option<Self> {
        for _ in 0..TRIES {
            let file = match fs::symlink_metadata(&path) {
                // A placeholder of another sandbox, or one that a crash left behind.
                Ok(meta) if meta.is_file() && meta.len() == text.len() as u64 => fs::File::open(&path),
                // Another process has created the file and is about to write to it.
                Ok(meta) if meta.is_file() && meta.len() == 0 => Err(io::ErrorKind::AlreadyExists.into()),
                Ok(_) => return None,
                Err(_) => {
                    let made = fs::File::options().read(true).write(true).create_new(true).open(&path);
                    made.and_then(|mut file| file.write_all(text.as_bytes()).map(|()| file))
                }
            };
            match file {
                Ok(file) if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok() => {
                    let one = Self { path: path.clone(), text, file };
                    if one.is_same_file() {
                        return one.has_placeholder_text().then_some(one);
                    }
                }
                // The file exists, so it will be covered.
                Err(error) if !matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {
                    return None;
                }
                _ => {}
            }
            // Another process is creating or removing the file.
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    fn is_same_file(&self) -> bool {
        let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
        let own = self.file.metadata().map(identity);
        own.and_then(|own| Ok(identity(fs::symlink_metadata(&self.path)?) == own)).unwrap_or(false)
    }

    fn has_placeholder_text(&self) -> bool {
        let mut text = String::new();
        let read = fs::File::open(&self.path).and_then(|file| file.take(16).read_to_string(&mut text));
        read.is_ok() && text == self.text
    }
}

impl Drop for GitPlaceholder {
    fn drop(&mut self) {
        let is_last = rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if is_last && self.is_same_file() && self.has_placeholder_text() {
            let _ = fs::remove_file(&self.path);
        }
        // Unlock explicitly instead of only closing the file: between fork and exec, a new process has a copy of the
        // descriptor, which would keep the lock.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}
