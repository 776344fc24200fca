//! Attempts to change mounts.

use std::ffi::{CStr, CString};
use std::fs;
use std::path::Path;

use libc::{AT_FDCWD, MNT_DETACH, MS_BIND, MS_REC, MS_REMOUNT, SYS_mount, SYS_umount2};

use crate::attempt::{Attempt, Tried, harmful, harmless};
use crate::facts::Facts;
use crate::secrets::read_planted;
use crate::sys::{any_of, c_path, call, door, named};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmful("mount-bind", "mount / a second time", |_| mount(c"/", c"", MS_BIND | MS_REC, c"")),
    harmful("mount-tmpfs", "mount a tmpfs", |_| mount(c"none", c"tmpfs", 0, c"")),
    harmful("mount-proc", "mount a fresh /proc", |_| mount(c"none", c"proc", 0, c"")),
    harmful("mount-sys", "mount a fresh /sys", |_| mount(c"none", c"sysfs", 0, c"")),
    harmful("mount-cgroup", "mount the control groups", |_| {
        let any = |kind: &CStr| mount(c"none", kind, 0, c"");
        any_of("kinds", [c"cgroup2", c"cgroup"], any)
    }),
    harmful("mount-devices", "mount the machine's devices", |_| mount(c"none", c"devtmpfs", 0, c"")),
    harmful("mount-overlay", "mount an overlay over the workspace", |_| {
        for directory in ["scratch/overlay-upper", "scratch/overlay-work"] {
            fs::create_dir_all(directory)?;
        }
        mount(c"none", c"overlay", 0, c"lowerdir=/etc,upperdir=scratch/overlay-upper,workdir=scratch/overlay-work")
    }),
    harmful("mount-disk", "mount the machine's disk", mount_disk),
    harmful("remount-writable", "make every mount writable", |_| {
        any_of("mounts", mount_points()?, |point| {
            let path = c_path(&point);
            let nothing = std::ptr::null::<u8>();
            call!(SYS_mount, nothing, path.as_ptr(), nothing, MS_REMOUNT | MS_BIND, nothing)?;
            Ok(format!("remounted {point}"))
        })
    }),
    harmful("unmount-masks", "unmount whatever hides something, then look for secrets", unmount_masks),
    harmful("move-mount", "move a mount to another place", |_| {
        let points = mount_points()?;
        fs::create_dir_all("scratch/mount-point")?;
        any_of("mounts", points, |point| {
            let (from, to) = (c_path(&point), c_path("scratch/mount-point"));
            call!(SYS_mount, from.as_ptr(), to.as_ptr(), 0, libc::MS_MOVE, 0)?;
            Ok(format!("moved {point}"))
        })
    }),
    harmful("share-mounts", "make the mounts shared with the host", |_| {
        call!(SYS_mount, 0, c"/".as_ptr(), 0, libc::MS_SHARED | MS_REC, 0).map_err(named("mount"))?;
        Ok("made them shared".to_owned())
    }),
    harmless("pivot-root", "make another directory the root", |_| {
        door("pivot_root", call!(libc::SYS_pivot_root, c"/no-such".as_ptr(), c"/no-such".as_ptr()))
    }),
    harmless("change-root", "leave through a second root", change_root),
    harmless("open-file-system", "make a file system with fsopen", |_| {
        call!(libc::SYS_fsopen, c"tmpfs".as_ptr(), 1).map_err(named("fsopen"))?;
        Ok("has a new tmpfs".to_owned())
    }),
    harmless("copy-mounts", "take a copy of all mounts with open_tree", |_| {
        let flags = libc::OPEN_TREE_CLONE | libc::AT_RECURSIVE as u32;
        call!(libc::SYS_open_tree, AT_FDCWD, c"/".as_ptr(), flags).map_err(named("open_tree"))?;
        Ok("has a copy of all mounts".to_owned())
    }),
    harmless("attach-mount", "attach a mount with move_mount", |_| {
        door("move_mount", call!(libc::SYS_move_mount, -1i64, c"".as_ptr(), -1i64, c"".as_ptr(), 4 | 0x40))
    }),
    harmless("pick-file-system", "change a file system with fspick", |_| {
        call!(libc::SYS_fspick, AT_FDCWD, c"/".as_ptr(), 0).map_err(named("fspick"))?;
        Ok("may change the root file system".to_owned())
    }),
    harmful("mount-attributes", "make all mounts writable with mount_setattr", |_| {
        let attributes: [u64; 4] = [0, libc::MOUNT_ATTR_RDONLY, 0, 0];
        let (flags, size) = (libc::AT_RECURSIVE, size_of_val(&attributes));
        call!(libc::SYS_mount_setattr, AT_FDCWD, c"/".as_ptr(), flags, attributes.as_ptr(), size)
            .map_err(named("mount_setattr"))?;
        Ok("made all mounts writable".to_owned())
    }),
];

fn mount(from: &CStr, kind: &CStr, flags: u64, options: &CStr) -> Tried {
    fs::create_dir_all("scratch/mount-point")?;
    let to = c"scratch/mount-point".as_ptr();
    call!(SYS_mount, from.as_ptr(), to, kind.as_ptr(), flags, options.as_ptr()).map_err(named("mount"))?;
    let _ = call!(SYS_umount2, to, MNT_DETACH);
    Ok(format!("mounted {}", if kind.is_empty() { from } else { kind }.to_string_lossy()))
}

/// Finds the disk by the device number of the workspace.
fn mount_disk(_: &Facts) -> Tried {
    let partitions = fs::read_to_string("/proc/partitions").map_err(named("/proc/partitions"))?;
    let names = partitions.lines().skip(2).filter_map(|line| line.split_whitespace().nth(3));
    let devices = names.filter_map(|name| CString::new(format!("/dev/{name}")).ok());
    any_of("disks", devices.collect::<Vec<_>>(), |device| mount(&device, c"ext4", libc::MS_RDONLY, c""))
}

fn mount_points() -> std::io::Result<Vec<String>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(str::to_owned).collect())
}

fn unmount_masks(facts: &Facts) -> Tried {
    let unmounted = any_of("mounts", mount_points()?.into_iter().rev(), |point| {
        let path = c_path(&point);
        call!(SYS_umount2, path.as_ptr(), MNT_DETACH)?;
        Ok(format!("unmounted {point}"))
    });
    let secrets = ["secret", "store", "home"].map(|name| facts.path(name));
    for secret in secrets.into_iter().flatten() {
        read_planted(&secret)
            .or_else(|_| read_planted(&secret.join("records")))
            .or_else(|_| read_planted(&secret.join(".netrc")))?;
    }
    unmounted
}

/// The classic chroot escape: a process whose working directory is above its root walks up to the real root.
fn change_root(facts: &Facts) -> Tried {
    fs::create_dir_all("scratch/new-root")?;
    call!(libc::SYS_chroot, c"scratch/new-root".as_ptr()).map_err(named("chroot"))?;
    for _ in 0..100 {
        std::env::set_current_dir("..")?;
    }
    let _ = call!(libc::SYS_chroot, c".".as_ptr());
    let read = facts.path("secret").ok().and_then(|secret| read_planted(Path::new(&secret)).ok());
    Ok(read.unwrap_or_else(|| "may change its root".to_owned()))
}
