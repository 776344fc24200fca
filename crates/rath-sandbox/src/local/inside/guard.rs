//! The last walls: no capabilities, no new privileges and seccomp around a keeper and its command, limits and Landlock
//! around the command. None of them can be taken down from inside.

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
use super::{Doing as _, Outcome, Refused, raw};
use crate::limits::Limits;
use crate::local::tier::Tier;
use crate::local::wire::Setup;

/// The newest version of Landlock whose rights are all asked for; older ones have fewer.
const NEWEST: ABI = ABI::V6;

/// Processes that this user may have besides those of a command. The kernel counts them together: those of other
/// commands, without a user namespace those of the whole machine. So its limit is the last resort, far above the one
/// that the keeper holds a command to.
const OTHERS: u64 = 8192;

/// What the walls are made of, ready before the first command.
pub(super) struct Guard {
    rules: RulesetCreated,
    must: bool,
    asking: Filters,
    refusing: Filters,
}

impl Guard {
    pub(super) fn make(setup: &Setup, workspace: &Path, not_enforced: &mut Vec<String>) -> Outcome<Self> {
        let refused = |error: &dyn std::fmt::Display| Refused { doing: error.to_string(), error: Errno::NOSYS };
        let rules = rules(setup, workspace).map_err(|error| refused(&format!("writing Landlock's rules ({error})")))?;
        let filters = |asks| {
            let made = Filters::of(setup.tier, asks);
            made.map_err(|error| refused(&format!("writing the filter of system calls ({error})")))
        };
        let guard =
            Self { rules, must: setup.tier == Tier::Landlock, asking: filters(true)?, refusing: filters(false)? };
        if guard.must || setup.probe {
            // Whether the kernel has Landlock shows only when somebody is restricted.
            let status = try_out(&guard.rules)?;
            if guard.must && status == RulesetStatus::PartiallyEnforced {
                let lacks = "Landlock of this kernel is old: it may not refuse to truncate files, device requests, and \
                             signals to other processes of this user";
                not_enforced.push(lacks.into());
            }
            if status == RulesetStatus::NotEnforced {
                let error =
                    if Path::new("/sys/kernel/security/lsm").exists() { Errno::OPNOTSUPP } else { Errno::NOSYS };
                match guard.must {
                    true => return Err(error).doing("restricting a process by Landlock"),
                    false => not_enforced.push("Landlock: this kernel has none, or it is turned off".into()),
                }
            }
        }
        Ok(guard)
    }

    /// Around a keeper, and so around its command: no capabilities, no new privileges, no system calls that are
    /// refused. Returns what hears of those, where there is such a thing.
    pub(super) fn around_keeper(&self) -> Outcome<Option<OwnedFd>> {
        drop_capabilities()?;
        rustix::thread::set_no_new_privs(true).doing("giving up new privileges")?;
        let apply = |filter| {
            let applied = seccompiler::apply_filter(filter);
            applied.map_err(|_| Errno::PERM).doing("filtering the command's system calls")
        };
        for filter in &self.asking.silent {
            apply(filter)?;
        }
        match raw::filter_with_listener(&self.asking.heard) {
            Ok(listener) => Ok(Some(listener)),
            // Somebody around us listens already, or the kernel is too old: then nobody hears of it.
            Err(Errno::BUSY | Errno::INVAL) => apply(&self.refusing.heard).map(|()| None),
            Err(error) => Err(error).doing("filtering the command's system calls"),
        }
    }

    /// Around the command alone: limits and Landlock, which keeps its keeper out of its reach too.
    pub(super) fn around_command(&self, limits: &Limits) -> Outcome<()> {
        set_limits(limits)?;
        let rules = self.rules.try_clone().doing("copying Landlock's rules")?;
        let refused = |_| Refused { doing: "restricting the command by Landlock".into(), error: Errno::PERM };
        match rules.restrict_self().map_err(refused)?.ruleset {
            RulesetStatus::NotEnforced if self.must => Err(Errno::NOSYS).doing("restricting the command by Landlock"),
            _ => Ok(()),
        }
    }
}

