//! How well this machine can isolate, and why not better.

use std::fmt;
use std::fs;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// How commands are kept away from the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Namespaces with a file system of their own, then Landlock and seccomp.
    Ns,
    /// Landlock and seccomp only: for machines that refuse user namespaces.
    Landlock,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tier::Ns => "ns",
            Tier::Landlock => "landlock",
        })
    }
}

impl Tier {
    /// What this tier cannot keep apart, as it stands in the record.
    pub(super) fn lacks(self) -> &'static [&'static str] {
        match self {
            Tier::Ns => &[],
            Tier::Landlock => &[
                "no /tmp of its own: TMPDIR leads to a private one",
                "no loopback network and no Unix sockets",
                "where the workspace has a .git it is read-only as a whole; beside it, or a .rath, no new names can be made",
                "mode and times of the user's files elsewhere can be changed, their content cannot",
                "the machine's processes and network statistics can be read in /proc",
                "the user's other processes can be bound to processors",
            ],
        }
    }
}

/// A step that the machine refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The tier that it was for.
    pub tier: Tier,
    /// What was tried.
    pub doing: String,
    /// What the machine said.
    pub error: String,
    /// What may be behind it and what to do, where that is known.
    pub advice: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.tier, self.doing, self.error)?;
        self.advice.as_ref().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

impl Refusal {
    pub(super) fn new(tier: Tier, doing: String, error: Errno) -> Self {
        let advice = advice(tier, &doing, error);
        Self { tier, doing, error: error.to_string(), advice }
    }
}

/// What on this machine may be behind a refusal.
fn advice(tier: Tier, doing: &str, error: Errno) -> Option<String> {
    let sysctl = |path: &str| fs::read_to_string(format!("/proc/sys/{path}")).ok().map(|text| text.trim().to_owned());
    let is = |path: &str, value: &str| sysctl(path).as_deref() == Some(value);
    let text = match tier {
        Tier::Landlock if error == Errno::NOSYS => {
            "this kernel was built without Landlock, or is older than 5.13".into()
        }
        Tier::Landlock if error == Errno::OPNOTSUPP => {
            "Landlock is built in but not on: add `landlock` to the `lsm=` boot option".into()
        }
        Tier::Landlock => return None,
        Tier::Ns if is("user/max_user_namespaces", "0") => {
            "user namespaces are off: `sysctl user.max_user_namespaces=10000` turns them on".into()
        }
        Tier::Ns if is("kernel/unprivileged_userns_clone", "0") => {
            "user namespaces are for root only: `sysctl kernel.unprivileged_userns_clone=1` allows them".into()
        }
        Tier::Ns if is("kernel/apparmor_restrict_unprivileged_userns", "1") => {
            "AppArmor refuses user namespaces to programs without a profile: give rath one, or `sysctl \
             kernel.apparmor_restrict_unprivileged_userns=0`"
                .into()
        }
        Tier::Ns if error == Errno::NOSPC => {
            "there are too many user namespaces: `sysctl user.max_user_namespaces` says how many may be".into()
        }
        Tier::Ns if doing.contains("proc") => {
            "parts of /proc are hidden here, as in most containers: run the container with an unmasked /proc".into()
        }
        Tier::Ns if fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("Seccomp:\t2")) => {
            "a seccomp filter is around this process, as in Docker: allow `unshare` and `mount` in its profile".into()
        }
        Tier::Ns => return None,
    };
    Some(text)
}
