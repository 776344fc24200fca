//! Unix sockets of this machine that are bound to a path.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The flag of a listening socket in `/proc/net/unix`.
const ACCEPTS: u32 = 0x1_0000;

/// The type of a datagram socket in `/proc/net/unix`. Datagrams need no connection.
const DATAGRAM: u32 = 2;

/// The sockets with a path in this process's network namespace. Does not include sockets of containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BoundSockets {
    /// Inode number and path of each socket. The path is as it was bound: absolute, or relative to an unknown
    /// directory.
    all: BTreeSet<(u64, PathBuf)>,
}

impl BoundSockets {
    /// Reads the current sockets. Empty if the kernel does not provide them.
    pub(super) fn now() -> Self {
        Self::parse(
            &fs::read("/proc/net/unix").map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default(),
        )
    }

    fn parse(text: &str) -> Self {
        let socket = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let flags = u32::from_str_radix(words.nth(3)?, 16).ok()?;
            let kind = u32::from_str_radix(words.next()?, 16).ok()?;
            let number = words.nth(1)?.parse().ok()?;
            // The path may contain spaces.
            let path = line.split_once(&format!(" {number} ")).map(|(_, path)| path)?;
            let can_be_reached = flags & ACCEPTS != 0 || kind == DATAGRAM;
            (can_be_reached && !path.is_empty() && !path.starts_with('@')).then(|| (number, path.into()))
        };
        Self { all: text.lines().skip(1).filter_map(socket).collect() }
    }

    /// The absolute paths.
    pub(super) fn absolute(&self) -> impl Iterator<Item = &Path> {
        self.all.iter().map(|(_, path)| path.as_path()).filter(|path| path.is_absolute())
    }

    /// Whether a socket that is not in `before` may be below a directory. A relative path counts as below.
    pub(super) fn has_new_below(&self, directory: &Path, before: &Self) -> bool {
        let may_lie_below = |path: &Path| {
            let real = path.parent().and_then(|parent| parent.canonicalize().ok());
            path.is_relative() || real.is_none_or(|real| real.starts_with(directory))
        };
        self.all.difference(&before.all).any(|(_, path)| may_lie_below(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "Num       RefCount Protocol Flags    Type St Inode Path\n\
        0000000000000000: 00000002 00000000 00010000 0001 01 11 /srv/app/dev.sock\n\
        0000000000000000: 00000003 00000000 00000000 0001 03 12 /srv/app/dev.sock\n\
        0000000000000000: 00000002 00000000 00010000 0001 01 13 @abstract\n\
        0000000000000000: 00000002 00000000 00000000 0002 01 14 with space.sock\n\
        0000000000000000: 00000003 00000000 00000000 0001 03 15\n";

    #[test]
    fn sockets_with_a_path_are_listed() {
        let sockets = BoundSockets::parse(TABLE);
        let all: Vec<_> = sockets.all.iter().map(|(number, path)| (*number, path.to_str().unwrap())).collect();
        assert_eq!(all, [(11, "/srv/app/dev.sock"), (14, "with space.sock")]);
        assert_eq!(sockets.absolute().collect::<Vec<_>>(), [Path::new("/srv/app/dev.sock")]);
    }

    #[test]
    fn a_new_socket_counts_if_it_may_be_below_the_directory() {
        let before = BoundSockets::default();
        let one = |path: &str| BoundSockets { all: [(1, path.into())].into() };
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().canonicalize().unwrap();
        let below = directory.join("a.sock");
        assert!(one(below.to_str().unwrap()).has_new_below(&directory, &before));
        assert!(one("a.sock").has_new_below(&directory, &before), "its directory is unknown");
        assert!(one("/not/there/a.sock").has_new_below(&directory, &before));
        assert!(!one("/usr/a.sock").has_new_below(&directory, &before));
        assert!(!one("a.sock").has_new_below(&directory, &one("a.sock")), "it was there");
    }
}
