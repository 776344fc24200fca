//! The key that signs checkpoints: a file that only its owner can read, or an entry in the system keyring.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rath_audit::checkpoint::{MOST_SUCCESSIONS, SigningKey};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat, fstat, fsync, mkdir, open, openat, renameat, unlinkat};
use rustix::io::Errno;

use crate::settings::Settings;

/// Name of the key's entry in the keyring. No provider can have this name, because of the slash.
const ENTRY: &str = "rath/checkpoint-key";

/// File name of the key.
const FILE: &str = "key";

/// Lock file that is held while a key is created or replaced, so that two processes do not overwrite each other's key.
const LOCK: &str = "lock";

/// Longest accepted key file, in bytes. Earlier versions did not limit the number of successions and wrote files above 64 KiB.
const LONGEST: u64 = 128 << 10;

/// Where a key is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyLocation {
    File(PathBuf),
    Keyring,
}

impl std::fmt::Display for KeyLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KeyLocation::File(path) => path.display().fmt(f),
            KeyLocation::Keyring => f.write_str("the keyring"),
        }
    }
}

/// Finds the signing key and its location: the file first, then the keyring.
pub(crate) fn find(settings: &Settings) -> Result<Option<(SigningKey, KeyLocation)>> {
    if let Some(dir) = dir(settings) {
        let path = dir.join(FILE);
        if let Some(text) = read(&dir)? {
            let key = SigningKey::from_text(&text).with_context(|| format!("reading {}", path.display()))?;
            return Ok(Some((key, KeyLocation::File(path))));
        }
    }
    // An unavailable keyring counts as empty, a locked one is an error.
    match settings.keyring.text(ENTRY) {
        Ok(Some(text)) => {
            let key = SigningKey::from_text(&text).context("reading the signing key from the keyring")?;
            Ok(Some((key, KeyLocation::Keyring)))
        }
        Ok(None) => Ok(None),
        Err(error) if error.is_locked => Err(error.into()),
        Err(_) => Ok(None),
    }
}

/// Finds the signing key or creates one; the flag says whether it was created. If two processes do so at once, only one
/// creates a key.
pub(crate) fn find_or_make(settings: &Settings, in_keyring: bool) -> Result<(SigningKey, KeyLocation, bool)> {
    let _lock = lock(settings)?;
    if let Some((key, place)) = find(settings)? {
        return Ok((key, place, false));
    }
    let key = SigningKey::generate()?;
    let place = keep(settings, &key, in_keyring)?;
    Ok((key, place, true))
}

/// Replaces the signing key. Returns the old key, the new key and the location; `None` if there is no key. Fails if the key
/// has the maximum number of successions already and `forget` is not set.
pub(crate) fn rotate(settings: &Settings, forget: bool) -> Result<Option<(SigningKey, SigningKey, KeyLocation)>> {
    let _lock = lock(settings)?;
    let Some((old, place)) = find(settings)? else { return Ok(None) };
    let key = match forget {
        true => old.rotate_and_forget()?,
        false if old.successions().len() >= MOST_SUCCESSIONS => bail!(
            "cannot rotate the key: it was replaced {} times, and a checkpoint can list no more successions\n  \
             help: run `rath checkpoint` in each of your stores, then `rath checkpoint key rotate --forget`",
            old.successions().len()
        ),
        false => old.rotate()?,
    };
    let place = keep(settings, &key, place == KeyLocation::Keyring)?;
    Ok(Some((old, key, place)))
}

/// Takes the key lock until the returned file is dropped. `None` if there is no directory for keys.
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

/// Stores a key in place of the current one. The caller holds the lock.
fn keep(settings: &Settings, key: &SigningKey, in_keyring: bool) -> Result<KeyLocation> {
    if in_keyring {
        let help = "without `--in-keyring` the key is stored in a file that only you can read";
        settings.keyring.set(ENTRY, &key.to_text()).map_err(|error| anyhow::anyhow!("{error}\n  help: {help}"))?;
        return Ok(KeyLocation::Keyring);
    }
    let dir = dir(settings).context("cannot store the key: no home directory\n  help: set XDG_CONFIG_HOME")?;
    write(&dir, &key.to_text())?;
    Ok(KeyLocation::File(dir.join(FILE)))
}

fn dir(settings: &Settings) -> Option<PathBuf> {
    Some(settings.user_config.as_ref()?.parent()?.join("checkpoint"))
}

/// Opens the key directory; `None` if it does not exist. Fails if other users can access it.
fn open_dir(dir: &Path) -> Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let at = match open(dir, flags, Mode::empty()) {
        Ok(at) => at,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::NOTDIR | Errno::LOOP) => bail!(
            "{} is not a directory, or a link to one\n  help: move it away; keys need a directory of their own",
            dir.display()
        ),
        Err(error) => return Err(error).with_context(|| format!("opening {}", dir.display())),
    };
    check(&fstat(&at)?, dir, 0o700)?;
    Ok(Some(at))
}

