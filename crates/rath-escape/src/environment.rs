//! Attempts to read environment variables of the host.

use std::fs;

use crate::attempt::{Attempt, Tried, harmless, refused};
use crate::facts::{Facts, MARK};
use crate::secrets::holds;
use crate::sys::any_of;

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmless("own-environment", "find the host's variables in its own environment", own),
    harmless("other-environments", "find the host's variables in any /proc/*/environ", others),
    harmless("leftover-variables", "find LD_*, agent sockets, displays or tokens among its variables", leftovers),
];

const TELLING: &[&str] = &["SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "XAUTHORITY", "DISPLAY", "SUDO_USER"];

fn own(_: &Facts) -> Tried {
    let set = std::env::vars_os().find(|(_, value)| holds(value.as_encoded_bytes(), MARK));
    if let Some((name, _)) = set {
        return Ok(format!("{} is set", name.display()));
    }
    match holds(&fs::read("/proc/self/environ").unwrap_or_default(), MARK) {
        true => Ok("the host's environment is still in memory".to_owned()),
        false => Err(refused("its variables are not the host's")),
    }
}

fn others(facts: &Facts) -> Tried {
    any_of("environments", crate::procfs::processes(facts)?, |pid| match fs::read(format!("/proc/{pid}/environ")) {
        Ok(bytes) if holds(&bytes, MARK) => Ok(format!("read the environment of process {pid}")),
        Ok(_) => Err(refused(format!("process {pid} has none of it"))),
        Err(error) => Err(error.into()),
    })
}

fn leftovers(_: &Facts) -> Tried {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let telling = |name: &String| {
        let secret = ["_TOKEN", "_API_KEY", "_SECRET", "_PASSWORD"].iter().any(|end| name.ends_with(end));
        secret || name.starts_with("LD_") || TELLING.contains(&name.as_str())
    };
    let found: Vec<String> = names.filter(telling).collect();
    if found.is_empty() { Err(refused("no such variable is set")) } else { Ok(found.join(" ")) }
}
