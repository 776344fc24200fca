//! Attempts to connect to servers that listen on Unix sockets.

use std::fs;
use std::io::{self, Read as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::attempt::{Attempt, Tried, cannot_try, harmful, harmless, refused};
use crate::facts::MARK;
use crate::secrets::holds;
use crate::sys::any_of;

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmless("abstract-socket", "connect to an abstract socket of the outside", |facts| {
        let address = SocketAddr::from_abstract_name(facts.text("abstract")?)?;
        greeted(UnixStream::connect_addr(&address)?)
    }),
    harmless("path-socket", "connect to a socket outside by its path", |facts| {
        greeted(UnixStream::connect(facts.path("socket")?)?)
    }),
    harmless("datagram-socket", "send a message to a socket outside by its path", |facts| {
        UnixDatagram::unbound()?.send_to(b"from inside", facts.path("datagram")?)?;
        Ok("sent it".to_owned())
    }),
    harmless("socket-by-link", "connect to a socket outside through a symbolic link", |facts| {
        let _ = fs::remove_file("scratch/link-to-socket");
        std::os::unix::fs::symlink(facts.path("socket")?, "scratch/link-to-socket")?;
        greeted(UnixStream::connect("scratch/link-to-socket")?)
    }),
    harmless("ssh-agent", "talk to the user's SSH agent", |facts| {
        let path = facts.path("agent")?;
        let named = std::env::var_os("SSH_AUTH_SOCK").map(PathBuf::from);
        any_of("agents", named.into_iter().chain([path]), |path| greeted(UnixStream::connect(path)?))
    }),
    harmless("session-bus", "talk to the user's D-Bus", |facts| {
        let path = facts.path("bus")?;
        any_of("buses", [path], |path| greeted(UnixStream::connect(path)?))
    }),
    harmless("system-bus", "talk to the machine's D-Bus", |facts| known(facts.text("system_bus"), "D-Bus")),
    harmless("docker", "talk to Docker and its like", |facts| known(facts.text("docker"), "container engine")),
    harmless("systemd", "talk to systemd", |facts| known(facts.text("systemd"), "systemd")),
    harmful("any-socket", "connect to any socket there is", |_| {
        let roots = ["/run", "/tmp", "/var", "/home", "/root", "/srv", "/opt", "/dev", "/mnt"];
        any_of("sockets", roots.into_iter().flat_map(sockets_below), |path| {
            UnixStream::connect(&path)?;
            Ok(format!("connected to {}", path.display()))
        })
    }),
];

/// Connects to a listener of the harness, which sends a greeting.
fn greeted(mut stream: UnixStream) -> Tried {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut bytes = [0; 64];
    let read = stream.read(&mut bytes)?;
    if holds(&bytes[..read], MARK) { Ok("connected".to_owned()) } else { Err(refused("another process answers here")) }
}

/// Sockets of this machine that the harness found, separated by commas.
fn known(paths: Result<&str, crate::attempt::Failed>, what: &str) -> Tried {
    let paths = paths.map_err(|_| cannot_try(format!("this machine has no {what}")))?;
    any_of("sockets", paths.split(','), |path| {
        let datagram = || -> io::Result<()> { UnixDatagram::unbound()?.connect(path) };
        UnixStream::connect(path).map(drop).or_else(|_| datagram())?;
        Ok(format!("connected to {path}"))
    })
}

fn sockets_below(root: &str) -> Vec<PathBuf> {
    let (mut open, mut sockets, mut left) = (vec![Path::new(root).to_owned()], Vec::new(), 200_000);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            left -= 1;
            if left < 0 {
                return sockets;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(entry.path()),
                Ok(kind) if kind.is_socket() => sockets.push(entry.path()),
                _ => {}
            }
        }
    }
    sockets
}
