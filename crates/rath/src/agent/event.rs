//! What somebody who watches an agent is told while it works. Nothing here is state: the records are.

use std::fmt;
use std::sync::Arc;

use rath_core::body::{Restored, ToolFinished};
use rath_core::{Delta, SessionId, Usage};

/// Something that happens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The agent begins on this session, or goes on.
    Began,
    /// A part of the model's answer came.
    Heard(&'a Delta),
    /// The model's turn is over.
    TurnOver {
        /// What it used.
        usage: Usage,
        /// Why it ended, in the provider's word.
        stop: Option<&'a str>,
    },
    /// A call begins.
    CallStarted {
        /// Its id.
        id: &'a str,
        /// The tool.
        tool: &'a str,
        /// What it is asked, as JSON.
        arguments: &'a str,
    },
    /// A call ended. What it changed is stored; the record of it follows.
    CallFinished {
        /// The tool.
        tool: &'a str,
        /// What goes on the record.
        finished: &'a ToolFinished,
    },
    /// A call is not made: there is no such tool, its arguments do not fit, or it is not allowed.
    CallRefused {
        /// The tool.
        tool: &'a str,
        /// What the model is told.
        why: &'a str,
    },
    /// The files were set back before a call is made again, and with them what anybody did there since.
    SetBack {
        /// What is on the record.
        restored: &'a Restored,
    },
    /// A person is asked.
    Asked {
        /// What is shown.
        shown: &'a str,
    },
    /// The model failed, and is asked again.
    Retrying {
        /// What happened.
        why: &'a str,
    },
}

/// Is told what happens on a session and its forks: `session.equip(Listener::new(…))`.
#[derive(Clone)]
pub struct Listener(Arc<Hears>);

type Hears = dyn Fn(SessionId, &str, Event<'_>) + Send + Sync;

impl Listener {
    /// Calls `hears` with the session, the agent's name and the event.
    pub fn new(hears: impl Fn(SessionId, &str, Event<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hears))
    }

    pub(super) fn tell(&self, session: SessionId, agent: &str, event: Event<'_>) {
        (self.0)(session, agent, event);
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
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
