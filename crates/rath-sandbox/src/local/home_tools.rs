//! Directories with development tools in the user's home. Commands can read these and nothing else of the home
//! directory.

use std::path::{Path, PathBuf};

/// Compilers, interpreters and package caches, relative to the home directory. None of these may contain credentials.
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

/// The tool directories that exist.
pub(super) fn existing(home: Option<&Path>) -> Vec<PathBuf> {
    let Some(home) = home else { return Vec::new() };
    TOOLS.iter().map(|name| home.join(name)).filter(|path| path.exists()).collect()
}
