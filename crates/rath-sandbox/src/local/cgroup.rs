//! A control group for a sandbox, beside this process's own, where this user may make one.
//!
//! That is so in most desktop and server sessions of systemd: the slice that a process is in is its user's, and has
//! the controllers for memory and processes turned on. The group is the sandbox's, limits are a command's: it gives room
//! for two that run side by side, and is there for what happens between two looks of a keeper.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::limits::Limits;

/// Removed when it is dropped; by then its processes are gone.
pub(super) struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Makes one with these limits. `None` where nothing is delegated, or there is nothing to limit.
    pub(super) fn make(limits: &Limits) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        Self::below(&parent(&mounts, &own)?, limits)
    }

    /// Makes one in a group that has the controllers turned on for its children.
    fn below(parent: &Path, limits: &Limits) -> Option<Self> {
        if limits.memory.is_none() && limits.processes.is_none() {
            return None;
        }
        let controllers = fs::read_to_string(parent.join("cgroup.subtree_control")).ok()?;
        let has = |name| controllers.split_whitespace().any(|controller| controller == name);
        if !has("memory") || !has("pids") {
            return None;
        }
        let path = parent.join(format!("rath-{}", rath_core::fresh_name()));
        fs::create_dir(&path).ok()?;
        // From here on it is removed again, whatever goes wrong.
        let group = Self { path };
        let set = |file: &str, limit: Option<u64>| match limit {
            Some(limit) => fs::write(group.path.join(file), limit.to_string()),
            None => Ok(()),
        };
        let twice = |limit: Option<u64>| limit.map(|limit| limit.saturating_mul(2));
        set("memory.max", twice(limits.memory)).and_then(|()| set("pids.max", twice(limits.processes))).ok()?;
        // Swap is memory too. Kernels without swap accounting have no such file.
        let _ = set("memory.swap.max", limits.memory.map(|_| 0));
        Some(group)
    }

    /// Puts a process in, and with it all that it starts.
    pub(super) fn take_in(&self, process: u32) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), process.to_string())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

/// The group that this process's own group is in, as a directory.
fn parent(mounts: &str, own: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    // Fields: id, parent, device, root, mount point, …, "-", type.
    let mount = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (after.starts_with("cgroup2 ") && root == "/").then_some(point)
    })?;
    let parent = Path::new(path.strip_prefix('/')?).parent()?;
    Some(Path::new(mount).join(parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str =
        "24 29 0:22 / /sys rw - sysfs sysfs rw\n30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_group_around_ours_is_found() {
        let own = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/term.scope\n";
        let slice = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice";
        assert_eq!(parent(MOUNTS, own), Some(slice.into()));
        assert_eq!(parent(MOUNTS, "0::/\n"), None, "the root has none around it");
        assert_eq!(parent(MOUNTS, "4:memory:/x\n"), None, "version 1");
        assert_eq!(parent("", own), None, "not mounted");
    }

    #[test]
    fn limits_are_set_only_where_the_controllers_are_on() {
        let dir = tempfile::tempdir().unwrap();
        let control = dir.path().join("cgroup.subtree_control");
        let limits = Limits { memory: Some(5), processes: Some(7), ..Limits::NONE };
        assert!(Cgroup::below(dir.path(), &limits).is_none());
        fs::write(&control, "cpu io\n").unwrap();
        assert!(Cgroup::below(dir.path(), &limits).is_none());
        fs::write(&control, "cpu memory pids\n").unwrap();
        let group = Cgroup::below(dir.path(), &limits).unwrap();
        let read = |name: &str| fs::read_to_string(group.path.join(name)).unwrap();
        assert_eq!(
            (read("memory.max"), read("memory.swap.max"), read("pids.max")),
            ("10".into(), "0".into(), "14".into())
        );
        group.take_in(12).unwrap();
        assert_eq!(read("cgroup.procs"), "12");
        assert!(Cgroup::below(dir.path(), &Limits::NONE).is_none());
    }
}
