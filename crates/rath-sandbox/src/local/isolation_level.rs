//! Isolation levels, and why one is not available.

use std::fmt;
use std::fs;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The means by which commands are isolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IsolationLevel {
    /// Namespaces with a separate file system view, Landlock and seccomp.
    Ns,
    /// Landlock and seccomp only, for machines without user namespaces.
    Landlock,
}

impl fmt::Display for IsolationLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IsolationLevel::Ns => "ns",
            IsolationLevel::Landlock => "landlock",
        })
    }
}

impl IsolationLevel {
    /// What this level does not enforce. These texts are written to the sandbox's record.
    pub(super) fn lacks(self) -> &'static [&'static str] {
        match self {
            IsolationLevel::Ns => &[],
            IsolationLevel::Landlock => &[
                "no private /tmp: TMPDIR is a private directory",
                "no loopback network and no Unix sockets",
                "if the workspace has a .git, all of it is read-only; in a directory with a .git or .rath, no new entries can be created",
                "permissions and times of the user's other files can be changed, their content cannot",
                "the machine's processes and network statistics can be read in /proc",
                "the CPU affinity of the user's other processes can be changed",
            ],
        }
    }
}

/// Why an isolation level is not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The isolation level.
    pub level: IsolationLevel,
    /// The step that failed.
    pub doing: String,
    /// The error of the operating system.
    pub error: String,
    /// The probable cause and what to do about it, if known.
    pub advice: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.level, self.doing, self.error)?;
        self.advice.as_ref().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

impl Refusal {
    pub(super) fn new(level: IsolationLevel, doing: String, error: Errno) -> Self {
        let advice = advice(level, &doing, error);
        Self { level, doing, error: error.to_string(), advice }
    }
}

/// Finds the probable cause on this machine of a failed step.
fn advice(level: IsolationLevel, doing: &str, error: Errno) -> Option<String> {
    let sysctl = |path: &str| fs::read_to_string(format!("/proc/sys/{path}")).ok().map(|text| text.trim().to_owned());
    let is = |path: &str, value: &str| sysctl(path).as_deref() == Some(value);
    let text = match level {
        IsolationLevel::Landlock if error == Errno::NOSYS => {
            "this kernel was built without Landlock, or is older than 5.13".into()
        }
        IsolationLevel::Landlock if error == Errno::OPNOTSUPP => {
            "Landlock is built in but not enabled: add `landlock` to the `lsm=` boot option".into()
        }
        IsolationLevel::Landlock => return None,
        IsolationLevel::Ns if is("user/max_user_namespaces", "0") => {
            "user namespaces are turned off: enable them with `sysctl user.max_user_namespaces=10000`".into()
        }
        IsolationLevel::Ns if is("kernel/unprivileged_userns_clone", "0") => {
            "only root may create user namespaces: allow them with `sysctl kernel.unprivileged_userns_clone=1`".into()
        }
        IsolationLevel::Ns if is("kernel/apparmor_restrict_unprivileged_userns", "1") => {
            "AppArmor refuses user namespaces to programs without a profile: give rath one, or `sysctl \
             kernel.apparmor_restrict_unprivileged_userns=0`"
                .into()
        }
        IsolationLevel::Ns if error == Errno::NOSPC => {
            "there are too many user namespaces: `sysctl user.max_user_namespaces` shows the limit".into()
        }
        IsolationLevel::Ns if doing.contains("/proc") => {
            "parts of /proc are hidden here, as in most containers: run the container with an unmasked /proc".into()
        }
        IsolationLevel::Ns
            if fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("Seccomp:\t2")) =>
        {
            "this process runs under a seccomp filter, as in Docker: allow `unshare` and `mount` in its profile".into()
        }
        IsolationLevel::Ns => return None,
    };
    Some(text)
}
