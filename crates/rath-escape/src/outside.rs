//! Attempts to change files outside the workspace.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use libc::SYS_setxattr;

use crate::attempt::{Attempt, Failed, Tried, harmful, harmless, refused};
use crate::facts::Facts;
use crate::sys::{any_of, c_path, call, named};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmless("write-outside", "write to a planted file by its absolute path", |facts| {
        overwrite(&facts.path("victim")?)
    }),
    harmless("write-by-dots", "write to a planted file by way of ../../..", |facts| {
        overwrite(Path::new(&format!("{}{}", "../".repeat(40), facts.text("victim")?)))
    }),
    harmless("write-in-parent", "write to a planted file in the parent directory of the workspace", |facts| {
        overwrite(&Path::new("..").join(facts.text("sibling")?))
    }),
    harmless("write-by-link", "write to a planted file through a symbolic link", |facts| {
        let _ = fs::remove_file("scratch/link-to-victim");
        std::os::unix::fs::symlink(facts.path("victim")?, "scratch/link-to-victim")?;
        overwrite(Path::new("scratch/link-to-victim"))
    }),
    harmless("write-by-hard-link", "link a planted file into the workspace and write to it", |facts| {
        let _ = fs::remove_file("scratch/hard-link");
        fs::hard_link(facts.path("victim")?, "scratch/hard-link")?;
        overwrite(Path::new("scratch/hard-link"))
    }),
    harmless("link-outside", "link a file of the workspace to the outside", |facts| {
        fs::write("scratch/linked", "")?;
        let to = beside_victim(facts, "linked-from-inside")?;
        fs::hard_link("scratch/linked", &to)?;
        Ok(format!("made {}", to.display()))
    }),
    harmless("rename-out", "move a file of the workspace to the outside", |facts| {
        fs::write("scratch/leaving", "")?;
        let to = beside_victim(facts, "moved-from-inside")?;
        fs::rename("scratch/leaving", &to)?;
        Ok(format!("made {}", to.display()))
    }),
    harmless("rename-over", "move a file of the workspace over a planted file", |facts| {
        fs::write("scratch/leaving", "")?;
        let to = beside_victim(facts, "victim")?;
        fs::rename("scratch/leaving", &to)?;
        Ok(format!("replaced {}", to.display()))
    }),
    harmless("rename-in", "move a planted file into the workspace", |facts| {
        fs::rename(facts.path("victim")?, "scratch/taken")?;
        Ok("took it away".to_owned())
    }),
    harmless("exchange", "exchange a file of the workspace with a planted one", exchange),
    harmless("create-outside", "create a file next to a planted one", |facts| {
        let path = beside_victim(facts, "made-from-inside")?;
        File::create_new(&path)?;
        Ok(format!("made {}", path.display()))
    }),
    harmless("make-directory-outside", "create a directory next to a planted file", |facts| {
        let path = beside_victim(facts, "directory-from-inside")?;
        fs::create_dir(&path)?;
        Ok(format!("made {}", path.display()))
    }),
    harmless("make-link-outside", "create a symbolic link next to a planted file", |facts| {
        let path = beside_victim(facts, "link-from-inside")?;
        std::os::unix::fs::symlink("/", &path)?;
        Ok(format!("made {}", path.display()))
    }),
    harmless("delete-outside", "delete a planted file", |facts| {
        fs::remove_file(facts.path("victim")?)?;
        Ok("deleted it".to_owned())
    }),
    harmless("truncate-outside", "cut a planted file short without opening it", |facts| {
        let path = c_path(facts.path("victim")?);
        call!(libc::SYS_truncate, path.as_ptr(), 0)?;
        Ok("cut it short".to_owned())
    }),
    harmless("chmod-outside", "change the mode of a planted file", |facts| {
        fs::set_permissions(facts.path("victim")?, Permissions::from_mode(0o600))?;
        Ok("changed its mode".to_owned())
    }),
    harmless("chown-outside", "change the owner of a planted file", |facts| {
        let path = facts.path("victim")?;
        std::os::unix::fs::chown(&path, Some(fs::metadata(&path)?.uid()), None)?;
        Ok("may change its owner".to_owned())
    }),
    harmless("touch-outside", "change the times of a planted file", |facts| {
        let path = c_path(facts.path("victim")?);
        call!(libc::SYS_utimensat, libc::AT_FDCWD, path.as_ptr(), 0, 0)?;
        Ok("changed its times".to_owned())
    }),
    harmless("attribute-outside", "give a planted file an extended attribute", |facts| {
        let (path, name) = (c_path(facts.path("victim")?), c"user.rath");
        call!(SYS_setxattr, path.as_ptr(), name.as_ptr(), name.as_ptr(), 1, 0)?;
        Ok("set user.rath".to_owned())
    }),
    harmless("lock-outside", "lock a planted file against its owner", |facts| {
        let file = File::open(facts.path("victim")?)?;
        file.lock()?;
        Ok("locked it".to_owned())
    }),
    harmless("watch-outside", "watch a directory outside", |facts| {
        let path = c_path(facts.path("outside")?);
        let watcher = call!(libc::SYS_inotify_init1, libc::O_CLOEXEC)?;
        call!(libc::SYS_inotify_add_watch, watcher, path.as_ptr(), libc::IN_ALL_EVENTS)?;
        Ok("watches it".to_owned())
    }),
    harmless("run-outside", "run a program outside the workspace", |facts| {
        let output = std::process::Command::new(facts.path("outside")?.join("program")).output()?;
        Ok(format!("ran it: {}", output.status))
    }),
    harmless("enter-outside", "make a directory outside its own", |facts| {
        std::env::set_current_dir(facts.path("outside")?)?;
        let name = beside_victim(facts, "victim")?;
        File::open(name.file_name().unwrap_or_default())?;
        Ok("is there".to_owned())
    }),
    harmless("write-other-workspace", "write to another session's workspace", |facts| {
        overwrite(&facts.path("other")?.join("notes"))
    }),
    harmless("write-store", "write to the store, which is hidden inside the workspace", |facts| {
        overwrite(&facts.path("store")?.join("records"))
    }),
    harmless("replace-store", "move the store away and put another in its place", |facts| {
        let store = facts.path("store")?;
        fs::rename(&store, "scratch/old-store")?;
        fs::create_dir(&store)?;
        Ok("put another in its place".to_owned())
    }),
    harmless("write-sandbox-state", "change the state file of the sandbox", |facts| {
        let path = facts.path("state")?.join("sandbox.json");
        File::options().append(true).open(&path)?;
        Ok(format!("may write to {}", path.display()))
    }),
    harmless("delete-sandbox-state", "delete the state file of the sandbox", |facts| {
        let path = facts.path("state")?;
        fs::rename(path.join("sandbox.json"), path.join("sandbox.away"))?;
        fs::rename(path.join("sandbox.away"), path.join("sandbox.json"))?;
        Ok("may take it away".to_owned())
    }),
    harmless("write-home", "add a line to ~/.bashrc", |facts| overwrite(&facts.path("home")?.join(".bashrc"))),
    harmless("write-programs", "open the machine's programs for writing", |_| {
        let paths = ["/usr/bin/env", "/usr/bin/id", "/usr/bin/cut", "/sbin/ldconfig"];
        any_of("programs", paths, |path| {
            File::options().write(true).open(path)?;
            Ok(format!("may write to {path}"))
        })
    }),
    harmless("write-settings", "open the machine's settings for writing", |facts| {
        any_of("settings", ["passwd", "hosts", "ld.so.cache", "resolv.conf", "profile"], |name| {
            let path = format!("/etc/{name}");
            let file = File::options().write(true).open(&path)?.metadata()?;
            match facts.text(name)? == format!("{}:{}", file.dev(), file.ino()) {
                true => Ok(format!("may write to {path}")),
                false => Err(refused(format!("{path} is another file here"))),
            }
        })
    }),
    harmful("add-program", "make a file among the machine's programs", |_| {
        any_of("directories", ["/usr/bin", "/usr/local/bin", "/bin", "/lib", "/usr/lib", "/boot"], |directory| {
            let path = Path::new(directory).join(".rath-escape");
            File::create_new(&path)?;
            fs::remove_file(&path)?;
            Ok(format!("made {}", path.display()))
        })
    }),
];

fn overwrite(path: &Path) -> Tried {
    let mut file = File::options().write(true).open(path)?;
    file.write_all(b"changed from inside")?;
    Ok(format!("wrote to {}", path.display()))
}

/// A path in the directory of the planted file. Fails if that directory does not contain the file, because it is
/// another directory then.
fn beside_victim(facts: &Facts, name: &str) -> Result<PathBuf, Failed> {
    let victim = facts.path("victim")?;
    fs::symlink_metadata(&victim).map_err(named("the planted file"))?;
    Ok(victim.with_file_name(name))
}

fn exchange(facts: &Facts) -> Tried {
    fs::write("scratch/leaving", "")?;
    let (from, to) = (c_path("scratch/leaving"), c_path(facts.path("victim")?));
    let here = libc::AT_FDCWD;
    call!(libc::SYS_renameat2, here, from.as_ptr(), here, to.as_ptr(), libc::RENAME_EXCHANGE)?;
    Ok("exchanged them".to_owned())
}