/// Restricts a child that does nothing else, and says how far that went.
fn try_out(rules: &RulesetCreated) -> Outcome<RulesetStatus> {
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
        // Too small for any core, and the one value at which a program that takes cores is not started either.
        (Resource::Core, Some(1)),
        (Resource::Nproc, limits.processes.map(|limit| limit.saturating_add(OTHERS))),
        (Resource::As, limits.address_space),
        (Resource::Fsize, limits.file_size),
        (Resource::Nofile, limits.open_files),
    ];
    for (resource, limit) in all {
        let Some(limit) = limit else { continue };
        // What the user himself may not have cannot be given.
        let limit = rustix::process::getrlimit(resource).maximum.map_or(limit, |most| limit.min(most));
        let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
        setrlimit(resource, limit).doing("setting a limit")?;
    }
    Ok(())
}

/// Root inside of a user namespace is root only there; commands are not even that.
fn drop_capabilities() -> Outcome<()> {
    use rustix::thread::{CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities};
    // The capabilities that this library knows may be fewer than the kernel's: the sets below lose all of them, and
    // without new privileges no program gains one.
    for capability in CapabilitySet::all().iter() {
        match remove_capability_from_bounding_set(capability) {
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(error) => return Err(error).doing("giving up capabilities"),
        }
    }
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    match rustix::thread::clear_ambient_capability_set() {
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(error).doing("giving up capabilities"),
    }
    set_capabilities(None, sets).doing("giving up capabilities")
}

/// What may be read and what may be written, in the view of the tier.
fn rules(setup: &Setup, workspace: &Path) -> Result<RulesetCreated, landlock::RulesetError> {
    let all = AccessFs::from_all(NEWEST);
    let read = AccessFs::from_read(NEWEST);
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev | AccessFs::Truncate;
    let mut ruleset = Ruleset::default().handle_access(all)?;
    if setup.tier == Tier::Landlock {
        // Where there are namespaces, they end signals and sockets, and commands of one sandbox may talk.
        ruleset = ruleset.scope(Scope::from_all(NEWEST))?;
    }
    let mut grants = Grants(ruleset.create()?);
    let state = setup.state.path();
    match setup.tier {
        Tier::Ns => {
            grants.whole("/".into(), read)?;
            let home = setup.home.as_ref().map(|home| home.path());
            let writable = ["/tmp", "/run", "/dev/shm", "/dev/pts"].map(PathBuf::from);
            for path in writable.into_iter().chain(home).chain([workspace.to_owned()]) {
                grants.whole(path, all)?;
            }
        }
        Tier::Landlock => {
            let hidden = setup.hidden.iter().map(|path| path.path());
            let mut except: Vec<PathBuf> = SECRETS.iter().map(PathBuf::from).chain(hidden).collect();
            for name in SYSTEM.iter().copied().chain(["proc"]) {
                grants.but(&Path::new("/").join(name), read, &except)?;
            }
            for path in setup.readable.iter().map(|path| path.path()) {
                grants.but(&path.canonicalize().unwrap_or(path), read, &except)?;
            }
            let git = workspace.join(".git");
            if git.exists() {
                grants.whole(git.clone(), read)?;
                except.push(git);
            }
            grants.but(workspace, all, &except)?;
            for path in ["tmp", "home"] {
                grants.whole(state.join(path), all)?;
            }
        }
    }
    for name in DEVICES {
        grants.whole(Path::new("/dev").join(name), device)?;
    }
    Ok(grants.0)
}

/// Rules that are being written.
struct Grants(RulesetCreated);

impl Grants {
    /// Grants access to a path and everything below it.
    fn whole(&mut self, path: PathBuf, access: BitFlags<AccessFs>) -> Result<(), landlock::RulesetError> {
        // What is not there needs no access.
        let Ok(opened) = PathFd::new(&path) else { return Ok(()) };
        let is_dir = rustix::fs::fstat(opened.as_fd())
            .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory);
        let access = if is_dir { access } else { access & AccessFs::from_file(NEWEST) };
        (&mut self.0).add_rule(PathBeneath::new(opened, access))?;
        Ok(())
    }

    /// Grants access to everything below `path` but the exceptions. Where there is one below it, the directory itself
    /// is only to be listed: Landlock can give, not take away.
    fn but(
        &mut self,
        path: &Path,
        access: BitFlags<AccessFs>,
        except: &[PathBuf],
    ) -> Result<(), landlock::RulesetError> {
        if except.iter().any(|hidden| path.starts_with(hidden)) {
            return Ok(());
        }
        if !except.iter().any(|hidden| hidden.starts_with(path) && hidden.exists()) {
            return self.whole(path.into(), access);
        }
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            // What a link leads to is granted where it is, or not at all.
            if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
                self.but(&entry.path(), access, except)?;
            }
        }
        Ok(())
    }
}
