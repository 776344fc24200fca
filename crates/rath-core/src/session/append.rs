//! Methods that append common records.

use std::collections::BTreeMap;

use super::{Session, encode};
use crate::blob::{Blob, Content};
use crate::body::{
    Assistant, Attachment, Body as _, Cancelled, Closed, Labelled, Note, Outcome, StepEntered, StepLeft, System,
    ToolResult, User,
};
use crate::error::{ErrorKind, Result};
use crate::id::RecordId;
use crate::state::Pending;

impl Session {
    /// Appends a system message: standing instructions.
    pub fn system(&mut self, text: impl Into<Content>) -> Result<RecordId> {
        self.append(System { text: text.into() })
    }

    /// Appends a user message.
    pub fn user(&mut self, text: impl Into<Content>) -> Result<RecordId> {
        self.append(User { text: text.into(), post: None, attached: Vec::new() })
    }

    /// Appends a user message with images and documents. Each attachment is a name, which may be empty, and its
    /// content.
    ///
    /// ```
    /// use rath_core::{Actor, Blob, InMemory, Session};
    ///
    /// let mut session = Session::create(&InMemory::new(), Actor::person("ada"));
    /// let picture = Blob::new(*b"...", "image/png");
    /// session.user_with("What is this?", [("cat.png", picture)])?;
    /// # Ok::<(), rath_core::Error>(())
    /// ```
    pub fn user_with<'a>(
        &mut self,
        text: impl Into<Content>,
        attached: impl IntoIterator<Item = (&'a str, Blob)>,
    ) -> Result<RecordId> {
        let (mut files, mut blobs) = (Vec::new(), Vec::new());
        for (name, blob) in attached {
            let name = Some(name.to_owned()).filter(|name| !name.is_empty());
            files.push(Attachment { content: blob.reference.clone(), name });
            blobs.push(blob);
        }
        let mut body = User { text: text.into(), post: None, attached: files };
        body.visit_text(&mut |content| content.spill(&mut blobs));
        let record = self.push(User::KIND, &encode(&body), &[], blobs, &body)?;
        Ok(record.id())
    }

    /// Appends a model turn of plain text.
    pub fn assistant(&mut self, text: impl Into<Content>) -> Result<RecordId> {
        self.append(Assistant::text(text))
    }

    /// Appends the result of a call as the model is shown it.
    pub fn tool_result(&mut self, call: impl Into<String>, shown: impl Into<Content>) -> Result<RecordId> {
        self.append(ToolResult { shown: Some(shown.into()), ..ToolResult::new(call) })
    }

    /// Appends a note that models are not shown.
    pub fn note(&mut self, text: impl Into<Content>) -> Result<RecordId> {
        self.append(Note { text: text.into() })
    }

    /// Sets the title.
    pub fn set_title(&mut self, title: impl Into<String>) -> Result<RecordId> {
        self.append(Labelled { title: Some(title.into()), ..Labelled::default() })
    }

    /// Sets a label. The value may be empty.
    pub fn label(&mut self, name: impl Into<String>, value: impl Into<String>) -> Result<RecordId> {
        let set = BTreeMap::from([(name.into(), value.into())]);
        self.append(Labelled { set, ..Labelled::default() })
    }

    /// Removes a label.
    pub fn unlabel(&mut self, name: impl Into<String>) -> Result<RecordId> {
        self.append(Labelled { unset: vec![name.into()], ..Labelled::default() })
    }

    /// Enters a step. Records belong to it until [`leave`](Self::leave).
    pub fn enter(&mut self, name: impl Into<String>) -> Result<RecordId> {
        let entered = self.append(StepEntered::new(name))?;
        self.0.run_context.step_entered();
        Ok(entered)
    }

    /// Leaves the innermost step that was entered in this session. Fails with [`ErrorKind::NoStep`] if there is none.
    pub fn leave(&mut self, outcome: Outcome) -> Result<RecordId> {
        match self.0.state.steps.last() {
            Some(step) if !step.inherited => {
                let left = self.append(StepLeft::new(step.record, outcome))?;
                self.0.run_context.step_left();
                Ok(left)
            }
            _ => Err(ErrorKind::NoStep(self.id()).into()),
        }
    }

    /// Cancels what is open: calls get no result, steps end as cancelled.
    pub fn cancel(&mut self, why: impl Into<String>) -> Result<()> {
        // A conflict is not work that can be cancelled.
        let pending = Pending { conflicts: Vec::new(), ..self.pending() };
        let why = why.into();
        if !pending.is_empty() {
            let calls = self.close_lost_calls(pending.calls)?;
            self.append(Cancelled { calls, why })?;
        }
        for _ in pending.steps {
            self.leave(Outcome::Cancelled)?;
        }
        Ok(())
    }

    /// Closes and publishes the session. A closed session can still be forked. On failure, for example because
    /// something is open, the error returns the session.
    pub async fn close(mut self, why: impl Into<String>) -> Result<()> {
        let closed = Closed { merged_into: None, why: Some(why.into()) };
        let done = match self.check_nothing_open().and_then(|()| self.push_closed(closed)) {
            Ok(()) => self.publish().await,
            Err(error) => Err(error),
        };
        done.map_err(|error| error.with_sessions(vec![self]))
    }

    pub(super) fn push_closed(&mut self, body: Closed) -> Result<()> {
        if self.0.is_operator {
            return Err(ErrorKind::Operator(self.id()).into());
        }
        self.push(Closed::KIND, &encode(&body), &[], Vec::new(), &body)?;
        Ok(())
    }

    pub(super) fn check_nothing_open(&self) -> Result<()> {
        self.check_open(self.pending())
    }

    /// Like [`check_nothing_open`](Self::check_nothing_open), but allows conflicts, which are not work in progress.
    pub(super) fn check_no_work_open(&self) -> Result<()> {
        self.check_open(Pending { conflicts: Vec::new(), ..self.pending() })
    }

    fn check_open(&self, pending: Pending) -> Result<()> {
        match pending.is_empty() {
            true => Ok(()),
            false => Err(ErrorKind::Open { session: self.id(), pending: Box::new(pending) }.into()),
        }
    }
}
