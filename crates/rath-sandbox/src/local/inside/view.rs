//! The file system view of a sandbox: its own root directory with read-only system directories, the writable workspace,
//! and little else.
//!
//! Everything is mounted below an empty tmpfs, which then becomes the root, and the machine's root is unmounted. Paths
//! that are not named here do not exist in the sandbox.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags,
    fsconfig_create, fsmount, fsopen, mount, mount_bind_recursive, mount_change, move_mount, unmount,
};

use super::endpoints::{self, Endpoints};
use super::{Doing as _, Outcome, raw};
use crate::local::repository::Protected;
use crate::local::wire::{Layers, RawBytes, Setup};

/// System directories that are shown read-only.
pub(in crate::local) const SYSTEM: &[&str] =
    &["bin", "etc", "lib", "lib32", "lib64", "libx32", "nix", "opt", "sbin", "sys/devices/system/cpu", "usr"];

/// Paths in them that are hidden, because they contain secrets that only root may read.
pub(super) const SECRETS: &[&str] = &[
    "/etc/docker",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/ipsec.secrets",
    "/etc/krb5.keytab",
    "/etc/kubernetes",
    "/etc/letsencrypt",
    "/etc/NetworkManager/system-connections",
    "/etc/openvpn",
    "/etc/pki/tls/private",
    "/etc/ppp",
    "/etc/rancher",
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/wireguard",
];

/// Devices that are shown.
pub(super) const DEVICES: &[&str] = &["full", "null", "random", "tty", "urandom", "zero"];

const NOSUID_NODEV: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
pub(super) const READ_ONLY: u64 = NOSUID_NODEV | libc::MOUNT_ATTR_RDONLY;

/// Mount options with the maximum size of a tmpfs.
const IN_MEMORY: &str = "mode=0755,size=64m";

/// A view that is being created.
struct View {
    root: PathBuf,
}

/// Creates the view and enters it. Returns the path of the workspace in the view, and the covered sockets and FIFOs of
/// the workspace.
pub(super) fn make(setup: &Setup, not_enforced: &mut Vec<String>) -> Outcome<(PathBuf, Vec<PathBuf>)> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).doing("making mounts private")?;
    let state = setup.state.path();
    let view = View { root: state.join("root") };
    view.tmpfs(Path::new("/"), "mode=0755,size=4m")?;
    view.show_system()?;
    view.show_devices()?;
    view.tmpfs(Path::new("/run"), IN_MEMORY)?;
    view.bind(Path::new("/proc"), Path::new("/proc"), 0)?;
    view.bind(&state.join("tmp"), Path::new("/tmp"), NOSUID_NODEV)?;
    fs::create_dir_all(view.at(Path::new("/var"))).doing("creating /var")?;
    symlink("../tmp", view.at(Path::new("/var/tmp"))).doing("creating /var/tmp")?;
    symlink("../run", view.at(Path::new("/var/run"))).doing("creating /var/run")?;
    let workspace = setup.mount_path.path();
    if let Some(home) = setup.home.as_ref().map(|home| home.path()).filter(|home| *home != workspace) {
        view.bind(&state.join("home"), &home, NOSUID_NODEV)?;
    }
    for path in setup.readable.iter().map(|path| path.path()).filter(|path| path.exists()) {
        view.bind(&path, &path, READ_ONLY)?;
    }
    match &setup.overlay {
        Some(layers) => view.overlay(layers, &workspace)?,
        None => view.bind(&setup.directory.path(), &workspace, NOSUID_NODEV)?,
    }
    view.protect_repository(&workspace, setup.overlay.is_some(), not_enforced)?;
    let hidden = setup.hidden.iter().map(|path| path.path());
    let hidden = hidden.map(|path| match path.strip_prefix(setup.directory.path()) {
        Ok(inside) => workspace.join(inside),
        Err(_) => path,
    });
    let hidden: Vec<PathBuf> = SECRETS.iter().map(PathBuf::from).chain(hidden).collect();
    view.pin(&workspace, &hidden)?;
    for path in &hidden {
        view.hide(path)?;
    }
    let mut covered = Vec::new();
    // Only commands of the sandbox write to layers, so no process outside listens on sockets there.
    if setup.overlay.is_none() && !setup.probe {
        covered = view.cover_endpoints(&workspace, not_enforced)?;
    }
    view.cover_sockets(setup)?;
    rustix::process::chdir(&view.root).doing("entering the new root")?;
    rustix::process::pivot_root(".", ".").doing("changing the root")?;
    unmount(".", UnmountFlags::DETACH).doing("unmounting the old root")?;
    rustix::process::chdir("/").doing("entering the new root")?;
    // The root itself is read-only. Only the directories mounted for that are writable.
    let attributes = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount_remount("/", attributes, c"").doing("making the new root read-only")?;
    Ok((workspace, covered))
}

