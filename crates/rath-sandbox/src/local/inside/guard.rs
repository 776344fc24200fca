//! Restrictions of a process that it cannot remove itself. A command init and its command run without capabilities,
//! with no new privileges, and with seccomp. The command also has resource limits and Landlock.

use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreated,
    RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};

use super::filter::Filters;
use super::view::{DEVICES, SECRETS, SYSTEM};
use super::{Doing as _, Outcome, SetupError, raw};
use crate::limits::Limits;
use crate::local::isolation_level::IsolationLevel;
use crate::local::wire::Setup;

/// The Landlock version whose access rights are all requested. Older kernels support fewer of them.
const NEWEST: ABI = ABI::V6;

/// Processes of this user in addition to those of a command. The kernel's limit counts all processes of a user: those
/// of other commands, and without a user namespace those of the whole machine. So it is set much higher than the limit
/// that the command init enforces, as a last resort.
const OTHERS: u64 = 8192;

/// The restrictions, prepared before the first command.
pub(super) struct Guard {
    rules: RulesetCreated,
    landlock_required: bool,
    notifying_filters: Filters,
    refusing_filters: Filters,
}

impl Guard {
    pub(super) fn make(setup: &Setup, workspace: &Path, not_enforced: &mut Vec<String>) -> Outcome<Self> {
        let refused = |error: &dyn std::fmt::Display| SetupError { doing: error.to_string(), error: Errno::NOSYS };
        let rules =
            rules(setup, workspace).map_err(|error| refused(&format!("creating the Landlock rules ({error})")))?;
        let filters = |notifies| {
            let made = Filters::of(setup.level, notifies);
            made.map_err(|error| refused(&format!("creating the seccomp filter ({error})")))
        };
        let guard = Self {
            rules,
            landlock_required: setup.level == IsolationLevel::Landlock,
            notifying_filters: filters(true)?,
            refusing_filters: filters(false)?,
        };
        if guard.landlock_required || setup.probe {
            // Whether the kernel supports Landlock is known only after restricting a process.
            let status = try_landlock(&guard.rules)?;
            if guard.landlock_required && status == RulesetStatus::PartiallyEnforced {
                let lacks = "Landlock of this kernel is old: it may not refuse to truncate files, device requests, and \
                             signals to other processes of this user";
                not_enforced.push(lacks.into());
            }
            if status == RulesetStatus::NotEnforced {
                let error =
                    if Path::new("/sys/kernel/security/lsm").exists() { Errno::OPNOTSUPP } else { Errno::NOSYS };
                match guard.landlock_required {
                    true => return Err(error).doing("restricting a process by Landlock"),
                    false => not_enforced.push("Landlock: this kernel has none, or it is turned off".into()),
                }
            }
        }
        Ok(guard)
    }

    /// Restricts a command init, and so its command: capabilities, new privileges and system calls. Returns the
    /// listener for refused calls, if the kernel supports one.
    pub(super) fn restrict_init(&self) -> Outcome<Option<OwnedFd>> {
        drop_capabilities()?;
        rustix::thread::set_no_new_privs(true).doing("setting no_new_privs")?;
        let apply = |filter| {
            let applied = seccompiler::apply_filter(filter);
            applied.map_err(|_| Errno::PERM).doing("applying the seccomp filter")
        };
        for filter in &self.notifying_filters.silent {
            apply(filter)?;
        }
        match raw::filter_with_listener(&self.notifying_filters.notifying) {
            Ok(listener) => Ok(Some(listener)),
            // An outer sandbox has a listener already, or the kernel is too old. Then refusals are not counted.
            Err(Errno::BUSY | Errno::INVAL) => apply(&self.refusing_filters.notifying).map(|()| None),
            Err(error) => Err(error).doing("applying the seccomp filter"),
        }
    }

    /// Restricts the command only: resource limits and Landlock, which also protects its command init from it.
    pub(super) fn restrict_command(&self, limits: &Limits) -> Outcome<()> {
        set_limits(limits)?;
        let rules = self.rules.try_clone().doing("copying the Landlock rules")?;
        let refused = |_| SetupError { doing: "restricting the command by Landlock".into(), error: Errno::PERM };
        match rules.restrict_self().map_err(refused)?.ruleset {
            RulesetStatus::NotEnforced if self.landlock_required => {
                Err(Errno::NOSYS).doing("restricting the command by Landlock")
            }
            _ => Ok(()),
        }
    }
}

/// Restricts a child process that does nothing else, and returns how much was enforced.
fn try_landlock(rules: &RulesetCreated) -> Outcome<RulesetStatus> {
    let doing = "restricting a process by Landlock";
    match raw::fork(false).doing(doing)? {
        None => {
            let status = rules.try_clone().ok().and_then(|rules| rules.restrict_self().ok());
            std::process::exit(match status.map(|status| status.ruleset) {
                Some(RulesetStatus::FullyEnforced) => 0,
                Some(RulesetStatus::PartiallyEnforced) => 1,
                _ => 2,
            })
        }
        Some(child) => {
            let status = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).doing(doing)?;
            Ok(match status.and_then(|(_, status)| status.exit_status()) {
                Some(0) => RulesetStatus::FullyEnforced,
                Some(1) => RulesetStatus::PartiallyEnforced,
                _ => RulesetStatus::NotEnforced,
            })
        }
    }
}

