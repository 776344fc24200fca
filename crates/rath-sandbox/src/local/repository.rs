//! A git repository in a workspace, as long as commands may write to it.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;

/// The files of a repository that git runs programs by, with what says the same as none: a `commondir` that names the
/// repository itself, and configuration without a word.
const FILES: [(&str, &str); 3] = [("config", ""), ("config.worktree", ""), ("commondir", ".\n")];

/// How often the lock of a file is asked for that somebody is about to remove.
const TRIES: u32 = 50;

/// What commands must leave alone in a repository, as paths below it.
pub(super) struct Protected {
    /// Directories that keep their names: under another one nothing would lie over what is in them.
    pub(super) places: Vec<PathBuf>,
    /// What is only to be read, whether it is there or not.
    pub(super) covered: Vec<PathBuf>,
}

impl Protected {
    /// Of the repository at `git`, and of the worktrees elsewhere that are linked to it.
    pub(super) fn of(git: &Path) -> Self {
        let mut places = Vec::new();
        let mut covered: Vec<PathBuf> =
            ["hooks"].into_iter().chain(FILES.map(|(name, _)| name)).map(Into::into).collect();
        let is_directory = |path: &Path| fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
        let linked = git.join("worktrees");
        let entries = is_directory(&linked).then(|| fs::read_dir(&linked).ok()).flatten();
        for entry in entries.into_iter().flatten().flatten() {
            if is_directory(&entry.path()) && entry.path().join("commondir").is_file() {
                let place = Path::new("worktrees").join(entry.file_name());
                covered.extend(["commondir", "config.worktree"].map(|name| place.join(name)));
                places.push(place);
            }
        }
        if !places.is_empty() {
            // The one above comes first: what is laid over it later would cover those in it.
            places.insert(0, "worktrees".into());
        }
        Self { places, covered }
    }
}

/// Whether `.git` is a file that leads to a repository in the workspace.
pub(super) fn leads_inside(workspace: &Path) -> bool {
    let git = workspace.join(".git");
    let is_file = fs::symlink_metadata(&git).is_ok_and(|meta| meta.is_file() && meta.len() < 1 << 16);
    let text = is_file.then(|| fs::read_to_string(&git).ok()).flatten();
    let named = text.as_deref().and_then(|text| text.strip_prefix("gitdir:")).map(str::trim);
    let leads_to = named.and_then(|named| workspace.join(named).canonicalize().ok());
    leads_to.is_some_and(|path| workspace.canonicalize().is_ok_and(|workspace| path.starts_with(workspace)))
}

/// Files that say what is so without them. No command must make one of another kind; but what is not there cannot be
/// covered. They go when the last sandbox over the repository rests, and one that a crash leaves behind changes nothing.
pub(super) struct StandIns {
    _all: Vec<StandIn>,
}

impl StandIns {
    /// Puts them where there is a repository without. Where that cannot be, [`super::inside`] shows all of the
    /// repository to read.
    pub(super) fn put(workspace: &Path) -> Self {
        let git = workspace.join(".git");
        if !fs::symlink_metadata(&git).is_ok_and(|meta| meta.is_dir()) {
            return Self { _all: Vec::new() };
        }
        let text_of = |path: &Path| FILES.iter().find(|(name, _)| path.ends_with(name)).map(|(_, text)| *text);
        let wanted =
            Protected::of(&git).covered.into_iter().filter_map(|path| Some((git.join(&path), text_of(&path)?)));
        Self { _all: wanted.filter_map(|(path, text)| StandIn::put(path, text)).collect() }
    }
}

/// One of them. Whoever counts on it has a lock on it, so that no other takes it away.
struct StandIn {
    path: PathBuf,
    text: &'static str,
    file: fs::File,
}

impl StandIn {
    fn put(path: PathBuf, text: &'static str) -> Option<Self> {
        for _ in 0..TRIES {
            let file = match fs::symlink_metadata(&path) {
                // Left behind by a crash, or of another sandbox.
                Ok(meta) if meta.is_file() && meta.len() == text.len() as u64 => fs::File::open(&path),
                // Somebody is about to write it.
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
                    if one.is_at_its_place() {
                        return one.says_nothing().then_some(one);
                    }
                }
                // It is there all the same, and so it is covered.
                Err(error) if !matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {
                    return None;
                }
                _ => {}
            }
            // Somebody has just put it there, or takes it away.
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    fn is_at_its_place(&self) -> bool {
        let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
        let own = self.file.metadata().map(identity);
        own.and_then(|own| Ok(identity(fs::symlink_metadata(&self.path)?) == own)).unwrap_or(false)
    }

    fn says_nothing(&self) -> bool {
        let mut text = String::new();
        let read = fs::File::open(&self.path).and_then(|file| file.take(16).read_to_string(&mut text));
        read.is_ok() && text == self.text
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let is_last = rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if is_last && self.is_at_its_place() && self.says_nothing() {
            let _ = fs::remove_file(&self.path);
        }
        // Not left to the end of the file: a process that is being started has it too for a moment.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}
