//! Paths in a call's arguments, resolved against the workspace.

use std::path::{Component, Path};

/// A normalized path: without `.`, `..` and doubled slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathRef {
    /// A path in the workspace, relative to its root. Empty for the root.
    Inside(String),
    /// A path outside the workspace, or one that may lead outside.
    Outside(String),
}

impl PathRef {
    /// Resolves a path as a tool does, in a workspace that is mounted at `root`.
    pub(crate) fn of(given: &str, root: Option<&Path>) -> Self {
        let given = Path::new(given.trim());
        let (path, mut outside) = match (given.is_absolute(), root) {
            // A tool may expand `~` to the home directory.
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

    /// Whether the name is typical of keys, passwords or tokens.
    pub(crate) fn looks_secret(&self) -> bool {
        self.names().split('/').any(is_secret_name)
    }
}

/// An absolute path, normalized.
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

/// Whether a shell pattern for hidden files, such as `.e*`, may match a name that is typical of secrets.
pub(crate) fn pattern_may_match_secret(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or_default();
    let Some(wildcard) = name.find(['*', '?', '[', '{']).filter(|_| name.starts_with('.')) else { return false };
    let prefix = name[..wildcard].to_ascii_lowercase();
    HIDDEN_SECRETS.iter().any(|secret| secret.starts_with(&prefix))
}

/// Hidden files and directories that typically contain secrets.
const HIDDEN_SECRETS: [&str; 12] = [
    ".env",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".ssh",
    ".gnupg",
    ".aws",
    ".kube",
    ".docker",
    ".dockercfg",
    ".htpasswd",
    ".pgpass",
];

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_example = [".example", ".sample", ".template", ".dist"].iter().any(|end| name.ends_with(end));
    let begins = ["id_rsa", "id_ed25519", "id_ecdsa", "id_dsa", "service-account", "service_account"];
    let ends = [".pem", ".key", ".p12", ".pfx", ".keystore", ".jks", ".kdbx", ".tfstate", ".tfstate.backup"];
    let whole = [
        ".git-credentials",
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
            || whole.contains(&name.as_str())
            || HIDDEN_SECRETS.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_slashes_and_absolute_paths_are_resolved() {
        let root = Some(Path::new("/home/ada/shop"));
        let of = |given: &str| PathRef::of(given, root);
        let inside = |path: &str| PathRef::Inside(path.into());
        assert_eq!(of("./a/../b"), inside("b"));
        assert_eq!(of(" a//b/./c "), inside("a/b/c"));
        assert_eq!(of("/home/ada/shop/a"), inside("a"));
        assert_eq!(of("/home/ada/./shop/x/../a"), inside("a"));
        assert_eq!(of("/home/ada/shop"), inside(""));
        assert_eq!(of("."), inside(""));
        for given in ["~", "~/x", "../x", "a/../../x", "/home/ada/shopx/a", "/etc/passwd", "/home/ada/shop/../x", "/"] {
            assert!(matches!(of(given), PathRef::Outside(_)), "{given}: {:?}", of(given));
        }
        // A path that leaves the workspace and comes back by name may be another directory.
        assert!(matches!(of("../space/a"), PathRef::Outside(_)));
        assert!(matches!(PathRef::of("/home/ada/shop/a", None), PathRef::Outside(_)));
    }

    #[test]
    fn a_pattern_for_hidden_files_may_match_a_secret() {
        assert!([".e*", ".*", "a/.n?mrc", ".[en]*"].into_iter().all(pattern_may_match_secret));
        assert!(!["*", "*.rs", ".x*", "src/*", ".", ".gitignore"].into_iter().any(pattern_may_match_secret));
    }

    #[test]
    fn secrets_are_known_by_their_names() {
        for path in [
            ".env",
            "a/.env.local",
            "deploy/server.key",
            "x/ID_RSA",
            ".ssh/config",
            "secrets/x",
            ".docker/config.json",
            "terraform.tfstate",
            "service-account.json",
        ] {
            assert!(PathRef::of(path, None).looks_secret(), "{path}");
        }
        for path in [".env.example", "src/environment.rs", "monkey.rs", "id_ed25519.pub", ".envrc.md"] {
            assert!(!PathRef::of(path, None).looks_secret(), "{path}");
        }
    }
}
