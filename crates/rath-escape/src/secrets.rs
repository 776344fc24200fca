//! Attempts to read files that the sandbox must not show.

use std::fs;
use std::path::Path;

use crate::attempt::{Attempt, Tried, harmful, harmless, refused};
use crate::facts::MARK;
use crate::sys::any_of;

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmless("read-secret", "read a planted file by its absolute path", |facts| read_planted(&facts.path("secret")?)),
    harmless("read-ssh-key", "read ~/.ssh/id_rsa", |facts| read_planted(&facts.path("home")?.join(".ssh/id_rsa"))),
    harmless("read-aws-credentials", "read ~/.aws/credentials", |facts| {
        read_planted(&facts.path("home")?.join(".aws/credentials"))
    }),
    harmless("read-netrc", "read ~/.netrc", |facts| read_planted(&facts.path("home")?.join(".netrc"))),
    harmless("read-cargo-token", "read ~/.cargo/credentials.toml", |facts| {
        read_planted(&facts.path("home")?.join(".cargo/credentials.toml"))
    }),
    harmless("read-github-token", "read ~/.config/gh/hosts.yml", |facts| {
        read_planted(&facts.path("home")?.join(".config/gh/hosts.yml"))
    }),
    harmless("read-docker-login", "read ~/.docker/config.json", |facts| {
        read_planted(&facts.path("home")?.join(".docker/config.json"))
    }),
    harmless("read-other-workspace", "read a file of another session's workspace", |facts| {
        read_planted(&facts.path("other")?.join("notes"))
    }),
    harmless("read-store", "read the store, which is hidden inside the workspace", |facts| {
        read_planted(&facts.path("store")?.join("records"))
    }),
    harmless("read-sandbox-state", "read the state file of the sandbox", |facts| {
        let path = facts.path("state")?.join("sandbox.json");
        fs::read(&path)?;
        Ok(format!("read {}", path.display()))
    }),
    harmless("read-by-dots", "read a planted file by way of ../../..", |facts| {
        let root = "../".repeat(40);
        read_planted(Path::new(&format!("{root}{}", facts.text("secret")?)))
    }),
    harmless("read-by-link", "read a planted file through a symbolic link", |facts| {
        let _ = fs::remove_file("scratch/link-to-secret");
        std::os::unix::fs::symlink(facts.path("secret")?, "scratch/link-to-secret")?;
        read_planted(Path::new("scratch/link-to-secret"))
    }),
    harmless("list-outside", "list a directory outside", |facts| {
        let names = fs::read_dir(facts.path("outside")?)?.flatten().map(|entry| entry.file_name());
        match names.into_iter().any(|name| name == "secret") {
            true => Ok("saw the planted secret in its directory".to_owned()),
            false => Err(refused("the directory here is another one")),
        }
    }),
    harmful("read-shadow", "read the machine's password hashes", |_| {
        any_of("password files", ["/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/etc/security/opasswd"], read_any)
    }),
    harmful("read-host-keys", "read the machine's SSH host keys and sudo rules", |_| {
        let names = ["rsa", "ecdsa", "ed25519"].map(|kind| format!("/etc/ssh/ssh_host_{kind}_key"));
        any_of("host keys", names.into_iter().chain(["/etc/sudoers".to_owned()]), read_any)
    }),
];

/// Reads a file that the harness planted.
pub(crate) fn read_planted(path: &Path) -> Tried {
    let bytes = fs::read(path)?;
    match holds(&bytes, MARK) {
        true => Ok(format!("read {}", path.display())),
        false => Err(refused(format!("{} is another file here", path.display()))),
    }
}

fn read_any(path: impl AsRef<Path>) -> Tried {
    let path = path.as_ref();
    match fs::read(path)?.is_empty() {
        true => Err(refused(format!("{} is empty here", path.display()))),
        false => Ok(format!("read {}", path.display())),
    }
}

pub(crate) fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}
