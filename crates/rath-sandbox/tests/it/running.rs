//! Reading the output of a command while it runs and while it ends.

use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use rath_core::Time;
use rath_sandbox::{CapturedOutput, CommandEvent, ExitStatus, Finished, OutputSink, Running, Stream};

/// Reads in a loop, so that the command ends at each possible point of a read. No output may be lost or read twice.
#[test]
fn the_last_output_is_read_whenever_the_command_ends() {
    let (feeds, commands) = mpsc::channel::<OutputSink>();
    let command = thread::spawn(move || {
        for feed in commands {
            feed.push(Stream::Stdout, b"last output");
            feed.end(Ok(successful()));
        }
    });
    for _ in 0..20_000 {
        let (mut running, feed) = Running::new(1 << 10, |_| {});
        feeds.send(feed).unwrap();
        let mut output = Vec::new();
        loop {
            match pin!(running.next()).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Some(CommandEvent::Output { bytes, .. })) => output.extend(bytes),
                Poll::Ready(_) => break,
                Poll::Pending => thread::yield_now(),
            }
        }
        assert_eq!(output, b"last output");
    }
    drop(feeds);
    command.join().unwrap();
}

fn successful() -> Finished {
    Finished {
        ended: ExitStatus::Exited(0),
        timed_out: false,
        killed: false,
        stdout: CapturedOutput::default(),
        stderr: CapturedOutput::default(),
        killed_orphans: 0,
        refused: Vec::new(),
        limit_exceeded: None,
        started: Time::now(),
        duration: Duration::ZERO,
    }
}
