//! The paths that a call names, as they are in the workspace.

use std::path::{Component, Path};

/// A path without `.`, `..` and doubled slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the workspace, from its top; empty for the workspace itself.
    Inside(String),
    /// Somewhere else: what is left of it.
    Outside(String),
}

impl Place {
    /// What a tool makes of a path, in a workspace that appears at `root`.
    pub(crate) fn of(given: &str, root: Option<&Path>) -> Self {
        let given = Path::new(given.trim());
        let (path, mut outside) = match (given.is_absolute(), root) {
            // A tool may take it for the home.
            (false, _) => (given, given.starts_with("~")),
            (true, Some(root)) => match plain(given).strip_prefix(&plain(root)) {
                Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                    return Self::Inside(rest.trim_start_matches('/').to_owned());
                }
                _ => (given, true),
            },
            (true, None) => (given, true),
        };
        let mut names: Vec<String> = Vec::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => names.push(name.to_string_lossy().into_owned()),
                Component::ParentDir => outside |= names.pop().is_none(),
                _ => {}
            }
        }
        match outside {
            true => Self::Outside(names.join("/")),
            false => Self::Inside(names.join("/")),
        }
    }

    pub(crate) fn names(&self) -> &str {
        match self {
            Self::Inside(path) | Self::Outside(path) => path,
        }
    }

    /// Whether it looks like something that nobody should see: keys, passwords, tokens.
    pub(crate) fn looks_secret(&self) -> bool {
        self.names().split('/').any(is_secret_name)
    }
}

/// An absolute path in one form.
fn plain(path: &Path) -> String {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name.to_string_lossy()),
            Component::ParentDir => drop(names.pop()),
            _ => {}
        }
    }
    names.join("/")
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_example = [".example", ".sample", ".template", ".dist"].iter().any(|end| name.ends_with(end));
    let begins = ["id_rsa", "id_ed25519", "id_ecdsa", "id_dsa"];
    let ends = [".pem", ".key", ".p12", ".pfx", ".keystore", ".jks", ".kdbx"];
    let whole = [
        ".netrc",
        ".npmrc",
        ".pypirc",
        ".ssh",
        ".gnupg",
        ".aws",
        ".kube",
        ".git-credentials",
        ".htpasswd",
        ".pgpass",
        "credentials",
        "credentials.json",
        "secrets",
        "secrets.toml",
        "secrets.yaml",
        "secrets.yml",
        "secrets.json",
    ];
    let is_env = name == ".env" || name.starts_with(".env.");
    !is_example
        && !name.ends_with(".pub")
        && (is_env
            || begins.iter().any(|begin| name.starts_with(begin))
            || ends.iter().any(|end| name.ends_with(end))
            || whole.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tricks_lead_where_they_lead() {
        let root = Some(Path::new("/home/ada/shop"));
        let of = |given: &str| Place::of(given, root);
        let inside = |path: &str| Place::Inside(path.into());
        assert_eq!(of("./a/../b"), inside("b"));
        assert_eq!(of(" a//b/./c "), inside("a/b/c"));
        assert_eq!(of("/home/ada/shop/a"), inside("a"));
        assert_eq!(of("/home/ada/./shop/x/../a"), inside("a"));
        assert_eq!(of("/home/ada/shop"), inside(""));
        assert_eq!(of("."), inside(""));
        for given in ["~", "~/x", "../x", "a/../../x", "/home/ada/shopx/a", "/etc/passwd", "/home/ada/shop/../x", "/"] {
            assert!(matches!(of(given), Place::Outside(_)), "{given}: {:?}", of(given));
        }
        // What went out and came back by name may be another place.
        assert!(matches!(of("../space/a"), Place::Outside(_)));
        assert!(matches!(Place::of("/home/ada/shop/a", None), Place::Outside(_)));
    }

    #[test]
    fn secrets_are_known_by_their_names() {
        for path in [".env", "a/.env.local", "deploy/server.key", "x/ID_RSA", ".ssh/config", "secrets/x"] {
            assert!(Place::of(path, None).looks_secret(), "{path}");
        }
        for path in [".env.example", "src/environment.rs", "monkey.rs", "id_ed25519.pub", ".envrc.md"] {
            assert!(!Place::of(path, None).looks_secret(), "{path}");
        }
    }
}
