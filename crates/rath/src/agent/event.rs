//! Events of a run for live display. They are not state: the records are.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::Stream;
use rath_core::body::{Restored, ToolFinished};
use rath_core::{Delta, SessionId, Usage};
use serde::{Serialize, Serializer};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// An event of a run, with its session and agent.
///
/// In JSON, the fields of [`Event`] are next to `session` and `agent`:
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

/// The event itself. It owns its data, so it can be sent to another thread or process.
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
        /// The name of the tool.
        tool: String,
        /// The arguments, as JSON.
        arguments: String,
    },
    /// A tool call ended. The record of it follows.
    CallFinished {
        /// The name of the tool.
        tool: String,
        /// The body of the record.
        finished: Box<ToolFinished>,
    },
    /// A tool call was not made: the tool is unknown, the arguments are invalid, or the call is not allowed.
    CallRefused {
        /// The name of the tool that the model requested.
        tool: String,
        /// The text that the model is shown.
        why: String,
    },
    /// The files were restored before a call is repeated. Edits since the first attempt were reverted too.
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
        /// The error.
        why: String,
    },
}

/// Receives the events of a session and its forks: `session.provide(Observer::new(…))`.
#[derive(Clone)]
pub struct Observer(Arc<Callback>);

type Callback = dyn Fn(RunEvent) + Send + Sync;

impl Observer {
    /// Creates an observer that calls `receive` with each event, on the thread of the run. `receive` must not block.
    pub fn new(receive: impl Fn(RunEvent) + Send + Sync + 'static) -> Self {
        Self(Arc::new(receive))
    }

    /// An observer, and the stream of its events. The stream ends when the last clone of the observer is dropped.
    ///
    /// ```
    /// use rath::agent::{Event, Observer};
    /// use rath::prelude::*;
    /// # pollster::block_on(async {
    /// let (observer, mut events) = Observer::stream();
    /// let mut session = InMemory::new().create(Actor::person("ada"));
    /// session.user("Hello.")?;
    /// session.provide(observer);
    /// let agent = Agent::new("greeter").model(Scripted::new("scripted").say("Good morning."));
    /// drop(agent.forward(session).await?);
    /// let mut words = String::new();
    /// while let Some(event) = events.next().await {
    ///     assert!(serde_json::to_string(&event).unwrap().contains(r#""agent":"greeter""#));
    ///     if let Event::Delta { delta: rath::model::Delta::Text(text) } = event.what {
    ///         words.push_str(&text);
    ///     }
    /// }
    /// assert_eq!(words, "Good morning.");
    /// # Ok::<(), rath::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn stream() -> (Self, RunEvents) {
        let (sender, receiver) = unbounded_channel();
        let observer = Self::new(move |event| {
            // The receiver may have been dropped.
            let _ = sender.send(event);
        });
        (observer, RunEvents(receiver))
    }

    pub(super) fn emit(&self, event: RunEvent) {
        (self.0)(event);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// The events of a run in order. Events are kept in memory until they are read.
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

/// What a run does while a question is open: `session.provide(OnQuestion::Wait)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnQuestion {
    /// The run ends with [`ErrorKind::Waiting`](rath_core::ErrorKind::Waiting), and can be resumed after the answer.
    #[default]
    Leave,
    /// The run blocks until the question is answered.
    Wait,
}
