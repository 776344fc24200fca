//! Durable timers and events.

use std::time::Duration;

use rath_core::{ErrorKind, Outline, Result, Session, Time, Workflow};

use super::clock::now;

/// Waits until `time`. The run is left waiting, with no process alive, and continues when it is resumed after that time.
pub fn sleep_until(name: impl Into<String>, time: Time) -> Wait {
    Wait { name: name.into(), what: What::Until(time) }
}

/// Waits for so long, counted from the start of the step. A resumed run does not wait longer.
pub fn sleep(name: impl Into<String>, length: Duration) -> Wait {
    Wait { name: name.into(), what: What::For(length) }
}

/// Waits for an event that someone posts to the session or to one that it was forked from: `rath send S --event NAME JSON`.
/// The value becomes the value of the step. An event stays in the inbox until one wait of its name consumes it.
pub fn wait_for(event: impl Into<String>) -> Wait {
    let name = event.into();
    Wait { name: format!("wait for {name}"), what: What::Event(name) }
}

/// See [`sleep_until`], [`sleep`](fn@sleep) and [`wait_for`].
#[derive(Clone, Debug)]
pub struct Wait {
    name: String,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Until(Time),
    For(Duration),
    Event(String),
}

impl Wait {
    async fn wait(&self, session: &mut Session) -> Result<serde_json::Value> {
        let current = now(session);
        match &self.what {
            What::Until(time) => session.sleep_until(*time, current).await?,
            What::For(length) => {
                let length = length.as_micros().try_into().unwrap_or(u64::MAX);
                let until = session.sample("wait until", || Time(current.0.saturating_add(length)))?;
                session.sleep_until(until, current).await?;
            }
            What::Event(name) => {
                let value = session.wait_for(name).await?;
                let text = session.view().await?.content(&value).await?;
                return serde_json::from_str(&text).map_err(|why| ErrorKind::Workflow(why.into()).into());
            }
        }
        Ok(serde_json::Value::Null)
    }
}

impl Workflow for Wait {
    async fn forward(&self, session: Session) -> Result<Session> {
        let work = async |mut session: Session| match self.wait(&mut session).await {
            Ok(value) => Ok((session, value)),
            Err(error) => Err(error.with_sessions(vec![session])),
        };
        Ok(session.step_value(&self.name, work).await?.0)
    }

    fn outline(&self) -> Outline {
        let detail = match &self.what {
            What::Until(time) => format!("{}, until {time}", self.name),
            What::For(length) => format!("{}, {:.1} s", self.name, length.as_secs_f64()),
            What::Event(name) => format!("event {name}"),
        };
        Outline::leaf("wait").detail(detail)
    }
}