/// Fails if the file or directory belongs to another user or other users can access it.
fn check(stat: &Stat, path: &Path, mode: u32) -> Result<()> {
    let shown = path.display();
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        bail!(
            "{shown} belongs to another user: key not used\n  help: run `rath checkpoint key new` as the user who owns the store"
        );
    }
    match Mode::from_raw_mode(stat.st_mode).as_raw_mode() & 0o077 {
        0 => Ok(()),
        _ => bail!(
            "other users on this machine can read {shown}: key not used\n  help: `chmod {mode:o} {shown}`; if someone may have read it, run `rath checkpoint key rotate` after that"
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
            bail!("{} is a symbolic link: key not used\n  help: replace the link with the file itself", path.display())
        }
        Err(error) => return Err(error).with_context(|| format!("opening {}", path.display())),
    };
    let stat = fstat(&file)?;
    if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
        bail!("{} is not a regular file: key not used", path.display());
    }
    check(&stat, &path, 0o600)?;
    let mut text = String::new();
    File::from(file)
        .take(LONGEST + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("reading {}", path.display()))?;
    if text.len() as u64 > LONGEST {
        bail!("{} is longer than a signing key can be", path.display());
    }
    Ok(Some(text))
}

/// Creates the key directory if it does not exist, and opens it.
fn make_dir(dir: &Path) -> Result<OwnedFd> {
    let failed = || format!("creating {}", dir.display());
    std::fs::create_dir_all(dir.parent().unwrap_or(dir)).with_context(failed)?;
    match mkdir(dir, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error).with_context(failed),
    }
    open_dir(dir)?.with_context(failed)
}

/// Replaces the key file atomically.
fn write(dir: &Path, text: &str) -> Result<()> {
    let failed = || format!("writing {}", dir.join(FILE).display());
    let at = make_dir(dir)?;
    clear(&at).with_context(failed)?;
    let unfinished = format!("{FILE}.{}.new", rath::record::fresh_name());
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

/// Deletes temporary key files that an interrupted write left behind.
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
    fn a_key_file_is_readable_by_its_owner_only() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("rath/checkpoint");
        assert!(read(&dir).unwrap().is_none());
        write(&dir, "first").unwrap();
        // A process that was killed while writing left a temporary file behind.
        std::fs::write(dir.join("key.00ff.new"), "half").unwrap();
        write(&dir, "second").unwrap();
        assert_eq!(read(&dir).unwrap().unwrap(), "second");
        assert_eq!((mode(&dir), mode(&dir.join(FILE))), (0o700, 0o600));
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
        for bad in [0o640, 0o604, 0o620] {
            chmod(&dir.join(FILE), bad);
            let error = read(&dir).unwrap_err().to_string();
            assert!(error.contains("other users on this machine can read") && error.contains("chmod 600"), "{error}");
        }
        chmod(&dir.join(FILE), 0o600);
        chmod(&dir, 0o755);
        let error = read(&dir).unwrap_err().to_string();
        assert!(error.contains("chmod 700"), "{error}");
        assert!(write(&dir, "third").is_err(), "a key is not written there either");
        chmod(&dir, 0o700);
        assert_eq!(read(&dir).unwrap().unwrap(), "second");
    }

    #[test]
    fn the_file_takes_precedence_over_the_keyring() {
        use clap::Parser as _;

        use crate::commands::Cli;
        use crate::providers::{FakeKeyring, Keyring};

        let home = tempfile::tempdir().unwrap();
        let with = |ring: FakeKeyring| Settings {
            user_config: Some(home.path().join("rath/config.toml")),
            keyring: Keyring::of(ring),
            ..Settings::from_environment(&Cli::parse_from(["rath", "log"]).global)
        };
        let settings = with(FakeKeyring::default());
        assert!(find(&settings).unwrap().is_none());
        let key = SigningKey::generate().unwrap();
        assert_eq!(keep(&settings, &key, true).unwrap(), KeyLocation::Keyring);
        let (found, place) = find(&settings).unwrap().unwrap();
        assert_eq!((found.public(), place), (key.public(), KeyLocation::Keyring));
        let other = SigningKey::generate().unwrap();
        let file = KeyLocation::File(home.path().join("rath/checkpoint/key"));
        assert_eq!(keep(&settings, &other, false).unwrap(), file);
        let (found, place) = find(&settings).unwrap().unwrap();
        assert_eq!((found.public(), place), (other.public(), file));
        std::fs::remove_file(home.path().join("rath/checkpoint/key")).unwrap();
        // An unavailable keyring has no key; a locked one may have one.
        let broken = FakeKeyring { broken: true, ..FakeKeyring::default() };
        assert!(find(&with(broken.clone())).unwrap().is_none());
        assert!(keep(&with(broken.clone()), &key, true).unwrap_err().to_string().contains("without `--in-keyring`"));
        let locked = FakeKeyring { is_locked: true, ..broken };
        assert!(find(&with(locked)).err().unwrap().to_string().contains("is locked"));
    }

    #[test]
    fn links_and_special_files_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("checkpoint");
        write(&dir, "key").unwrap();
        std::fs::rename(dir.join(FILE), home.path().join("elsewhere")).unwrap();
        symlink(home.path().join("elsewhere"), dir.join(FILE)).unwrap();
        assert!(read(&dir).unwrap_err().to_string().contains("is a symbolic link"));
        std::fs::remove_file(dir.join(FILE)).unwrap();
        std::fs::create_dir(dir.join(FILE)).unwrap();
        chmod(&dir.join(FILE), 0o700);
        assert!(read(&dir).unwrap_err().to_string().contains("is not a regular file"));
        let linked = home.path().join("linked");
        symlink(&dir, &linked).unwrap();
        assert!(read(&linked).unwrap_err().to_string().contains("is not a directory, or a link"));
    }
}
