//! The key that signs checkpoints: a file that only its owner can read, or an entry in the keyring of the system.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rath_audit::checkpoint::{MOST_SUCCESSIONS, SigningKey};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat, fstat, fsync, mkdir, open, openat, renameat, unlinkat};
use rustix::io::Errno;

use crate::settings::Settings;

/// What the key is called in the keyring. Providers have no such names.
const ENTRY: &str = "rath/checkpoint-key";

/// The file's name.
const FILE: &str = "key";

/// Whoever makes or replaces a key holds this file, so that two do not destroy each other's.
const LOCK: &str = "lock";

/// No key is longer. Versions that carried any number of signatures wrote some that have more than 64 KiB.
const LONGEST: u64 = 128 << 10;

/// Where the key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    File(PathBuf),
    Keyring,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::File(path) => path.display().fmt(f),
            Place::Keyring => f.write_str("the keyring"),
        }
    }
}

/// The key at hand, and where it was: the file first, then the keyring.
pub(crate) fn find(settings: &Settings) -> Result<Option<(SigningKey, Place)>> {
    if let Some(dir) = dir(settings) {
        let path = dir.join(FILE);
        if let Some(text) = read(&dir)? {
            let key = SigningKey::from_text(&text).with_context(|| format!("reading {}", path.display()))?;
            return Ok(Some((key, Place::File(path))));
        }
    }
    // A system without a keyring has no key there.
    match settings.keyring.kept(ENTRY) {
        Ok(Some(text)) => {
            let key = SigningKey::from_text(&text).context("reading the signing key from the keyring")?;
            Ok(Some((key, Place::Keyring)))
        }
        Ok(None) => Ok(None),
        Err(trouble) if trouble.is_locked => Err(trouble.into()),
        Err(_) => Ok(None),
    }
}

/// The key at hand, or else one that is made now: then also whether it was. Of two that make the first, one does.
pub(crate) fn find_or_make(settings: &Settings, in_keyring: bool) -> Result<(SigningKey, Place, bool)> {
    let _lock = lock(settings)?;
    if let Some((key, place)) = find(settings)? {
        return Ok((key, place, false));
    }
    let key = SigningKey::generate()?;
    let place = keep(settings, &key, in_keyring)?;
    Ok((key, place, true))
}

/// Replaces the key at hand: the old one, the new one, and where that is. What no checkpoint could tell is not begun.
pub(crate) fn rotate(settings: &Settings, forget: bool) -> Result<Option<(SigningKey, SigningKey, Place)>> {
    let _lock = lock(settings)?;
    let Some((old, place)) = find(settings)? else { return Ok(None) };
    let key = match forget {
        true => old.rotate_and_forget()?,
        false if old.successions().len() >= MOST_SUCCESSIONS => bail!(
            "the key was replaced {} times, and a checkpoint can tell no more: it is not replaced\n  \
             help: `rath checkpoint` in each of your stores tells it there; then `rath checkpoint key rotate --forget` goes on from the key at hand",
            old.successions().len()
        ),
        false => old.rotate()?,
    };
    let place = keep(settings, &key, place == Place::Keyring)?;
    Ok(Some((old, key, place)))
}

/// Held for as long as it is there. Where there is no directory for it, there is nothing to lose in it.
fn lock(settings: &Settings) -> Result<Option<File>> {
    let Some(dir) = dir(settings) else { return Ok(None) };
    let failed = || format!("locking {}", dir.join(LOCK).display());
    let at = make_dir(&dir)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(&at, LOCK, flags, Mode::RUSR | Mode::WUSR).map_err(std::io::Error::from).with_context(failed)?;
    let file = File::from(file);
    file.lock().with_context(failed)?;
    Ok(Some(file))
}

