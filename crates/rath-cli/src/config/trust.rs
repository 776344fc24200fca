//! What a project's file may not say.
//!
//! It may have come with a repository that somebody cloned. So it can narrow what the user and the defaults allow, and
//! widen nothing, until the user says that the project is trusted: `trust = ["DIR"]` in the user's own file.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rath::policy::Rule;
use rath::providers::{NEED_NO_API, ProviderSpec};
use rath::sandbox::Limits;

use super::{Checkpoint, Config, File, Merge, Run, Sandbox, Workspace};

/// Whether the user trusts what lies in `project`.
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

/// Refuses what no project may say.
pub(crate) fn check_any(project: &File) -> Result<()> {
    if !project.config.trust.is_empty() {
        return Err(project.refuse(&["trust"], "a project cannot say that it is trusted: only your own file can"));
    }
    // The file lies in the store: who can rewrite the one can rewrite the other.
    match project.config.checkpoint.key {
        None => Ok(()),
        Some(_) => {
            let why = "a store cannot say whose checkpoints it is to be held against: only your own file can";
            Err(project.refuse(&["checkpoint", "key"], why))
        }
    }
}

/// Refuses what would widen what the user, or the defaults where the user says nothing, allow.
pub(crate) fn check_stranger(user: &Config, project: &File) -> Result<()> {
    let refuse = |key: &[&str], why: &str| {
        let help = "help: if you know what this project says, `rath config trust` trusts it";
        Err(project.refuse(key, &format!("{why}\n  {help}")))
    };
    // Every key is named here and below: a new one does not compile before it is decided who may set it.
    let Config { model, providers, run, policy, trust, workspace, sandbox, retention, merge, checkpoint } =
        &project.config;
    // Rules of a project that is not trusted can only make a decision stricter: see `Policy::guarded_by`.
    let _: &Vec<Rule> = policy;
    // Which side wins in a merge of files is the project's affair.
    let Merge { ours: _, theirs: _, conflict: _ } = merge;
    // No project may set these: see `check_any`.
    let (_, Checkpoint { key: _ }) = (trust, checkpoint);
    for (name, provider) in providers {
        if NEED_NO_API.contains(&name.as_str()) || user.providers.contains_key(name) {
            let why = "a project that is not trusted cannot change a provider whose key comes from elsewhere";
            return refuse(&["providers", name], why);
        }
        // A key of its own, headers and the dialect go to the provider that the project adds, and nowhere else.
        let ProviderSpec { api: _, base_url: _, dialect: _, key: _, key_env, headers: _ } = provider;
        if key_env.is_some() {
            let why = "a project that is not trusted cannot take a key from your environment";
            return refuse(&["providers", name, "key_env"], why);
        }
        if !provider.is_here() {
            let why = "a project that is not trusted can add a provider on this machine only, by its base_url";
            return refuse(&["providers", name, "base_url"], why);
        }
    }
    // Which tools an agent has: rules decide about each call of them.
    let Run { budget, tools: _ } = run;
    if budget.is_some() {
        return refuse(&["run", "budget"], "a project that is not trusted cannot say what a run may cost you");
    }
    if model.is_some() && user.model.is_some() {
        return refuse(&["model"], "a project that is not trusted cannot choose another model than yours");
    }
    // What a project ignores it could ignore by its `.gitignore` too; the quota only warns.
    let Workspace { ignore: _, max_files: _, max_bytes: _, quota: _ } = workspace;
    let (ours, asked) = (user.workspace_budget(), project.config.workspace_budget());
    for (key, is_raised) in [("max_files", asked.files > ours.files), ("max_bytes", asked.bytes > ours.bytes)] {
        if is_raised {
            return refuse(&["workspace", key], "a project that is not trusted can lower a limit, not raise it");
        }
    }
    let Sandbox { read, hide, env, seconds, processes, memory, address_space, file_size, open_files, disk } = sandbox;
    // What is hidden adds up.
    let _: &Vec<PathBuf> = hide;
    // The limits: see `raised`.
    let _ = [seconds, processes, memory, address_space, file_size, open_files, disk];
    if read.iter().any(|path| !user.sandbox.read.contains(path)) {
        return refuse(&["sandbox", "read"], "a project that is not trusted cannot show more files to commands");
    }
    if env.iter().any(|name| !user.sandbox.env.contains(name)) {
        return refuse(&["sandbox", "env"], "a project that is not trusted cannot show more variables to commands");
    }
    if !retention.is_empty() && *retention != user.retention {
        return refuse(&["retention"], "a project that is not trusted cannot say which sessions go");
    }
    let (ours, asked) = (user.sandbox.limits(), sandbox.given_limits(user.sandbox.limits()));
    match raised(&ours, &asked) {
        Some(key) => refuse(&["sandbox", key], "a project that is not trusted can lower a limit, not raise it"),
        None => Ok(()),
    }
}

/// The limit that is higher in `asked`.
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
