//! The clock, randomness and environment of a run: taken once, and given again on resume.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Session, encode};
use crate::blob::Content;
use crate::body::{Body as _, Sampled};
use crate::clock::Time;
use crate::error::{ErrorKind, Result};
use crate::kind::Kind;
use crate::record::Record;

impl Session {
    /// A value that code between steps needs from outside: `make` is asked once, and resuming gives the same again.
    pub fn sample<T: Serialize + DeserializeOwned>(&mut self, what: &str, make: impl FnOnce() -> T) -> Result<T> {
        let named = |record: &Record| record.body::<Sampled>().is_ok_and(|body| body.what == what);
        let taken = self.take_recorded(&Kind::Sampled, named).map_err(|error| error.now(format!("sampled: {what}")));
        if let Some(record) = self.unless_diverged(taken)? {
            let point = record.point();
            let bad = |why: String| ErrorKind::BadBody { kind: format!("sampled at {point}"), why };
            let body: Sampled = record.body().map_err(|why| ErrorKind::Record { point, why })?;
            let Content::Text(value) = body.value else { return Err(bad("its value is too long".into()).into()) };
            let value = serde_json::from_str(&value).map_err(|why| bad(why.to_string()))?;
            self.absorb(record)?;
            return Ok(value);
        }
        let value = make();
        let bad = |why: String| ErrorKind::BadBody { kind: "sampled".into(), why };
        let text = serde_json::to_string(&value).map_err(|why| bad(why.to_string()))?;
        if text.len() > crate::blob::INLINE_LIMIT {
            return Err(bad(format!(
                "{what} has {} bytes; a sample is at most {}",
                text.len(),
                crate::blob::INLINE_LIMIT
            ))
            .into());
        }
        let body = Sampled { what: what.into(), value: text.into() };
        self.push(Sampled::KIND, &encode(&body), &[], Vec::new(), &body)?;
        Ok(value)
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