/// Reports the FIFOs that commands can open, for the level without mounts.
pub(super) fn report_fifos(workspace: &Path, not_enforced: &mut Vec<String>) -> Outcome<()> {
    let Endpoints { found, unread } = Endpoints::find(workspace, &[FileType::Fifo])?;
    if !found.is_empty() {
        let fifos = first_few(&found);
        not_enforced.push(format!("FIFOs in the workspace can be opened, and processes outside may use them: {fifos}"));
    }
    report_unread(&unread, not_enforced);
    Ok(())
}

fn report_unread(unread: &[PathBuf], not_enforced: &mut Vec<String>) {
    if !unread.is_empty() {
        let directories = first_few(unread);
        not_enforced.push(format!("sockets and FIFOs in unreadable directories are not covered: {directories}"));
    }
}

/// The first few paths, and the number of all.
fn first_few(paths: &[PathBuf]) -> String {
    const FEW: usize = 5;
    let shown: Vec<_> = paths.iter().take(FEW).map(|path| path.display().to_string()).collect();
    match paths.len() {
        ..=FEW => shown.join(", "),
        all => format!("{}, … ({all} in all)", shown.join(", ")),
    }
}

/// Mounts a `/proc` for the PID namespace of this process. It covers the machine's `/proc`, which must be visible for
/// this mount to be allowed. Unmounting it needs a capability that no command has.
pub(super) fn own_proc() -> Outcome<()> {
    let proc = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC).doing("opening /proc")?;
    fsconfig_create(&proc).doing("creating /proc")?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mounted = fsmount(&proc, FsMountFlags::FSMOUNT_CLOEXEC, attributes).doing("mounting /proc")?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&mounted, "", CWD, "/proc", flags).doing("moving the new /proc")
}

impl View {
    /// The current path of a path of the view.
    fn at(&self, path: &Path) -> PathBuf {
        let parts = path.components().filter(|part| matches!(part, Component::Normal(_)));
        self.root.join(parts.collect::<PathBuf>())
    }

