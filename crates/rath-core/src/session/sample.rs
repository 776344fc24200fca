//! Nondeterministic values that code between steps needs: recorded once and returned again on resume.

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
    /// Records a nondeterministic value. `make` is called once; a resumed run gets the recorded value. The value may
    /// have at most 8 KiB as JSON; use [`record_once`](Self::record_once) for larger values and for asynchronous work.
    pub fn sample<T: Serialize + DeserializeOwned>(&mut self, what: &str, make: impl FnOnce() -> T) -> Result<T> {
        if let Some((point, value)) = self.take_sampled(what)? {
            let Content::Text(value) = value else {
                let why = "the recorded value is too long for `sample`: read it with `record_once`".into();
                return Err(ErrorKind::BadBody { kind: format!("sampled at {point}"), why }.into());
            };
            return typed(point, &value);
        }
        let text = recordable(what, &make())?;
        if text.len() > INLINE_LIMIT {
            let why = format!("{what} has {} bytes and the limit is {INLINE_LIMIT}: use `record_once`", text.len());
            return Err(ErrorKind::BadBody { kind: "sampled".into(), why }.into());
        }
        let value = typed(self.point(), &text);
        self.append(Sampled { what: what.into(), value: text.into() })?;
        value
    }

    /// Runs `work` and durably records the value that it returns under `name`. A resumed run returns the recorded value
    /// and does not run `work`. Use it between steps for work that must not be repeated, or whose result must not
    /// change. The value is recorded as JSON of any size. An error of `work` is not recorded: on resume `work` runs
    /// again.
    ///
    /// If the process dies after `work` and before the value is recorded, resume runs `work` again. Put work that can
    /// never be repeated into a tool: its calls are recorded before they start.
    ///
    /// ```
    /// # use rath_core::{Actor, InMemory, Session};
    /// # pollster::block_on(async {
    /// # let mut session = Session::create(&InMemory::new(), Actor::person("ada"));
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

    /// Tells runs that the current code started or continued from those that passed this point with older code. Wrap a
    /// change of a workflow's code with it: `if session.patched("new greeting")? { …new… } else { …old… }`.
    ///
    /// Where the run is live, records that it has the change, and returns true; a resumed run then gets true again. A
    /// resumed run that passed this point without that record gets false, and nothing is recorded. Each change needs an
    /// id of its own. Remove the call, and the old code, when no run from before the change is left.
    ///
    /// ```
    /// # use rath_core::{Actor, InMemory, Session};
    /// # let mut session = Session::create(&InMemory::new(), Actor::person("ada"));
    /// let greeting = if session.patched("short greeting")? { "Hi." } else { "Good morning." };
    /// # assert_eq!(greeting, "Hi.");
    /// # Ok::<(), rath_core::Error>(())
    /// ```
    pub fn patched(&mut self, id: &str) -> Result<bool> {
        let what = format!("patch {id}");
        self.0.run_context.check()?;
        let recorded = self.peek_recorded(&Kind::Sampled)?;
        let is_recorded =
            recorded.and_then(|record| record.body::<Sampled>().ok()).is_some_and(|body| body.what == what);
        match is_recorded || self.is_live() {
            true => self.sample(&what, || true),
            false => Ok(false),
        }
    }

    /// The recorded value if the next record is a sample of this name, and its record. `None` when the session is live.
    fn take_sampled(&mut self, what: &str) -> Result<Option<(Point, Content)>> {
        let named = |record: &Record| record.body::<Sampled>().is_ok_and(|body| body.what == what);
        let recorded = self.take_recorded(&Kind::Sampled, named).map_err(|error| error.now(format!("sampled: {what}")));
        let Some(record) = self.fork_if_diverged(recorded)? else { return Ok(None) };
        let point = record.point();
        let body: Sampled = record.body().map_err(|why| ErrorKind::Record { point, why })?;
        self.advance_over(record)?;
        Ok(Some((point, body.value)))
    }

    /// The current time. A resumed run gets the recorded time.
    pub fn now(&mut self) -> Result<Time> {
        self.sample("clock", Time::now)
    }

    /// A random number. A resumed run gets the recorded number.
    pub fn random(&mut self) -> Result<u64> {
        self.sample("random", crate::entropy::random_number)
    }
}

fn recordable<T: Serialize + DeserializeOwned>(what: &str, value: &T) -> Result<String> {
    let bad = |why| ErrorKind::BadBody { kind: format!("sampled ({what})"), why }.into();
    value_to_text(value).map_err(bad)
}
