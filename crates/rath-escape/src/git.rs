//! Attempts to change files that the host's git and Rath use later.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use crate::attempt::{Attempt, Tried, harmless};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmless("git-hook-change", "write to a git hook", |_| append(".git/hooks/pre-commit")),
    harmless("git-hook-new", "make a git hook", |_| {
        File::create_new(".git/hooks/post-checkout")?;
        Ok("made .git/hooks/post-checkout".to_owned())
    }),
    harmless("git-hook-mode", "make a sleeping git hook executable", |_| {
        fs::set_permissions(".git/hooks/sleeping", Permissions::from_mode(0o755))?;
        Ok("woke .git/hooks/sleeping".to_owned())
    }),
    harmless("git-hook-rename", "move a program over a git hook", |_| {
        fs::write("scratch/program", "#!/bin/sh\n")?;
        fs::rename("scratch/program", ".git/hooks/pre-commit")?;
        Ok("replaced .git/hooks/pre-commit".to_owned())
    }),
    harmless("git-hook-hard-link", "write to a git hook through a hard link", |_| {
        let _ = fs::remove_file("scratch/hook-link");
        fs::hard_link(".git/hooks/pre-commit", "scratch/hook-link")?;
        append("scratch/hook-link")
    }),
    harmless("git-hook-link", "write to a git hook through a symbolic link", |_| {
        let _ = fs::remove_file("scratch/hooks-link");
        symlink("../.git/hooks", "scratch/hooks-link")?;
        append("scratch/hooks-link/pre-commit")
    }),
    harmless("git-hooks-replaced", "put a link in the place of .git/hooks", |_| {
        fs::create_dir_all("scratch/my-hooks")?;
        fs::rename(".git/hooks", ".git/old-hooks")?;
        symlink("../scratch/my-hooks", ".git/hooks")?;
        Ok("replaced .git/hooks".to_owned())
    }),
    harmless("git-config-change", "write to .git/config", |_| append(".git/config")),
    harmless("git-config-rename", "move another config over .git/config, as git does", |_| {
        fs::write("scratch/config.lock", "[core]\n\tfsmonitor = ./program\n")?;
        fs::rename("scratch/config.lock", ".git/config")?;
        Ok("replaced .git/config".to_owned())
    }),
    harmless("git-config-delete", "delete .git/config", |_| {
        fs::remove_file(".git/config")?;
        Ok("deleted .git/config".to_owned())
    }),
    harmless("git-config-by-proc", "write to .git/config through /proc/self/cwd", |_| {
        append("/proc/self/cwd/.git/config")
    }),
    harmless("git-replaced", "move .git away and make another", |_| replace(".git", "scratch/old-git")),
    harmless("rath-change", "write to .rath", |_| append(".rath/settings.toml")),
    harmless("rath-new", "make a file in .rath", |_| {
        File::create_new(".rath/new")?;
        Ok("made .rath/new".to_owned())
    }),
    harmless("rath-hard-link", "write to .rath through a hard link", |_| {
        let _ = fs::remove_file("scratch/rath-link");
        fs::hard_link(".rath/settings.toml", "scratch/rath-link")?;
        append("scratch/rath-link")
    }),
    harmless("rath-replaced", "move .rath away and make another", |_| replace(".rath", "scratch/old-rath")),
];

fn append(path: &str) -> Tried {
    File::options().append(true).open(path)?.write_all(b"# changed from inside\n")?;
    Ok(format!("wrote to {path}"))
}

fn replace(directory: &str, away: &str) -> Tried {
    fs::rename(directory, away)?;
    fs::create_dir(directory)?;
    fs::write(Path::new(directory).join("config"), "[core]\n\tfsmonitor = ./program\n")?;
    Ok(format!("replaced {directory}"))
}