    fn show_system(&self) -> Outcome<()> {
        for name in SYSTEM {
            let path = Path::new("/").join(name);
            match fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_symlink() => {
                    let target = fs::read_link(&path).doing("reading a system link")?;
                    symlink(target, self.at(&path)).doing("creating a system link")?;
                }
                Ok(_) => self.bind(&path, &path, READ_ONLY)?,
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn show_devices(&self) -> Outcome<()> {
        let dev = Path::new("/dev");
        self.tmpfs(dev, IN_MEMORY)?;
        for name in DEVICES {
            let device = dev.join(name);
            if fs::metadata(&device).is_ok_and(|meta| meta.file_type().is_char_device()) {
                self.bind(&device, &device, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC)?;
            }
        }
        self.tmpfs(&dev.join("shm"), "mode=1777,size=256m")?;
        let pts = self.at(&dev.join("pts"));
        fs::create_dir_all(&pts).doing("creating /dev/pts")?;
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        mount("devpts", &pts, "devpts", flags, c"newinstance,ptmxmode=0666,mode=0620").doing("mounting /dev/pts")?;
        for (name, target) in [
            ("ptmx", "pts/ptmx"),
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
        ] {
            symlink(target, self.at(&dev.join(name))).doing("creating a link in /dev")?;
        }
        Ok(())
    }

    fn tmpfs(&self, path: &Path, options: &str) -> Outcome<()> {
        let target = self.at(path);
        let options = CString::new(options).map_err(|_| Errno::INVAL).doing("mounting a tmpfs")?;
        fs::create_dir_all(&target).doing("creating a mount point")?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("tmpfs", &target, "tmpfs", flags, &*options).doing("mounting a tmpfs")
    }

    /// Bind-mounts `source` at `path`.
    fn bind(&self, source: &Path, path: &Path, attributes: u64) -> Outcome<()> {
        let target = self.at(path);
        let doing = format!("showing {} at {}", source.display(), path.display());
        if source.is_dir() {
            fs::create_dir_all(&target).doing(&doing)?;
        } else if !target.exists() {
            target.parent().map_or(Ok(()), fs::create_dir_all).doing(&doing)?;
            fs::File::create(&target).doing(&doing)?;
        }
        mount_bind_recursive(source, &target).doing(&doing)?;
        match attributes {
            0 => Ok(()),
            _ => raw::restrict_mounts(&target, attributes).doing(&doing),
        }
    }

    /// Mounts layers. They are passed as open descriptors, because their paths may be too long for the mount options or
    /// contain special characters.
    fn overlay(&self, layers: &Layers, path: &Path) -> Outcome<()> {
        let doing = "mounting the layers of the workspace";
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |layer: &RawBytes| rustix::fs::open(layer.path(), flags, Mode::empty()).doing(doing);
        let name = |layer: &OwnedFd| format!("/proc/self/fd/{}", layer.as_raw_fd());
        let lowers = layers.lowers.iter().map(open).collect::<Outcome<Vec<_>>>()?;
        let (upper, work) = (open(&layers.upper)?, open(&layers.work)?);
        let lower_names = lowers.iter().map(name).collect::<Vec<_>>().join(":");
        let options =
            format!("lowerdir={lower_names},upperdir={},workdir={},userxattr,index=off", name(&upper), name(&work));
        let options = CString::new(options).map_err(|_| Errno::INVAL).doing(doing)?;
        let target = self.at(path);
        fs::create_dir_all(&target).doing(doing)?;
        mount("workspace", &target, "overlay", MountFlags::NOSUID | MountFlags::NODEV, &*options).doing(doing)
    }

    /// Makes hooks and configuration of the repository read-only, because git runs programs from them outside of the
    /// sandbox. The repository is a mount point, so that it cannot be moved and replaced.
    fn protect_repository(&self, workspace: &Path, layered: bool, not_enforced: &mut Vec<String>) -> Outcome<()> {
        let git = workspace.join(".git");
        let kind = match fs::symlink_metadata(self.at(&git)) {
            Ok(meta) => meta.file_type(),
            Err(_) => return Ok(()),
        };
        if kind.is_symlink() {
            not_enforced.push(".git is a link: its target is not protected from changes".into());
            return Ok(());
        }
        let bind = |path: &Path, attributes| self.bind(&self.at(path), path, attributes);
        if kind.is_file() {
            return bind(&git, READ_ONLY);
        }
        let Protected { mount_points, covered } = Protected::of(&self.at(&git));
        // If `hooks` cannot be created, or a placeholder is missing, a command could create the file itself. Then the
        // whole repository is read-only. That happens only if this user cannot write to the repository anyway.
        let _ = fs::create_dir(self.at(&git.join("hooks")));
        let is_there = |path: &PathBuf| fs::symlink_metadata(self.at(&git.join(path))).is_ok();
        if !layered && !covered.iter().all(is_there) {
            return bind(&git, READ_ONLY);
        }
        bind(&git, NOSUID_NODEV)?;
        mount_points.iter().try_for_each(|path| bind(&git.join(path), NOSUID_NODEV))?;
        for path in covered.into_iter().filter(is_there) {
            if self.at(&git.join(&path)).is_symlink() {
                not_enforced
                    .push(format!(".git/{} is a link: its target is not protected from changes", path.display()));
            }
            // The target of the link is covered, if it exists.
            if self.at(&git.join(&path)).exists() {
                bind(&git.join(&path), READ_ONLY)?;
            }
        }
        Ok(())
    }

    /// Covers the sockets and FIFOs of the workspace and returns their paths.
    fn cover_endpoints(&self, workspace: &Path, not_enforced: &mut Vec<String>) -> Outcome<Vec<PathBuf>> {
        let workspace = self.at(workspace);
        let endpoints = Endpoints::find(&workspace, &[FileType::Socket, FileType::Fifo])?;
        report_unread(&endpoints.unread, not_enforced);
        endpoints.cover(&workspace)
    }

    /// Covers all sockets of the machine that are visible, except those in `readable`.
    fn cover_sockets(&self, setup: &Setup) -> Outcome<()> {
        let wanted: Vec<PathBuf> = setup.readable.iter().map(|path| path.path()).collect();
        for path in setup.sockets.iter().map(|path| path.path()).filter(|path| !wanted.contains(path)) {
            let shown = self.at(&path);
            if fs::symlink_metadata(&shown).is_ok_and(|meta| meta.file_type().is_socket()) {
                endpoints::cover(&shown).doing(&format!("covering {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Makes mount points of the parents of hidden paths in the workspace, so that they cannot be renamed. Otherwise a
    /// hidden file would be visible under another name when the view is created again.
    fn pin(&self, workspace: &Path, hidden: &[PathBuf]) -> Outcome<()> {
        let inside = hidden.iter().filter(|path| path.starts_with(workspace) && self.at(path).exists());
        let above = inside.flat_map(|path| path.ancestors().skip(1).take_while(|above| *above != workspace));
        let above: BTreeSet<&Path> = above.collect();
        above.into_iter().try_for_each(|path| self.bind(&self.at(path), path, 0))
    }

    /// Hides a path: an empty directory or file is mounted over it.
    fn hide(&self, path: &Path) -> Outcome<()> {
        let target = self.at(path);
        match fs::symlink_metadata(&target) {
            Ok(meta) if meta.is_dir() => {
                let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY;
                mount("tmpfs", &target, "tmpfs", flags, c"mode=0555,size=4k").doing("hiding a directory")
            }
            Ok(meta) if !meta.is_symlink() => endpoints::cover(&target).doing("hiding a file"),
            _ => Ok(()),
        }
    }
}
