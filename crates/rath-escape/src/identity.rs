//! Attempts to change the user or group.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use libc::{AT_FDCWD, S_IFREG};

use crate::attempt::{Attempt, Tried, harmless, refused};
use crate::facts::Facts;
use crate::sys::{any_of, c_path, call, named};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmless("become-user", "become another user", |_| {
        let own = unsafe { libc::getuid() };
        any_of("users", [0, 1, 2, 1000, 65534].into_iter().filter(|id| *id != own), |id| {
            call!(libc::SYS_setresuid, id, id, id).map_err(named("setresuid"))?;
            Ok(format!("is user {id}"))
        })
    }),
    harmless("become-group", "become another group", |_| {
        let own = unsafe { libc::getgid() };
        any_of("groups", [0, 1, 5, 6, 42, 1000, 65534].into_iter().filter(|id| *id != own), |id| {
            call!(libc::SYS_setresgid, id, id, id).map_err(named("setresgid"))?;
            Ok(format!("is group {id}"))
        })
    }),
    harmless("change-groups", "join and leave groups", |_| {
        let groups = [0u32, 6, 42];
        any_of("lists", [0, 3], |count| {
            call!(libc::SYS_setgroups, count, groups.as_ptr()).map_err(named("setgroups"))?;
            Ok(format!("is in {count} groups"))
        })
    }),
    harmless("change-file-user", "become another user for files only", |_| {
        let own = unsafe { libc::getuid() };
        let other = if own == 0 { 65534 } else { 0 };
        let _ = call!(libc::SYS_setfsuid, other);
        match call!(libc::SYS_setfsuid, -1i64)? == i64::from(other) {
            true => Ok(format!("is user {other} for files")),
            false => Err(refused("the user for files stays")),
        }
    }),
    harmless("give-file-away", "give a file of the workspace to another user or group", |_| {
        fs::write("scratch/given", "")?;
        let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
        let others = [(0, 0), (1, 1), (1000, 1000), (65534, 65534)];
        any_of("owners", others.into_iter().filter(|other| *other != (uid, gid)), |(uid, gid)| {
            std::os::unix::fs::chown("scratch/given", Some(uid), Some(gid))?;
            Ok(format!("gave it to {uid}:{gid}"))
        })
    }),
    harmless("set-user-bit", "make a set-user-id file that the host can see", |_| special_bit(0o4755)),
    harmless("set-group-bit", "make a set-group-id file that the host can see", |_| special_bit(0o2755)),
    harmless("file-capability", "give a file of the workspace capabilities", |_| {
        fs::write("scratch/capable", "")?;
        let (path, name) = (c_path("scratch/capable"), c"security.capability");
        let all: [u32; 5] = [0x0200_0001, u32::MAX, u32::MAX, u32::MAX, u32::MAX];
        call!(libc::SYS_setxattr, path.as_ptr(), name.as_ptr(), all.as_ptr(), 20, 0).map_err(named("setxattr"))?;
        Ok("gave it".to_owned())
    }),
    harmless("set-user-program", "run a set-user-id program", run_set_user_program),
];

/// Tries all ways to give a file the bits `mode`.
fn special_bit(mode: u32) -> Tried {
    let ways = ["chmod", "fchmod", "fchmodat", "fchmodat2", "open", "openat2", "mknod"];
    any_of("ways", ways, |way| {
        let name = format!("scratch/special-{mode:o}-{way}");
        let (path, _) = (c_path(&name), fs::remove_file(&name));
        if !["open", "openat2", "mknod"].contains(&way) {
            fs::write(&name, "")?;
        }
        let file = path.as_ptr();
        match way {
            "chmod" => fs::set_permissions(&name, Permissions::from_mode(mode))?,
            "fchmod" => File::open(&name)?.set_permissions(Permissions::from_mode(mode))?,
            "fchmodat" => drop(call!(libc::SYS_fchmodat, AT_FDCWD, file, mode)?),
            "fchmodat2" => drop(call!(452, AT_FDCWD, file, mode, 0)?),
            "open" => drop(File::options().write(true).create_new(true).mode(mode).open(&name)?),
            "openat2" => {
                let how = [(libc::O_CREAT | libc::O_WRONLY) as u64, u64::from(mode), 0];
                call!(libc::SYS_openat2, AT_FDCWD, file, how.as_ptr(), size_of_val(&how))?;
            }
            _ => drop(call!(libc::SYS_mknodat, AT_FDCWD, file, S_IFREG | mode, 0)?),
        }
        let found = fs::metadata(&name)?.mode();
        let _ = fs::remove_file(&name);
        match found & 0o6000 {
            0 => Err(refused(format!("{way}: the bit is not there"))),
            _ => Ok(format!("{way} makes one")),
        }
    })
}

/// Runs the planted program, which prints its user.
fn run_set_user_program(facts: &Facts) -> Tried {
    let program = facts.path("set_user_id")?;
    let output = std::process::Command::new(Path::new(&program)).arg("-u").output()?;
    let (now, before) = (String::from_utf8_lossy(&output.stdout).trim().to_owned(), unsafe { libc::geteuid() });
    match now == before.to_string() {
        true => Err(refused(format!("it runs as user {now}, like this one"))),
        false if now.is_empty() => Err(refused(format!("it ended with {}", output.status))),
        false => Ok(format!("it runs as user {now}, not {before}")),
    }
}