/// Keeps a key, in place of the one that is there. Whoever calls holds the lock.
fn keep(settings: &Settings, key: &SigningKey, in_keyring: bool) -> Result<Place> {
    if in_keyring {
        let help = "without `--in-keyring` the key is kept in a file that only you can read";
        settings.keyring.set(ENTRY, &key.to_text()).map_err(|trouble| anyhow::anyhow!("{trouble}\n  help: {help}"))?;
        return Ok(Place::Keyring);
    }
    let dir = dir(settings).context("there is no home directory to keep the key in\n  help: set XDG_CONFIG_HOME")?;
    write(&dir, &key.to_text())?;
    Ok(Place::File(dir.join(FILE)))
}

fn dir(settings: &Settings) -> Option<PathBuf> {
    Some(settings.user_config.as_ref()?.parent()?.join("checkpoint"))
}

/// The directory, if it is there, is its owner's alone.
fn open_dir(dir: &Path) -> Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let at = match open(dir, flags, Mode::empty()) {
        Ok(at) => at,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::NOTDIR | Errno::LOOP) => bail!(
            "{} is not a directory, or a link to one\n  help: keys are kept in a directory of their own; move it away",
            dir.display()
        ),
        Err(error) => return Err(error).with_context(|| format!("opening {}", dir.display())),
    };
    check(&fstat(&at)?, dir, 0o700)?;
    Ok(Some(at))
}

/// Refuses what others can read or write, and what is somebody else's.
fn check(stat: &Stat, path: &Path, mode: u32) -> Result<()> {
    let shown = path.display();
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        bail!(
            "{shown} belongs to another user: its key is not used\n  help: `rath checkpoint key new` as the user whose store it is"
        );
    }
    match Mode::from_raw_mode(stat.st_mode).as_raw_mode() & 0o077 {
        0 => Ok(()),
        _ => bail!(
            "others on this machine can reach {shown}: its key is not used\n  help: if nobody did, `chmod {mode:o} {shown}`; else `rath checkpoint key rotate` after that"
        ),
    }
}

fn read(dir: &Path) -> Result<Option<String>> {
    let Some(at) = open_dir(dir)? else { return Ok(None) };
    let path = dir.join(FILE);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(&at, FILE, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => {
            bail!("{} is a link: its key is not used\n  help: put the file itself there", path.display())
        }
        Err(error) => return Err(error).with_context(|| format!("opening {}", path.display())),
    };
    let stat = fstat(&file)?;
    if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
        bail!("{} is not a file: its key is not used", path.display());
    }
    check(&stat, &path, 0o600)?;
    let mut text = String::new();
    File::from(file)
        .take(LONGEST + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("reading {}", path.display()))?;
    if text.len() as u64 > LONGEST {
        bail!("{} is too long for a signing key", path.display());
    }
    Ok(Some(text))
}

/// Makes the directory, if it is not there.
fn make_dir(dir: &Path) -> Result<OwnedFd> {
    let failed = || format!("making {}", dir.display());
    std::fs::create_dir_all(dir.parent().unwrap_or(dir)).with_context(failed)?;
    match mkdir(dir, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error).with_context(failed),
    }
    open_dir(dir)?.with_context(failed)
}

