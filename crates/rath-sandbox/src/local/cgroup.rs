//! A control group for a sandbox, as a sibling of this process's own group, if this user may create one.
//!
//! That is possible in most systemd sessions: the slice of a process belongs to its user and has the controllers for
//! memory and processes enabled. The group contains all commands of a sandbox, while limits apply to each command. So
//! its limits are twice those of a command. They only stop what happens between two checks of a command init.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::limits::Limits;

/// A control group. Dropping it removes it; all its processes must have ended.
pub(super) struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Creates a group with these limits. `None` if the controllers are not delegated to this user, or if there is
    /// nothing to limit.
    pub(super) fn make(limits: &Limits) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        Self::below(&parent(&mounts, &own)?, limits)
    }

    /// Creates a group below `parent`, if the controllers are enabled for its children.
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
        // From here on, an early return removes the group.
        let group = Self { path };
        let set = |file: &str, limit: Option<u64>| match limit {
            Some(limit) => fs::write(group.path.join(file), limit.to_string()),
            None => Ok(()),
        };
        let twice = |limit: Option<u64>| limit.map(|limit| limit.saturating_mul(2));
        set("memory.max", twice(limits.memory)).and_then(|()| set("pids.max", twice(limits.processes))).ok()?;
        // Swap counts as memory. Kernels without swap accounting do not have this file.
        let _ = set("memory.swap.max", limits.memory.map(|_| 0));
        Some(group)
    }

    /// Adds a process, and so all processes that it starts from now on.
    pub(super) fn add_process(&self, process: u32) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), process.to_string())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

/// The directory of the parent group of this process's group.
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
    fn the_parent_group_is_found() {
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
        group.add_process(12).unwrap();
        assert_eq!(read("cgroup.procs"), "12");
        assert!(Cgroup::below(dir.path(), &Limits::NONE).is_none());
    }
}