fn set_limits(limits: &Limits) -> Outcome<()> {
    let all = [
        // 1 byte is too small for any core file. It is also the value at which the kernel does not start a core dump
        // helper.
        (Resource::Core, Some(1)),
        (Resource::Nproc, limits.processes.map(|limit| limit.saturating_add(OTHERS))),
        (Resource::As, limits.address_space),
        (Resource::Fsize, limits.file_size),
        (Resource::Nofile, limits.open_files),
    ];
    for (resource, limit) in all {
        let Some(limit) = limit else { continue };
        // A limit cannot be higher than the user's own hard limit.
        let limit = rustix::process::getrlimit(resource).maximum.map_or(limit, |most| limit.min(most));
        let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
        setrlimit(resource, limit).doing("setting a limit")?;
    }
    Ok(())
}

/// Drops all capabilities, including those that root has in a user namespace.
fn drop_capabilities() -> Outcome<()> {
    use rustix::thread::{CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities};
    // The kernel may have capabilities that this library does not know. The sets below drop those too, and without new
    // privileges no program can gain one.
    for capability in CapabilitySet::all().iter() {
        match remove_capability_from_bounding_set(capability) {
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(error) => return Err(error).doing("dropping capabilities"),
        }
    }
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    match rustix::thread::clear_ambient_capability_set() {
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(error).doing("dropping capabilities"),
    }
    set_capabilities(None, sets).doing("dropping capabilities")
}

/// The Landlock rules: which paths can be read and written.
fn rules(setup: &Setup, workspace: &Path) -> Result<RulesetCreated, landlock::RulesetError> {
    let all = AccessFs::from_all(NEWEST);
    let read = AccessFs::from_read(NEWEST);
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev | AccessFs::Truncate;
    let mut ruleset = Ruleset::default().handle_access(all)?;
    if setup.level == IsolationLevel::Landlock {
        // With namespaces this is not needed: they confine signals and sockets, and commands of one sandbox may
        // communicate.
        ruleset = ruleset.scope(Scope::from_all(NEWEST))?;
    }
    let mut grants = Grants(ruleset.create()?);
    let state = setup.state.path();
    match setup.level {
        IsolationLevel::Ns => {
            grants.grant("/".into(), read)?;
            let home = setup.home.as_ref().map(|home| home.path());
            let writable = ["/tmp", "/run", "/dev/shm", "/dev/pts"].map(PathBuf::from);
            for path in writable.into_iter().chain(home).chain([workspace.to_owned()]) {
                grants.grant(path, all)?;
            }
        }
        IsolationLevel::Landlock => {
            let hidden = setup.hidden.iter().map(|path| path.path());
            let mut except: Vec<PathBuf> = SECRETS.iter().map(PathBuf::from).chain(hidden).collect();
            for name in SYSTEM.iter().copied().chain(["proc"]) {
                grants.grant_except(&Path::new("/").join(name), read, &except)?;
            }
            for path in setup.readable.iter().map(|path| path.path()) {
                grants.grant_except(&path.canonicalize().unwrap_or(path), read, &except)?;
            }
            let git = workspace.join(".git");
            if git.exists() {
                grants.grant(git.clone(), read)?;
                except.push(git);
            }
            grants.grant_except(workspace, all, &except)?;
            for path in ["tmp", "home"] {
                grants.grant(state.join(path), all)?;
            }
        }
    }
    for name in DEVICES {
        grants.grant(Path::new("/dev").join(name), device)?;
    }
    Ok(grants.0)
}

/// A builder for Landlock rules.
struct Grants(RulesetCreated);

impl Grants {
    /// Grants access to a path and everything below it.
    fn grant(&mut self, path: PathBuf, access: BitFlags<AccessFs>) -> Result<(), landlock::RulesetError> {
        // A missing path needs no rule.
        let Ok(opened) = PathFd::new(&path) else { return Ok(()) };
        let is_dir = rustix::fs::fstat(opened.as_fd())
            .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory);
        let access = if is_dir { access } else { access & AccessFs::from_file(NEWEST) };
        (&mut self.0).add_rule(PathBeneath::new(opened, access))?;
        Ok(())
    }

    /// Grants access to everything below `path` except some paths. Landlock can only grant access, not exclude paths.
    /// So a directory that contains an exception gets no access itself, and its other entries are granted one by one.
    fn grant_except(
        &mut self,
        path: &Path,
        access: BitFlags<AccessFs>,
        except: &[PathBuf],
    ) -> Result<(), landlock::RulesetError> {
        if except.iter().any(|hidden| path.starts_with(hidden)) {
            return Ok(());
        }
        if !except.iter().any(|hidden| hidden.starts_with(path) && hidden.exists()) {
            return self.grant(path.into(), access);
        }
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            // The target of a link needs a rule of its own.
            if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
                self.grant_except(&entry.path(), access, except)?;
            }
        }
        Ok(())
    }
}
