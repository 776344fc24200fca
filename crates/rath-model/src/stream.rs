//! Reading a streamed answer: what the decoders of all APIs share.

use rath_core::Delta;
use serde_json::value::RawValue;

use crate::failure::ProviderFailure;
use crate::fields::BorrowedFields;
use crate::sse::{SseEvent, SseParser};
use crate::turn::ProviderTurn;

/// Builds a turn from the events of one API.
pub(crate) trait EventHandler: Default {
    /// Handles one event.
    fn event(&mut self, event: ProviderEvent<'_>, on_delta: &mut dyn FnMut(Delta)) -> Result<(), ProviderFailure>;

    /// Handles the `[DONE]` line that some APIs end a stream with.
    fn closed(&mut self) {}

    /// Whether the answer is complete.
    fn whole(&self) -> bool;

    /// Whether no further event can belong to the answer. Differs from `whole` if usage follows the end of the answer.
    fn over(&self) -> bool {
        self.whole()
    }

    /// The turn, as far as it has arrived.
    fn turn(self) -> ProviderTurn;
}

/// A stream event with its JSON parsed.
pub(crate) struct ProviderEvent<'a> {
    /// The `type` field of the data, or else the name of the event.
    pub(crate) kind: std::borrow::Cow<'a, str>,
    /// The fields of the JSON object.
    pub(crate) seen: BorrowedFields<'a>,
    /// The JSON text.
    pub(crate) data: &'a str,
}

/// How much more of a response is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadMore {
    /// The answer is incomplete: read on.
    Yes,
    /// The answer is complete, but usage or a closing line may follow shortly.
    Briefly,
    /// No more is needed.
    No,
}

/// Decodes a stream into a turn.
#[derive(Debug, Default)]
pub(crate) struct Stream<E> {
    parser: SseParser,
    reading: StreamState<E>,
}

#[derive(Debug, Default)]
struct StreamState<E> {
    state: E,
    events: u64,
    closed: bool,
    failure: Option<ProviderFailure>,
}

impl<E: EventHandler> Stream<E> {
    pub(crate) fn feed(&mut self, bytes: &[u8], on_delta: &mut dyn FnMut(Delta)) {
        if self.reading.over() {
            return;
        }
        let Self { parser, reading } = self;
        if let Err(error) = parser.feed(bytes, &mut |event| reading.handle(event, on_delta)) {
            reading.failure.get_or_insert(error.into());
        }
    }

    pub(crate) fn read_more(&self) -> ReadMore {
        match (self.reading.over() || self.reading.state.over(), self.reading.state.whole()) {
            (true, _) => ReadMore::No,
            (false, true) => ReadMore::Briefly,
            (false, false) => ReadMore::Yes,
        }
    }

    pub(crate) fn finish(mut self) -> Result<ProviderTurn, ProviderFailure> {
        let Self { parser, reading } = &mut self;
        let was_ok = reading.failure.is_none();
        let last = parser.finish(&mut |event| reading.handle(event, &mut |_| {}));
        if was_ok && (last.is_err() || reading.failure.as_ref().is_some_and(ProviderFailure::is_unreadable)) {
            // The last event was not closed by a blank line: it is truncated, not malformed.
            reading.failure = None;
        }
        self.reading.finish()
    }
}

impl<E: EventHandler> StreamState<E> {
    fn over(&self) -> bool {
        self.closed || self.failure.is_some()
    }

    fn handle(&mut self, event: SseEvent<'_>, on_delta: &mut dyn FnMut(Delta)) {
        if self.over() || event.data.trim_ascii().is_empty() {
            return;
        }
        if event.data.starts_with(b"[DONE]") {
            self.closed = true;
            self.state.closed();
            return;
        }
        self.events += 1;
        if let Err(failure) = self.read(event, on_delta) {
            self.failure = Some(failure);
        }
    }

    fn read(&mut self, event: SseEvent<'_>, on_delta: &mut dyn FnMut(Delta)) -> Result<(), ProviderFailure> {
        let data = std::str::from_utf8(event.data).map_err(|error| ProviderFailure::unreadable(event.data, &error))?;
        let seen = BorrowedFields::of(data).map_err(|error| ProviderFailure::unreadable(event.data, &error))?;
        let kind = seen.text("type").unwrap_or(event.name.into());
        if kind == "error" || event.name == "error" || seen.get("error").is_some_and(reports_error) {
            return Err(ProviderFailure::interrupted(data, &seen));
        }
        self.state.event(ProviderEvent { kind, seen, data }, on_delta)
    }

    fn finish(self) -> Result<ProviderTurn, ProviderFailure> {
        let whole = self.state.whole();
        let turn = ProviderTurn { events: self.events, ..self.state.turn() };
        match self.failure {
            None if whole => Ok(turn),
            failure => Err(failure.unwrap_or_else(ProviderFailure::truncated).with_partial(turn)),
        }
    }
}

impl ProviderFailure {
    fn is_unreadable(&self) -> bool {
        self.cause == crate::failure::FailureCause::Unreadable
    }

    /// Attaches the partial turn to the failure, unless it has one.
    pub(crate) fn with_partial(mut self, turn: ProviderTurn) -> Self {
        if self.partial.is_none() && (turn.id.is_some() || !turn.blocks.is_empty()) {
            self.partial = Some(Box::new(turn));
        }
        self
    }
}

/// Whether an `error` field reports an error: some vendors always send an empty one.
pub(crate) fn reports_error(value: &RawValue) -> bool {
    !matches!(value.get(), "null" | "false" | "\"\"" | "{}" | "[]")
}

/// Defines the `Decoder` of an API from its event handler.
macro_rules! decoder {
    ($events:ident) => {
        /// Decodes a streamed answer.
        #[derive(Debug, Default)]
        pub struct Decoder($crate::stream::Stream<$events>);

        impl Decoder {
            /// A decoder at the start of a stream.
            pub fn new() -> Self {
                Self::default()
            }

            /// Reads more of the stream, split at any point. Calls `on_delta` with what the new bytes add to the
            /// answer.
            pub fn feed(&mut self, bytes: &[u8], on_delta: &mut impl FnMut(rath_core::Delta)) {
                self.0.feed(bytes, on_delta);
            }

            /// Whether the rest of the stream can be ignored: it is closed, or failed.
            pub fn done(&self) -> bool {
                self.0.read_more() == $crate::stream::ReadMore::No
            }

            /// Ends the stream and returns the turn, or why there is none.
            pub fn finish(self) -> Result<$crate::ProviderTurn, $crate::ProviderFailure> {
                self.0.finish()
            }
        }

        impl $crate::client::Decode for Decoder {
            fn feed(&mut self, bytes: &[u8], on_delta: &mut dyn FnMut(rath_core::Delta)) {
                self.0.feed(bytes, on_delta);
            }
            fn read_more(&self) -> $crate::stream::ReadMore {
                self.0.read_more()
            }
            fn finish(self) -> Result<$crate::ProviderTurn, $crate::ProviderFailure> {
                self.0.finish()
            }
            fn whole(reply: &$crate::HttpResponse<'_>) -> Result<$crate::ProviderTurn, $crate::ProviderFailure> {
                decode_whole(reply)
            }
        }
    };
}

pub(crate) use decoder;
