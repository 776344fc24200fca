//! Values that a run takes from outside between its steps: recorded once, and returned again on resume.

use std::future::Future;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Session;
use super::step::{typed, value_to_text};
use crate::blob::{Content, INLINE_LIMIT};
use crate::body::Sampled;
use crate::clock::Time;
use crate::error::{ErrorKind, Result};
use crate::id::Point;
use crate::kind::Kind;
use crate::record::Record;

impl Session {
    /// A value that code between steps needs from outside: `make` is asked once, and resuming gives the same again. The
    /// value has at most 8 KiB as JSON; [`record_once`](Self::record_once) takes larger ones, and work that waits.
    pub fn sample<T: Serialize + DeserializeOwned>(&mut self, what: &str, make: impl FnOnce() -> T) -> Result<T> {
        if let Some((point, value)) = self.take_sampled(what)? {
            let Content::Text(value) = value else {
                let why = "its value is too long for a sample: read it with record_once".into();
                return Err(ErrorKind::BadBody { kind: format!("sampled at {point}"), why }.into());
            };
            return typed(point, &value);
        }
        let text = recordable(what, &make())?;
        if text.len() > INLINE_LIMIT {
            let why = format!("{what} has {} bytes; a sample is at most {INLINE_LIMIT}", text.len());
            return Err(ErrorKind::BadBody { kind: "sampled".into(), why }.into());
        }
        let value = typed(self.point(), &text);
        self.append(Sampled { what: what.into(), value: text.into() })?;
        value
    }

    /// Runs `work` and records the value that it returns, durably, under `name`. On resume the recorded value is returned
    /// and `work` is not run: use it between steps for what must not happen twice, or not come out differently. The value
    /// is recorded as JSON, of any size. An error of `work` is not recorded: on resume `work` runs again.
    ///
    /// A process that dies after `work` and before its record runs it again on resume. What can never be repeated belongs
    /// into a tool, whose calls are recorded before they begin.
    ///
    /// ```
    /// # use rath_core::{Actor, Memory, Session};
    /// # pollster::block_on(async {
    /// # let mut session = Session::create(&Memory::new(), Actor::person("ada"));
    /// let issue: u64 = session.record_once("open an issue", async || Ok(1_217)).await?;
    /// # assert_eq!(issue, 1_217);
    /// # Ok::<(), rath_core::Error>(()) }).unwrap();
    /// ```
    pub async fn record_once<T, F, Fut>(&mut self, name: &str, work: F) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        if let Some((point, value)) = self.take_sampled(name)? {
            return typed(point, &self.reader().text(&value).await?);
        }
        let text = recordable(name, &work().await?)?;
        let value = typed(self.point(), &text);
        self.append(Sampled { what: name.into(), value: text.into() })?;
        self.publish().await?;
        value
    }

    /// The recorded value of this name that comes next, and its record; `None` when the session is live.
    fn take_sampled(&mut self, what: &str) -> Result<Option<(Point, Content)>> {
        let named = |record: &Record| record.body::<Sampled>().is_ok_and(|body| body.what == what);
        let taken = self.take_recorded(&Kind::Sampled, named).map_err(|error| error.now(format!("sampled: {what}")));
        let Some(record) = self.unless_diverged(taken)? else { return Ok(None) };
        let point = record.point();
        let body: Sampled = record.body().map_err(|why| ErrorKind::Record { point, why })?;
        self.absorb(record)?;
        Ok(Some((point, body.value)))
    }

    /// The time, the same again on resume.
    pub fn now(&mut self) -> Result<Time> {
        self.sample("clock", Time::now)
    }

    /// A random number, the same again on resume.
    pub fn random(&mut self) -> Result<u64> {
        self.sample("random", crate::entropy::random_number)
    }
}

fn recordable<T: Serialize + DeserializeOwned>(what: &str, value: &T) -> Result<String> {
    let bad = |why| ErrorKind::BadBody { kind: format!("sampled ({what})"), why }.into();
    value_to_text(value).map_err(bad)
}
