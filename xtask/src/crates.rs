//! Checks the dependencies between the crates of the workspace: core ← store ← {rath, audit} ← cli.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};
use cargo_metadata::{DependencyKind, MetadataCommand};

use crate::run::root;

/// The crates of the workspace that each crate may depend on.
const MAY_USE: &[(&str, &[&str])] = &[
    ("rath-core", &[]),
    ("rath-workspace", &["rath-core"]),
    // Erasure and garbage collection also handle the copies of files in the store's directory.
    ("rath-store", &["rath-core", "rath-workspace"]),
    ("rath-sandbox", &["rath-core"]),
    ("rath-model", &["rath-core"]),
    ("rath-macros", &[]),
    ("rath", &["rath-core", "rath-macros", "rath-model", "rath-sandbox", "rath-store", "rath-workspace"]),
    ("rath-audit", &["rath-core", "rath-store", "rath-workspace"]),
    ("rath-cli", &["rath", "rath-audit"]),
    ("rath-testkit", &["rath-core", "rath-faults", "rath-sandbox"]),
    ("rath-escape", &[]),
    ("rath-faults", &[]),
    ("rath-fuzz-targets", &["rath", "rath-audit", "rath-core", "rath-model", "rath-store"]),
    ("rath-recordings", &["rath-core", "rath-model"]),
    (
        "rath-bench",
        &[
            "rath",
            "rath-audit",
            "rath-core",
            "rath-model",
            "rath-recordings",
            "rath-sandbox",
            "rath-store",
            "rath-testkit",
            "rath-workspace",
        ],
    ),
    ("xtask", &[]),
];

/// Crates that rath-core must not depend on, directly or indirectly: async runtimes, HTTP clients, databases.
const NOT_IN_CORE: &[&str] = &[
    "tokio",
    "async-std",
    "smol",
    "hyper",
    "reqwest",
    "axum",
    "rusqlite",
    "libsqlite3-sys",
    "tokio-postgres",
    "sqlx",
    "mio",
];

pub(crate) fn check() -> Result<()> {
    let metadata = MetadataCommand::new().current_dir(root()).other_options(vec!["--offline".into()]).exec();
    let metadata = match metadata {
        Ok(metadata) => metadata,
        Err(_) => MetadataCommand::new().current_dir(root()).exec().context("reading cargo metadata")?,
    };
    let resolve = metadata.resolve.as_ref().context("no dependency graph")?;
    let names: BTreeMap<_, _> = metadata.packages.iter().map(|package| (&package.id, package.name.as_str())).collect();
    let ours: BTreeSet<&str> = metadata.workspace_packages().iter().map(|package| package.name.as_str()).collect();
    let uses = |id: &cargo_metadata::PackageId| -> Vec<&cargo_metadata::PackageId> {
        let node = resolve.nodes.iter().find(|node| node.id == *id);
        let deps = node.map(|node| node.deps.as_slice()).unwrap_or_default();
        let real = deps.iter().filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal));
        real.map(|dep| &dep.pkg).collect()
    };
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        let Some((_, allowed)) = MAY_USE.iter().find(|(known, _)| *known == name) else {
            bail!("crate {name} is new: add its allowed dependencies to xtask/src/crates.rs");
        };
        for used in uses(&package.id).into_iter().filter_map(|id| names.get(id)) {
            if ours.contains(used) && !allowed.contains(used) {
                bail!("{name} depends on {used}, which xtask/src/crates.rs does not allow");
            }
        }
    }
    let core = metadata.packages.iter().find(|package| package.name == "rath-core").context("no rath-core")?;
    let (mut open, mut seen) = (vec![&core.id], BTreeSet::new());
    while let Some(id) = open.pop() {
        if seen.insert(id) {
            open.extend(uses(id));
        }
    }
    for name in seen.into_iter().filter_map(|id| names.get(id)) {
        if NOT_IN_CORE.contains(name) {
            bail!("rath-core depends on {name}: it must not depend on a runtime, HTTP client or database");
        }
    }
    eprintln!("\ncrates: the dependencies of all {} are allowed", ours.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_dependencies_between_crates_are_allowed() {
        super::check().unwrap();
    }
}
