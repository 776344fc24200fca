//! Enters new namespaces. A user namespace makes this possible without root.

use std::fs;

use nix::sched::{CloneFlags, unshare};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType};

use super::{Doing as _, Outcome};

/// The user id of commands when root runs them. Tools that run as root try to change the owner of files, which is not
/// possible here.
const NOT_ROOT: u32 = 1000;

/// Enters new namespaces. The user namespace contains only the current user and group.
pub(super) fn enter() -> Outcome<()> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let others = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWCGROUP;
    let refused = |error: nix::Error| Errno::from_raw_os_error(error as i32);
    unshare(CloneFlags::CLONE_NEWUSER).map_err(refused).doing("creating a user namespace")?;
    let inside = |id| if id == 0 { NOT_ROOT } else { id };
    fs::write("/proc/self/setgroups", "deny").doing("giving up groups")?;
    fs::write("/proc/self/uid_map", format!("{} {user} 1", inside(user))).doing("mapping the user")?;
    fs::write("/proc/self/gid_map", format!("{} {group} 1", inside(group))).doing("mapping the group")?;
    unshare(others).map_err(refused).doing("creating namespaces for mounts, network and others")?;
    rustix::system::sethostname(b"sandbox").doing("naming the host")?;
    loopback_up().doing("starting the loopback network")
}

/// Turns on the loopback device of a new network namespace, with a netlink request that sets the flag `IFF_UP` of
/// device 1.
fn loopback_up() -> rustix::io::Result<()> {
    const NEW_LINK: u16 = 16;
    const REQUEST_AND_ACKNOWLEDGE: u16 = 5;
    const ERROR: u16 = 2;
    let mut request = Vec::with_capacity(32);
    request.extend(32u32.to_ne_bytes());
    request.extend(NEW_LINK.to_ne_bytes());
    request.extend(REQUEST_AND_ACKNOWLEDGE.to_ne_bytes());
    request.extend([0; 8]); // sequence, sender
    request.extend([0; 4]); // family, padding, type
    request.extend(1i32.to_ne_bytes()); // device
    request.extend(1u32.to_ne_bytes()); // flags: up
    request.extend(1u32.to_ne_bytes()); // which of them
    let socket = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    rustix::net::send(&socket, &request, SendFlags::empty())?;
    let mut answer = [0; 64];
    let (length, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    let is_error = length >= 20 && u16::from_ne_bytes([answer[4], answer[5]]) == ERROR;
    match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
        0 if is_error => Ok(()),
        error if is_error => Err(Errno::from_raw_os_error(-error)),
        _ => Err(Errno::PROTO),
    }
}
