//! Tools that people keep in their home: shown to commands, to read. Nothing else of the home is.

use std::path::{Path, PathBuf};

/// Compilers, interpreters and what their package managers fetched. No directory here holds credentials.
const TOOLS: &[&str] = &[
    ".asdf",
    ".bun/bin",
    ".cargo/bin",
    ".cargo/env",
    ".cargo/git",
    ".cargo/registry",
    ".deno/bin",
    ".julia",
    ".local/bin",
    ".local/lib",
    ".local/share/mise",
    ".local/share/pnpm",
    ".local/share/uv",
    ".nvm",
    ".opam",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".sdkman/candidates",
    ".volta",
    "go/bin",
    "go/pkg",
    "miniconda3",
];

/// Those that are there.
pub(super) fn of(home: Option<&Path>) -> Vec<PathBuf> {
    let Some(home) = home else { return Vec::new() };
    TOOLS.iter().map(|name| home.join(name)).filter(|path| path.exists()).collect()
}
