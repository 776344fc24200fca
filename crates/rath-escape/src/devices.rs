//! Attempts to open devices of the machine.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use libc::{O_NONBLOCK, S_IFBLK, S_IFCHR, makedev};

use crate::attempt::{Attempt, Tried, harmless, refused};
use crate::facts::Facts;
use crate::sys::{any_of, call, named};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmless("open-memory", "open the machine's memory", |_| any_device(&["mem", "kmem", "port"])),
    harmless("open-kernel-log", "open the kernel's log", |_| any_device(&["kmsg"])),
    harmless("open-disks", "open a disk", open_disks),
    harmless("open-fuse", "open /dev/fuse", |_| any_device(&["fuse", "cuse"])),
    harmless("open-virtual-machine", "open /dev/kvm and what belongs to it", |_| {
        any_device(&["kvm", "vhost-net", "vhost-vsock", "vsock", "vfio/vfio"])
    }),
    harmless("open-tunnel", "open a network tunnel", |_| any_device(&["net/tun", "ppp"])),
    harmless("open-loops", "open what mounts files as disks", |_| {
        any_device(&["loop-control", "mapper/control", "btrfs-control", "autofs"])
    }),
    harmless("open-console", "open the machine's consoles", |_| {
        any_device(&["console", "tty0", "tty1", "ttyS0", "vcs", "vcsa", "vcs1", "hvc0"])
    }),
    harmless("open-input", "open keyboards, screens and sound", |_| {
        any_device(&["uinput", "input/event0", "input/mice", "fb0", "dri/card0", "snd/timer", "uhid", "rfkill"])
    }),
    harmless("open-odd-devices", "open what else a kernel offers", |_| {
        any_device(&["userfaultfd", "hpet", "nvram", "cpu/0/msr", "mcelog", "hwrng", "rtc0", "tpm0"])
    }),
    harmless("make-disk-node", "make a device file of the disk", |_| make_node(S_IFBLK, disk_number())),
    harmless("make-memory-node", "make a device file of the memory", |_| make_node(S_IFCHR, makedev(1, 1))),
    harmless("make-log-node", "make a device file of the kernel's log", |_| make_node(S_IFCHR, makedev(1, 11))),
];

fn any_device(names: &[&str]) -> Tried {
    any_of("devices", names, |name| open(&Path::new("/dev").join(name)))
}

fn open(path: &Path) -> Tried {
    let open = |write| File::options().read(true).write(write).custom_flags(O_NONBLOCK).open(path);
    open(false).or_else(|_| open(true)).map_err(named(&path.display().to_string()))?;
    Ok(format!("opened {}", path.display()))
}

/// Tries the disks in `/dev` and in `/proc/partitions`.
fn open_disks(_: &Facts) -> Tried {
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
    let seen = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_block_device()));
    let mut paths: Vec<_> = seen.map(|entry| entry.path()).collect();
    paths.extend(
        ["sda", "sda1", "vda", "vda1", "nvme0n1", "xvda", "dm-0", "loop0"].map(|name| Path::new("/dev").join(name)),
    );
    any_of("disks", paths, |path| open(&path))
}

fn disk_number() -> u64 {
    let partitions = fs::read_to_string("/proc/partitions").unwrap_or_default();
    let mut words = partitions.lines().skip(2).flat_map(|line| line.split_whitespace());
    let mut number = || words.next().and_then(|word| word.parse().ok());
    match (number(), number()) {
        (Some(major), Some(minor)) => makedev(major, minor),
        _ => makedev(8, 0),
    }
}

fn make_node(kind: u32, device: u64) -> Tried {
    let (path, name) = (Path::new("scratch/device-node"), CString::from(c"scratch/device-node"));
    let _ = fs::remove_file(path);
    call!(libc::SYS_mknodat, libc::AT_FDCWD, name.as_ptr(), kind | 0o600, device).map_err(named("mknod"))?;
    let opened = File::open(path);
    fs::remove_file(path)?;
    match opened {
        Ok(_) => Ok("made and opened one".to_owned()),
        Err(_) if device == 0 => Err(refused("there is nothing behind it")),
        Err(error) => Ok(format!("made one, though opening it says: {error}")),
    }
}
