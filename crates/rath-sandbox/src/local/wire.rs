//! Messages between this process, the supervisor and command inits: JSON with a length prefix, and file descriptors.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::isolation_level::IsolationLevel;
use crate::finished::ExitStatus;
use crate::limits::Limits;

/// Maximum number of file descriptors of a message.
const MOST_FILES: usize = 4;

/// Maximum size of a message in bytes. It leaves room above the longest command line that Linux accepts.
const LONGEST: usize = 64 << 20;

/// The first message to a supervisor: how to set up the sandbox.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Setup {
    pub(super) level: IsolationLevel,
    /// Only try whether the setup works.
    pub(super) probe: bool,
    pub(super) directory: RawBytes,
    pub(super) overlay: Option<Layers>,
    /// The path at which commands see the workspace.
    pub(super) mount_path: RawBytes,
    /// The state directory, with the private directories `root`, `tmp` and `home`.
    pub(super) state: RawBytes,
    pub(super) home: Option<RawBytes>,
    pub(super) readable: Vec<RawBytes>,
    pub(super) hidden: Vec<RawBytes>,
    /// Paths of all sockets of the machine, which are covered if they are visible.
    pub(super) sockets: Vec<RawBytes>,
    pub(super) limits: Limits,
}

/// A serializable [`crate::Overlay`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Layers {
    pub(super) lowers: Vec<RawBytes>,
    pub(super) upper: RawBytes,
    pub(super) work: RawBytes,
}

/// The reply of the supervisor. `Yes` comes with a descriptor of the workspace.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum SetupResult {
    Yes {
        not_enforced: Vec<String>,
        /// Sockets and FIFOs of the workspace that are covered, relative to it.
        covered: Vec<RawBytes>,
    },
    No {
        doing: String,
        errno: i32,
    },
}

/// A command to start. Comes with the command init's end of a socket and the three standard streams.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StartCommand {
    pub(super) program: WireProgram,
    pub(super) env: Vec<(RawBytes, RawBytes)>,
    /// Relative to the workspace.
    pub(super) cwd: RawBytes,
    /// Whether the streams are a terminal, which becomes the command's controlling terminal.
    pub(super) terminal: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WireProgram {
    Argv(Vec<RawBytes>),
    Shell(String),
}

/// A message from a command init.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum InitMessage {
    Started,
    /// The command was not started. `errno` is set if a system call failed that is not about the program.
    NotStarted {
        tried: String,
        why: String,
        errno: Option<i32>,
    },
    /// The command and everything that it started have ended.
    Over {
        ended: ExitStatus,
        killed_orphans: u32,
        /// Names of refused system calls, with the number of refusals.
        refused: Vec<(String, u64)>,
        /// The limit that the command exceeded.
        limit_exceeded: Option<String>,
    },
}

/// The bytes that ask a command init to stop its command.
pub(super) const GRACEFUL: u8 = b'T';
pub(super) const IMMEDIATE: u8 = b'K';

/// Bytes that need not be UTF-8. Serialized as a string with one character for each byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawBytes(pub(super) Vec<u8>);

impl RawBytes {
    pub(super) fn path(&self) -> PathBuf {
        self.os().into()
    }

    pub(super) fn os(&self) -> OsString {
        OsString::from_vec(self.0.clone())
    }
}

impl From<&OsStr> for RawBytes {
    fn from(text: &OsStr) -> Self {
        RawBytes(text.as_bytes().to_vec())
    }
}

impl From<&Path> for RawBytes {
    fn from(path: &Path) -> Self {
        path.as_os_str().into()
    }
}

impl Serialize for RawBytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0.iter().map(|byte| char::from(*byte)).collect::<String>())
    }
}

impl<'de> Deserialize<'de> for RawBytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = text.chars().map(|letter| u8::try_from(u32::from(letter)));
        bytes.collect::<Result<_, _>>().map(RawBytes).map_err(serde::de::Error::custom)
    }
}

/// Sends a message with file descriptors. Fails if it is longer than [`LONGEST`].
pub(super) fn send(to: impl AsFd, message: &impl Serialize, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    if body.len() > LONGEST {
        return Err(Errno::TOOBIG.into());
    }
    let mut bytes = (body.len() as u64).to_le_bytes().to_vec();
    bytes.extend(body);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut sent = 0;
    while sent < bytes.len() {
        let rest = [IoSlice::new(&bytes[sent..])];
        match rustix::net::sendmsg(&to, &rest, &mut control, SendFlags::NOSIGNAL) {
            Ok(length) => sent += length,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        control.clear();
    }
    Ok(())
}

/// Receives a message and its file descriptors. `None` if the other end is closed.
pub(super) fn receive<T: DeserializeOwned>(from: impl AsFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut files = Vec::new();
    let mut length = [0; 8];
    if !fill(&from, &mut length, &mut files)? {
        return Ok(None);
    }
    let length = usize::try_from(u64::from_le_bytes(length)).ok().filter(|length| *length <= LONGEST);
    let mut body = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
    match fill(&from, &mut body, &mut files)? {
        true => Ok(Some((serde_json::from_slice(&body)?, files))),
        false => Ok(None),
    }
}

/// Fills `buffer`. Returns `false` if the other end was closed before that.
fn fill(from: &impl AsFd, buffer: &mut [u8], files: &mut Vec<OwnedFd>) -> io::Result<bool> {
    let mut got = 0;
    while got < buffer.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut rest = [IoSliceMut::new(&mut buffer[got..])];
        let received = match rustix::net::recvmsg(from, &mut rest, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => received.bytes,
            Err(Errno::INTR) => continue,
            Err(Errno::CONNRESET) => 0,
            Err(error) => return Err(error.into()),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = message {
                files.extend(more);
            }
        }
        if received == 0 {
            return Ok(false);
        }
        got += received;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_and_descriptors_are_received() {
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        let raw = RawBytes((0..=255).collect());
        send(&a, &vec![raw.clone(); 3], &[a.as_fd(), b.as_fd()]).unwrap();
        send(&a, &RawBytes(Vec::new()), &[]).unwrap();
        let (got, files): (Vec<RawBytes>, _) = receive(&b).unwrap().unwrap();
        assert_eq!((got, files.len()), (vec![raw; 3], 2));
        assert_eq!(receive::<RawBytes>(&b).unwrap().unwrap().0, RawBytes(Vec::new()));
        drop((a, files));
        assert!(receive::<RawBytes>(&b).unwrap().is_none());
    }
}
