//! Records that code between steps makes once: a resumed run reads them back.

use serde::de::DeserializeOwned;

use super::{Session, typed};
use crate::body::{Body, Role, StepEntered, StepLeft};
use crate::error::{ErrorKind, Result};
use crate::kind::Kind;

impl Session {
    /// Records the body that `make` returns, durably. A resumed run returns the recorded body and does not run `make`.
    ///
    /// An error of `make` is not recorded: on resume `make` runs again.
    pub async fn append_once<B, F>(&mut self, make: F) -> Result<B>
    where
        B: Body + Clone,
        F: AsyncFnOnce(&mut Session) -> Result<B>,
    {
        if let Some(body) = self.recorded::<B>()? {
            return Ok(body);
        }
        let body = make(self).await?;
        self.append(body.clone())?;
        self.publish().await?;
        Ok(body)
    }

    /// The value that the last step with a value returned: that of an agent with a typed output, for example. Steps
    /// before the fork point count too, verdicts of validators do not. `None` if no step returned a value.
    pub async fn output<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        self.view().await?.output().await
    }

    /// Like [`output`](Self::output), without steps before the fork point.
    pub async fn own_output<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        for record in self.own_records(&[Kind::StepLeft]).await?.iter().rev() {
            if let Ok(StepLeft { step, value: Some(value), .. }) = record.body() {
                let entered = self.reader().record_by_id(step).await?.and_then(|entered| entered.body().ok());
                if entered.is_some_and(|entered: StepEntered| entered.role == Some(Role::Validator)) {
                    continue;
                }
                let text = self.reader().text(&value).await?;
                if text != "null" {
                    return typed(record.point(), &text).map(Some);
                }
            }
        }
        Ok(None)
    }

    /// The next record of a resumed run, if the program made it and it is of this kind. Advances the cursor past it.
    /// `None` when the session is live or another record follows.
    pub fn recorded<B: Body>(&mut self) -> Result<Option<B>> {
        self.0.run_context.check()?;
        let Some(record) = self.peek_recorded(&B::KIND)? else { return Ok(None) };
        let point = record.point();
        let body = record.body().map_err(|why| ErrorKind::Record { point, why })?;
        self.advance()?;
        Ok(Some(body))
    }
}
