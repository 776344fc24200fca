//! The three streams of a command, moved while it runs. Nobody waits for anybody.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::running::{Feed, Stream};

/// How much is read at once: what a pipe holds.
const PIPE: usize = 64 << 10;

/// Our ends of a command's streams.
pub(crate) struct Pump {
    output: [Option<OwnedFd>; 2],
    input: Option<(OwnedFd, Vec<u8>, usize)>,
    buffer: Vec<u8>,
}

impl Pump {
    /// Takes the ends. `bytes` are what the command is to read.
    pub(crate) fn new(stdin: Option<OwnedFd>, bytes: Vec<u8>, output: [Option<OwnedFd>; 2]) -> io::Result<Self> {
        for pipe in output.iter().chain([&stdin]).flatten() {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        let input = stdin.filter(|_| !bytes.is_empty()).map(|pipe| (pipe, bytes, 0));
        Ok(Self { output, input, buffer: vec![0; PIPE] })
    }

    /// What to wait for.
    pub(crate) fn wishes(&self) -> impl Iterator<Item = PollFd<'_>> {
        let output = self.output.iter().flatten().map(|pipe| (pipe.as_fd(), PollFlags::IN));
        let input = self.input.iter().map(|(pipe, ..)| (pipe.as_fd(), PollFlags::OUT));
        output.chain(input).map(|(pipe, flags): (BorrowedFd<'_>, _)| PollFd::from_borrowed_fd(pipe, flags))
    }

    /// Moves what can be moved now.
    pub(crate) fn turn(&mut self, feed: &Feed) {
        self.write();
        self.read(feed, Stream::Stdout);
        self.read(feed, Stream::Stderr);
    }

    /// Reads what is in the pipes now. Whoever could write is dead, or was spared and must not hold us up.
    pub(crate) fn drain(&mut self, feed: &Feed) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let there = self.output[stream as usize].as_ref().map(rustix::io::ioctl_fionread);
            let mut left = there.and_then(Result::ok).unwrap_or(0);
            while left > 0 {
                let read = self.read(feed, stream) as u64;
                left = if read == 0 { 0 } else { left.saturating_sub(read) };
            }
        }
    }

    /// Reads once. Says how much.
    fn read(&mut self, feed: &Feed, stream: Stream) -> usize {
        let pipe = &mut self.output[stream as usize];
        match pipe.as_ref().map(|pipe| rustix::io::read(pipe, &mut self.buffer)) {
            Some(Ok(length)) if length > 0 => {
                feed.push(stream, &self.buffer[..length]);
                return length;
            }
            Some(Err(Errno::AGAIN | Errno::INTR)) => {}
            _ => *pipe = None,
        }
        0
    }

    /// Writes what fits. A reader that has had enough is left alone.
    fn write(&mut self) {
        let Some((pipe, bytes, written)) = &mut self.input else { return };
        match rustix::io::write(&*pipe, &bytes[*written..]) {
            Ok(length) => *written += length,
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(_) => *written = bytes.len(),
        }
        if *written == bytes.len() {
            self.input = None;
        }
    }
}
