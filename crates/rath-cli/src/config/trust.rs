//! What a project's configuration file may not set.
//!
//! The file may have come with a cloned repository, so it can restrict what the user and the defaults allow, but relax
//! nothing, until the user trusts the project with `trust = ["DIR"]` in their own file.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rath::policy::PolicyRule;
use rath::providers::{NEED_NO_API, ProviderSpec};
use rath::sandbox::Limits;

use super::{Checkpoint, Config, File, Merge, Run, Sandbox, Workspace};

/// Whether the user trusts the directory `project`.
pub(crate) fn trusts(user: &Config, home: Option<&Path>, project: &Path) -> bool {
    let Ok(project) = project.canonicalize() else { return false };
    user.trust.iter().any(|dir| {
        let dir = match (dir.strip_prefix("~"), home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => dir.clone(),
        };
        dir.is_absolute() && dir.canonicalize().is_ok_and(|dir| project.starts_with(dir))
    })
}

/// Refuses keys that no project may set, trusted or not.
pub(crate) fn check_any(project: &File) -> Result<()> {
    if !project.config.trust.is_empty() {
        return Err(project.refuse(&["trust"], "`trust` is allowed only in your own configuration file"));
    }
    // The file is in the store's directory: someone who can rewrite the store can rewrite the file too.
    match project.config.checkpoint.key {
        None => Ok(()),
        Some(_) => {
            let why = "the trusted checkpoint key is allowed only in your own configuration file";
            Err(project.refuse(&["checkpoint", "key"], why))
        }
    }
}

/// Refuses, in the file of an untrusted project, values that allow more than the user's file or the defaults do.
pub(crate) fn check_stranger(user: &Config, project: &File) -> Result<()> {
    let refuse = |key: &[&str], why: &str| {
        let help = "help: if you know and accept this project's configuration, run `rath config trust`";
        Err(project.refuse(key, &format!("{why}\n  {help}")))
    };
    // Every struct is destructured without `..`: a new key does not compile until this function decides who may set it.
    let Config { model, providers, run, policy, trust, workspace, sandbox, retention, merge, checkpoint } =
        &project.config;
    // Rules of an untrusted project can only make a decision stricter: see `Policy::with_restrictions`.
    let _: &Vec<PolicyRule> = policy;
    // A project may choose which side wins in its file merges.
    let Merge { ours: _, theirs: _, conflict: _ } = merge;
    // No project may set these: see `check_any`.
    let (_, Checkpoint { key: _ }) = (trust, checkpoint);
    for (name, provider) in providers {
        if NEED_NO_API.contains(&name.as_str()) || user.providers.contains_key(name) {
            let why = "an untrusted project cannot change a provider that gets its key from outside the project";
            return refuse(&["providers", name], why);
        }
        // A key of its own, headers and the dialect go to the provider that the project adds, and nowhere else.
        let ProviderSpec { api: _, base_url: _, dialect: _, key: _, key_env, headers: _ } = provider;
        if key_env.is_some() {
            let why = "an untrusted project cannot read an API key from your environment";
            return refuse(&["providers", name, "key_env"], why);
        }
        if !provider.is_local() {
            let why = "an untrusted project can only add a provider whose base_url is on this machine";
            return refuse(&["providers", name, "base_url"], why);
        }
    }
    // A project may choose an agent's tools: the policy decides about each call.
    let Run { budget, tools: _ } = run;
    if budget.is_some() {
        return refuse(&["run", "budget"], "an untrusted project cannot set the budget of your runs");
    }
    if model.is_some() && user.model.is_some() {
        return refuse(&["model"], "an untrusted project cannot replace your model");
    }
    // A project could ignore the same files with its `.gitignore`; exceeding the quota only prints a warning.
    let Workspace { ignore: _, max_files: _, max_bytes: _, quota: _ } = workspace;
    let (ours, asked) = (user.workspace_budget(), project.config.workspace_budget());
    for (key, is_raised) in [("max_files", asked.files > ours.files), ("max_bytes", asked.bytes > ours.bytes)] {
        if is_raised {
            return refuse(&["workspace", key], "an untrusted project can lower this limit, not raise it");
        }
    }
    let Sandbox { read, hide, env, seconds, processes, memory, address_space, file_size, open_files, disk } = sandbox;
    // Hidden paths accumulate, so a project can only hide more.
    let _: &Vec<PathBuf> = hide;
    // `raised` checks the limits.
    let _ = [seconds, processes, memory, address_space, file_size, open_files, disk];
    if read.iter().any(|path| !user.sandbox.read.contains(path)) {
        return refuse(&["sandbox", "read"], "an untrusted project cannot make more files readable to commands");
    }
    if env.iter().any(|name| !user.sandbox.env.contains(name)) {
        return refuse(&["sandbox", "env"], "an untrusted project cannot pass more variables to commands");
    }
    if !retention.is_empty() && *retention != user.retention {
        return refuse(&["retention"], "an untrusted project cannot set which sessions are deleted");
    }
    let (ours, asked) = (user.sandbox.limits(), sandbox.given_limits(user.sandbox.limits()));
    match raised(&ours, &asked) {
        Some(key) => refuse(&["sandbox", key], "an untrusted project can lower this limit, not raise it"),
        None => Ok(()),
    }
}

/// The configuration key of the first limit that is higher in `asked` than in `ours`.
fn raised(ours: &Limits, asked: &Limits) -> Option<&'static str> {
    let higher = |ours: Option<u64>, asked: Option<u64>| ours.is_some_and(|ours| asked.is_none_or(|it| it > ours));
    let seconds = |limits: &Limits| limits.wall_time.map(|time| time.as_secs());
    let pairs = [
        ("seconds", seconds(ours), seconds(asked)),
        ("processes", ours.processes, asked.processes),
        ("memory", ours.memory, asked.memory),
        ("address_space", ours.address_space, asked.address_space),
        ("file_size", ours.file_size, asked.file_size),
        ("open_files", ours.open_files, asked.open_files),
        ("disk", ours.disk, asked.disk),
    ];
    pairs.into_iter().find(|(_, ours, asked)| higher(*ours, *asked)).map(|(key, ..)| key)
}
