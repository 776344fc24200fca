//! What all streamed answers have in common: events come, and then the turn is whole or it is not.

use rath_core::Delta;
use serde_json::value::RawValue;

use crate::failure::Failure;
use crate::fields::Seen;
use crate::sse::{Event, Parser};
use crate::turn::Turn;

/// What a vendor's events make of a turn.
pub(crate) trait Events: Default {
    /// Takes an event.
    fn event(&mut self, event: Told<'_>, heard: &mut dyn FnMut(Delta)) -> Result<(), Failure>;

    /// Takes the line that closes some streams.
    fn closed(&mut self) {}

    /// Whether the answer is whole.
    fn whole(&self) -> bool;

    /// Whether nothing that belongs to it can follow.
    fn over(&self) -> bool {
        self.whole()
    }

    /// The turn, as far as it came.
    fn turn(self) -> Turn;
}

/// An event, looked at.
pub(crate) struct Told<'a> {
    /// Its kind: the data's own `type`, or else the event's name.
    pub(crate) kind: std::borrow::Cow<'a, str>,
    /// Its fields.
    pub(crate) seen: Seen<'a>,
    /// The JSON.
    pub(crate) data: &'a str,
}

/// How much more of a response is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// The rest of the answer.
    More,
    /// The answer is whole; what else comes soon belongs to it.
    LittleMore,
    /// Nothing.
    Nothing,
}

/// Reads a stream into a turn.
#[derive(Debug, Default)]
pub(crate) struct Stream<E> {
    parser: Parser,
    reading: Reading<E>,
}

#[derive(Debug, Default)]
struct Reading<E> {
    state: E,
    events: u64,
    closed: bool,
    broken: Option<Failure>,
}

impl<E: Events> Stream<E> {
    pub(crate) fn feed(&mut self, bytes: &[u8], heard: &mut dyn FnMut(Delta)) {
        if self.reading.over() {
            return;
        }
        let Self { parser, reading } = self;
        if let Err(error) = parser.feed(bytes, &mut |event| reading.take(event, heard)) {
            reading.broken.get_or_insert(error.into());
        }
    }

    /// How much more of it is wanted.
    pub(crate) fn wants(&self) -> Wants {
        match (self.reading.over() || self.reading.state.over(), self.reading.state.whole()) {
            (true, _) => Wants::Nothing,
            (false, true) => Wants::LittleMore,
            (false, false) => Wants::More,
        }
    }

    pub(crate) fn finish(mut self) -> Result<Turn, Failure> {
        let Self { parser, reading } = &mut self;
        let unbroken = reading.broken.is_none();
        let last = parser.finish(&mut |event| reading.take(event, &mut |_| {}));
        if unbroken && (last.is_err() || reading.broken.as_ref().is_some_and(Failure::is_unreadable)) {
            // No blank line closed it: it is not malformed, its end is missing.
            reading.broken = None;
        }
        self.reading.finish()
    }
}

impl<E: Events> Reading<E> {
    fn over(&self) -> bool {
        self.closed || self.broken.is_some()
    }

    fn take(&mut self, event: Event<'_>, heard: &mut dyn FnMut(Delta)) {
        if self.over() || event.data.trim_ascii().is_empty() {
            return;
        }
        if event.data.starts_with(b"[DONE]") {
            self.closed = true;
            self.state.closed();
            return;
        }
        self.events += 1;
        if let Err(failure) = self.read(event, heard) {
            self.broken = Some(failure);
        }
    }

    fn read(&mut self, event: Event<'_>, heard: &mut dyn FnMut(Delta)) -> Result<(), Failure> {
        let data = std::str::from_utf8(event.data).map_err(|error| Failure::unreadable(event.data, &error))?;
        let seen = Seen::of(data).map_err(|error| Failure::unreadable(event.data, &error))?;
        let kind = seen.text("type").unwrap_or(event.name.into());
        if kind == "error" || event.name == "error" || seen.get("error").is_some_and(says_something) {
            return Err(Failure::broken_off(data, &seen));
        }
        self.state.event(Told { kind, seen, data }, heard)
    }

    fn finish(self) -> Result<Turn, Failure> {
        let whole = self.state.whole();
        let turn = Turn { events: self.events, ..self.state.turn() };
        match self.broken {
            None if whole => Ok(turn),
            broken => Err(broken.unwrap_or_else(Failure::cut).with_partial(turn)),
        }
    }
}

impl Failure {
    fn is_unreadable(&self) -> bool {
        self.cause == crate::failure::Cause::Unreadable
    }

    /// The same failure with what had come of the turn, unless it brought its own.
    pub(crate) fn with_partial(mut self, turn: Turn) -> Self {
        if self.partial.is_none() && (turn.id.is_some() || !turn.blocks.is_empty()) {
            self.partial = Some(Box::new(turn));
        }
        self
    }
}

/// Whether an error field holds an error: some vendors send an empty one along.
pub(crate) fn says_something(value: &RawValue) -> bool {
    !matches!(value.get(), "null" | "false" | "\"\"" | "{}" | "[]")
}

/// The decoder of a room: reads a stream by its events.
macro_rules! decoder {
    ($events:ident) => {
        /// Reads a streamed answer.
        #[derive(Debug, Default)]
        pub struct Decoder($crate::stream::Stream<$events>);

        impl Decoder {
            /// A decoder that has read nothing.
            pub fn new() -> Self {
                Self::default()
            }

            /// Takes more of the stream, in any pieces. `heard` is told what they add to the answer.
            pub fn feed(&mut self, bytes: &[u8], heard: &mut impl FnMut(rath_core::Delta)) {
                self.0.feed(bytes, heard);
            }

            /// Whether nothing that follows matters: the stream is closed, or broken.
            pub fn done(&self) -> bool {
                self.0.wants() == $crate::stream::Wants::Nothing
            }

            /// The stream is over: the turn, or why there is none.
            pub fn finish(self) -> Result<$crate::Turn, $crate::Failure> {
                self.0.finish()
            }
        }

        impl $crate::client::Decode for Decoder {
            fn feed(&mut self, bytes: &[u8], heard: &mut dyn FnMut(rath_core::Delta)) {
                self.0.feed(bytes, heard);
            }
            fn wants(&self) -> $crate::stream::Wants {
                self.0.wants()
            }
            fn finish(self) -> Result<$crate::Turn, $crate::Failure> {
                self.0.finish()
            }
            fn whole(reply: &$crate::Reply<'_>) -> Result<$crate::Turn, $crate::Failure> {
                decode_whole(reply)
            }
        }
    };
}

pub(crate) use decoder;
