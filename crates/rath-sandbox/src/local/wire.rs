//! What rath and an anchor say to each other: JSON with a length before it, and open files that travel along.

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

use super::tier::Tier;
use crate::finished::Ended;
use crate::limits::Limits;

/// Open files that travel with one message, at most.
const MOST_FILES: usize = 4;

/// The longest message that is believed: the longest command line that Linux takes, with room.
const LONGEST: usize = 64 << 20;

/// What an anchor is to be.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Setup {
    pub(super) tier: Tier,
    /// Only find out whether it can be done.
    pub(super) probe: bool,
    pub(super) directory: Raw,
    pub(super) overlay: Option<Layers>,
    /// Where the workspace appears.
    pub(super) appears_at: Raw,
    /// Has `root`, `tmp` and `home`.
    pub(super) state: Raw,
    pub(super) home: Option<Raw>,
    pub(super) readable: Vec<Raw>,
    pub(super) hidden: Vec<Raw>,
    /// Sockets of the machine, which are covered where they are shown.
    pub(super) sockets: Vec<Raw>,
    pub(super) limits: Limits,
}

/// [`crate::Overlay`] on its way.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Layers {
    pub(super) lowers: Vec<Raw>,
    pub(super) upper: Raw,
    pub(super) work: Raw,
}

/// What became of it. With the first comes the workspace, opened.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Ready {
    Yes {
        not_enforced: Vec<String>,
        /// Sockets and FIFOs of the workspace that are covered, relative to it.
        covered: Vec<Raw>,
    },
    No {
        doing: String,
        errno: i32,
    },
}

/// A command. With it come its keeper's end of a socket and its three streams.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) program: Words,
    pub(super) env: Vec<(Raw, Raw)>,
    /// Relative to the workspace.
    pub(super) cwd: Raw,
    /// Whether the streams are a terminal that becomes the command's own.
    pub(super) terminal: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Words {
    Argv(Vec<Raw>),
    Shell(String),
}

/// What a command's keeper tells.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Told {
    Started,
    /// It never ran. With an error number it was the machine's fault.
    NotStarted {
        tried: String,
        why: String,
        errno: Option<i32>,
    },
    /// It and all that it started are gone.
    Over {
        ended: Ended,
        escaped: u32,
        /// Calls that the sandbox refused, with how often.
        refused: Vec<(String, u64)>,
        /// The limit that it went beyond.
        beyond: Option<String>,
    },
}

/// How a keeper is asked to stop its command.
pub(super) const POLITELY: u8 = b'T';
pub(super) const NOW: u8 = b'K';

/// Bytes that need not be text, as a JSON string of one character a byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Raw(pub(super) Vec<u8>);

impl Raw {
    pub(super) fn path(&self) -> PathBuf {
        self.os().into()
    }

    pub(super) fn os(&self) -> OsString {
        OsString::from_vec(self.0.clone())
    }
}

impl From<&OsStr> for Raw {
    fn from(text: &OsStr) -> Self {
        Raw(text.as_bytes().to_vec())
    }
}

impl From<&Path> for Raw {
    fn from(path: &Path) -> Self {
        path.as_os_str().into()
    }
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0.iter().map(|byte| char::from(*byte)).collect::<String>())
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = text.chars().map(|letter| u8::try_from(u32::from(letter)));
        bytes.collect::<Result<_, _>>().map(Raw).map_err(serde::de::Error::custom)
    }
}

/// Sends a message with open files. One that would not be believed is not sent.
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

/// The next message and what came with it. `None` when the other end is gone.
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

/// Fills `buffer`. `false` when the other end was gone before.
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
    fn any_bytes_and_open_files_arrive() {
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        let raw = Raw((0..=255).collect());
        send(&a, &vec![raw.clone(); 3], &[a.as_fd(), b.as_fd()]).unwrap();
        send(&a, &Raw(Vec::new()), &[]).unwrap();
        let (got, files): (Vec<Raw>, _) = receive(&b).unwrap().unwrap();
        assert_eq!((got, files.len()), (vec![raw; 3], 2));
        assert_eq!(receive::<Raw>(&b).unwrap().unwrap().0, Raw(Vec::new()));
        drop((a, files));
        assert!(receive::<Raw>(&b).unwrap().is_none());
    }
}