/// Writes the file whole, or not at all.
fn write(dir: &Path, text: &str) -> Result<()> {
    let failed = || format!("writing {}", dir.join(FILE).display());
    let at = make_dir(dir)?;
    clear(&at).with_context(failed)?;
    let unfinished = format!("{FILE}.{}.new", rath::fresh_name());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let writing = || -> std::io::Result<()> {
        let mut file = File::from(openat(&at, &unfinished, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        renameat(&at, &unfinished, &at, FILE)?;
        Ok(fsync(&at)?)
    };
    let written = writing();
    if written.is_err() {
        let _ = unlinkat(&at, &unfinished, AtFlags::empty());
    }
    written.with_context(failed)
}

/// Takes away keys that were not written to their end: they never were one.
fn clear(at: &OwnedFd) -> Result<()> {
    for entry in Dir::read_from(at)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let between = name.strip_prefix(b"key.").and_then(|rest| rest.strip_suffix(b".new"));
        if between.is_some_and(|between| between.iter().all(u8::is_ascii_hexdigit)) {
            unlinkat(at, entry.file_name(), AtFlags::empty())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn chmod(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_key_is_written_for_its_owner_alone_and_read_only_so() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("rath/checkpoint");
        assert!(read(&dir).unwrap().is_none());
        write(&dir, "first").unwrap();
        // One that was killed while it wrote left a secret behind.
        std::fs::write(dir.join("key.00ff.new"), "half").unwrap();
        write(&dir, "second").unwrap();
        assert_eq!(read(&dir).unwrap().unwrap(), "second");
        assert_eq!((mode(&dir), mode(&dir.join(FILE))), (0o700, 0o600));
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
        for bad in [0o640, 0o604, 0o620] {
            chmod(&dir.join(FILE), bad);
            let error = read(&dir).unwrap_err().to_string();
            assert!(error.contains("others on this machine can reach") && error.contains("chmod 600"), "{error}");
        }
        chmod(&dir.join(FILE), 0o600);
        chmod(&dir, 0o755);
        let error = read(&dir).unwrap_err().to_string();
        assert!(error.contains("chmod 700"), "{error}");
        assert!(write(&dir, "third").is_err(), "nor is one written there");
        chmod(&dir, 0o700);
        assert_eq!(read(&dir).unwrap().unwrap(), "second");
    }

    #[test]
    fn the_keyring_keeps_one_too_and_the_file_comes_first() {
        use clap::Parser as _;

        use crate::commands::Cli;
        use crate::providers::{InMemory, Keyring};

        let home = tempfile::tempdir().unwrap();
        let with = |ring: InMemory| Settings {
            user_config: Some(home.path().join("rath/config.toml")),
            keyring: Keyring::of(ring),
            ..Settings::from_environment(&Cli::parse_from(["rath", "log"]).global)
        };
        let settings = with(InMemory::default());
        assert!(find(&settings).unwrap().is_none());
        let key = SigningKey::generate().unwrap();
        assert_eq!(keep(&settings, &key, true).unwrap(), Place::Keyring);
        let (found, place) = find(&settings).unwrap().unwrap();
        assert_eq!((found.public(), place), (key.public(), Place::Keyring));
        let other = SigningKey::generate().unwrap();
        let file = Place::File(home.path().join("rath/checkpoint/key"));
        assert_eq!(keep(&settings, &other, false).unwrap(), file);
        let (found, place) = find(&settings).unwrap().unwrap();
        assert_eq!((found.public(), place), (other.public(), file));
        std::fs::remove_file(home.path().join("rath/checkpoint/key")).unwrap();
        // None to be had is no key; one that is locked may have it.
        let broken = InMemory { broken: true, ..InMemory::default() };
        assert!(find(&with(broken.clone())).unwrap().is_none());
        assert!(keep(&with(broken.clone()), &key, true).unwrap_err().to_string().contains("without `--in-keyring`"));
        let locked = InMemory { is_locked: true, ..broken };
        assert!(find(&with(locked)).err().unwrap().to_string().contains("is locked"));
    }

    #[test]
    fn links_and_what_is_no_file_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("checkpoint");
        write(&dir, "key").unwrap();
        std::fs::rename(dir.join(FILE), home.path().join("elsewhere")).unwrap();
        symlink(home.path().join("elsewhere"), dir.join(FILE)).unwrap();
        assert!(read(&dir).unwrap_err().to_string().contains("is a link"));
        std::fs::remove_file(dir.join(FILE)).unwrap();
        std::fs::create_dir(dir.join(FILE)).unwrap();
        chmod(&dir.join(FILE), 0o700);
        assert!(read(&dir).unwrap_err().to_string().contains("is not a file"));
        let linked = home.path().join("linked");
        symlink(&dir, &linked).unwrap();
        assert!(read(&linked).unwrap_err().to_string().contains("is not a directory, or a link"));
    }
}
