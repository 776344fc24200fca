//! A command is read while it runs and while it ends.

use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use rath_core::Time;
use rath_sandbox::{Captured, Ended, Event, Feed, Finished, Running, Stream};

/// The reader looks without rest, so that the end falls upon every part of a look: nothing is lost or read twice.
#[test]
fn what_was_said_last_is_read_whatever_the_end_falls_upon() {
    let (feeds, commands) = mpsc::channel::<Feed>();
    let command = thread::spawn(move || {
        for feed in commands {
            feed.push(Stream::Stdout, b"said last");
            feed.end(Ok(ended_well()));
        }
    });
    for _ in 0..20_000 {
        let (mut running, feed) = Running::new(1 << 10, |_| {});
        feeds.send(feed).unwrap();
        let mut heard = Vec::new();
        loop {
            match pin!(running.next()).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Some(Event::Output { bytes, .. })) => heard.extend(bytes),
                Poll::Ready(_) => break,
                Poll::Pending => thread::yield_now(),
            }
        }
        assert_eq!(heard, b"said last");
    }
    drop(feeds);
    command.join().unwrap();
}

fn ended_well() -> Finished {
    Finished {
        ended: Ended::Exited(0),
        timed_out: false,
        killed: false,
        stdout: Captured::default(),
        stderr: Captured::default(),
        escaped: 0,
        refused: Vec::new(),
        beyond: None,
        started: Time::now(),
        duration: Duration::ZERO,
    }
}
