//! Transfers the three standard streams of a command without blocking.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::running::{OutputSink, Stream};

/// Number of bytes for one read: the capacity of a pipe.
const PIPE: usize = 64 << 10;

/// This process's ends of a command's streams.
pub(crate) struct StreamPump {
    output: [Option<OwnedFd>; 2],
    input: Option<(OwnedFd, Vec<u8>, usize)>,
    buffer: Vec<u8>,
}

impl StreamPump {
    /// Takes the ends. `bytes` are written to the command's standard input.
    pub(crate) fn new(stdin: Option<OwnedFd>, bytes: Vec<u8>, output: [Option<OwnedFd>; 2]) -> io::Result<Self> {
        for pipe in output.iter().chain([&stdin]).flatten() {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        let input = stdin.filter(|_| !bytes.is_empty()).map(|pipe| (pipe, bytes, 0));
        Ok(Self { output, input, buffer: vec![0; PIPE] })
    }

    /// The descriptors to poll.
    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let output = self.output.iter().flatten().map(|pipe| (pipe.as_fd(), PollFlags::IN));
        let input = self.input.iter().map(|(pipe, ..)| (pipe.as_fd(), PollFlags::OUT));
        output.chain(input).map(|(pipe, flags): (BorrowedFd<'_>, _)| PollFd::from_borrowed_fd(pipe, flags))
    }

    /// Transfers what can be transferred without blocking.
    pub(crate) fn turn(&mut self, sink: &OutputSink) {
        self.write();
        self.read(sink, Stream::Stdout);
        self.read(sink, Stream::Stderr);
    }

    /// Reads what is in the pipes now, without waiting for end of file: a process that was not killed may still have an
    /// end open.
    pub(crate) fn drain(&mut self, sink: &OutputSink) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let there = self.output[stream as usize].as_ref().map(rustix::io::ioctl_fionread);
            let mut left = there.and_then(Result::ok).unwrap_or(0);
            while left > 0 {
                let read = self.read(sink, stream) as u64;
                left = if read == 0 { 0 } else { left.saturating_sub(read) };
            }
        }
    }

    /// Reads once. Returns the number of bytes.
    fn read(&mut self, sink: &OutputSink, stream: Stream) -> usize {
        let pipe = &mut self.output[stream as usize];
        match pipe.as_ref().map(|pipe| rustix::io::read(pipe, &mut self.buffer)) {
            Some(Ok(length)) if length > 0 => {
                sink.push(stream, &self.buffer[..length]);
                return length;
            }
            Some(Err(Errno::AGAIN | Errno::INTR)) => {}
            _ => *pipe = None,
        }
        0
    }

    /// Writes what fits. Stops without an error if the command has closed its standard input.
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
