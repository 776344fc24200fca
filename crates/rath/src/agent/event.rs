//! What a run tells while it happens. Nothing here is state: the records are.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::Stream;
use rath_core::body::{Restored, ToolFinished};
use rath_core::{Delta, SessionId, Usage};
use serde::{Serialize, Serializer};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// One thing that happened in a run: on which session, by which agent.
///
/// As JSON, the fields of [`Event`] stand beside `session` and `agent`:
/// `{"session":"…","agent":"guide","event":"call_started","id":"c1","tool":"read","arguments":"{}"}`.
#[derive(Clone, Debug, Serialize)]
pub struct RunEvent {
    /// The session, or the branch of it.
    pub session: SessionId,
    /// The agent's name.
    #[serde(serialize_with = "as_text")]
    pub agent: Arc<str>,
    /// What happened.
    #[serde(flatten)]
    pub what: Event,
}

fn as_text<S: Serializer>(name: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(name)
}

/// What happened. It is owned, so that it can be sent to another thread or process.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The agent started on this session, or resumed.
    Started,
    /// A part of the model's answer arrived.
    Delta {
        /// The part.
        delta: Delta,
    },
    /// The model finished its turn.
    TurnFinished {
        /// What the turn used.
        usage: Usage,
        /// Why it ended, in the provider's word.
        stop: Option<String>,
    },
    /// A tool call started.
    CallStarted {
        /// The call's id.
        id: String,
        /// The tool.
        tool: String,
        /// The arguments, as JSON.
        arguments: String,
    },
    /// A tool call ended. The record of it follows.
    CallFinished {
        /// The tool.
        tool: String,
        /// The body of the record.
        finished: Box<ToolFinished>,
    },
    /// A tool call was not made: there is no such tool, its arguments do not fit, or it is not allowed.
    CallRefused {
        /// The tool.
        tool: String,
        /// What the model is told.
        why: String,
    },
    /// The files were restored before a call is repeated, including what other people changed since.
    FilesRestored {
        /// The body of the record.
        restored: Box<Restored>,
    },
    /// A person is asked.
    Asked {
        /// The text that the person is shown.
        shown: String,
    },
    /// The model failed, and the request is sent again.
    Retrying {
        /// What happened.
        why: String,
    },
}

/// Receives what happens on a session and its forks: `session.equip(Listener::new(…))`.
#[derive(Clone)]
pub struct Listener(Arc<Hears>);

type Hears = dyn Fn(RunEvent) + Send + Sync;

impl Listener {
    /// Calls `hears` with each event, on the thread where it happens: `hears` must not block.
    pub fn new(hears: impl Fn(RunEvent) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hears))
    }

    /// A listener, and the stream of what it hears. The stream ends when the last clone of the listener is dropped.
    ///
    /// ```
    /// use rath::agent::{Event, Listener};
    /// use rath::prelude::*;
    /// # pollster::block_on(async {
    /// let (listener, mut events) = Listener::stream();
    /// let mut session = Memory::new().create(Actor::person("ada"));
    /// session.user("Hello.")?;
    /// session.equip(listener);
    /// let agent = Agent::new("greeter").model(Scripted::new("scripted").say("Good morning."));
    /// drop(agent.forward(session).await?);
    /// let mut words = String::new();
    /// while let Some(event) = events.next().await {
    ///     assert!(serde_json::to_string(&event).unwrap().contains(r#""agent":"greeter""#));
    ///     if let Event::Delta { delta: rath::Delta::Text(text) } = event.what {
    ///         words.push_str(&text);
    ///     }
    /// }
    /// assert_eq!(words, "Good morning.");
    /// # Ok::<(), rath::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn stream() -> (Self, RunEvents) {
        let (send, receive) = unbounded_channel();
        let listener = Self::new(move |event| {
            // A stream that was dropped misses nothing.
            let _ = send.send(event);
        });
        (listener, RunEvents(receive))
    }

    pub(super) fn tell(&self, event: RunEvent) {
        (self.0)(event);
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// The events of a run, in the order in which they happened. Events that nobody reads stay in memory.
#[derive(Debug)]
pub struct RunEvents(UnboundedReceiver<RunEvent>);

impl RunEvents {
    /// The next event; `None` after the last.
    pub async fn next(&mut self) -> Option<RunEvent> {
        self.0.recv().await
    }
}

impl Stream for RunEvents {
    type Item = RunEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<RunEvent>> {
        self.0.poll_recv(context)
    }
}

/// What a run does while a person has not answered: `session.equip(Patience::Wait)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Patience {
    /// It ends with an error that says so, and goes on when it is resumed.
    #[default]
    Leave,
    /// It waits for the answer.
    Wait,
}
