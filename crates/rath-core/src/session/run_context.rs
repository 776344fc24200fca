//! What an open session has in addition to its records: resources, cancellation, and the state of a run. Not stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Session;
use super::publish::ConsumedPost;
use super::resume::Replay;
use super::run::{OnDivergence, WorkflowName};
use super::run_tree::RunTree;
use crate::blob::Blob;
use crate::cancel::Cancel;
use crate::error::{Diverged, ErrorKind, Result};
use crate::id::SessionId;
use crate::record::Record;
use crate::resources::Resources;
use crate::store::{self, Holder};

/// Every fork has one, so it is small: parts that most sessions do not need are boxed.
#[derive(Default)]
pub(super) struct RunContext {
    shared: Option<Arc<SharedContext>>,
    own: Option<Box<OwnContext>>,
}

/// The part that a session shares with its forks.
#[derive(Clone, Default)]
pub(super) struct SharedContext {
    /// The stored sessions of a resumed run.
    pub(super) tree: Option<Arc<RunTree>>,
    /// Whether the session belongs to a run. If so, forks are counted so that a resumed run finds them again.
    pub(super) in_run: bool,
    pub(super) on_divergence: OnDivergence,
    /// The source of the program that the run executes, if it has one.
    pub(super) program: Option<Blob>,
    /// The name and the version of the run's workflow.
    pub(super) workflow: Option<WorkflowName>,
    pub(super) resources: Resources,
    pub(super) cancel: Option<Cancel>,
}

/// Why a fork must not be used. `fork` cannot fail, so the first use of the fork fails instead.
#[derive(Clone)]
pub(super) enum UnusableFork {
    /// The code forks something else than what is recorded.
    Diverged(Arc<Diverged>),
    /// The branch exists already, and another process has it open.
    Locked(SessionId, Holder),
}

/// The part that only this session has.
#[derive(Default)]
pub(super) struct OwnContext {
    /// The number of forks made in the innermost step.
    forks: AtomicU64,
    /// The numbers of forks made in the steps around the innermost one.
    forks_outside: Vec<u64>,
    /// The seq of the last record that the program made in this session.
    pub(super) last_program_record: u64,
    /// Set on a fork that must not be used.
    pub(super) unusable: Option<UnusableFork>,
    /// Posts that the next commit removes from the inbox.
    pub(super) consumed: Vec<ConsumedPost>,
    /// Records of open questions that were read for the grants they offer.
    pub(super) read_questions: Vec<Record>,
    /// The replay cursor, while a run is replayed.
    pub(super) replay: Option<Replay>,
}

impl RunContext {
    /// The context of a run's session.
    pub(super) fn of_run(tree: Option<Arc<RunTree>>) -> Self {
        let shared = SharedContext { tree, in_run: true, ..SharedContext::default() };
        Self { shared: Some(Arc::new(shared)), own: Some(Box::default()) }
    }

    /// The context of a fork of this session.
    pub(super) fn inherited(&self) -> Self {
        let unusable = self.own().and_then(|own| own.unusable.clone());
        let own = self.is_in_run().then(|| Box::new(OwnContext { unusable, ..OwnContext::default() }));
        Self { shared: self.shared.clone(), own }
    }

    pub(super) fn shared(&self) -> Option<&SharedContext> {
        self.shared.as_deref()
    }

    pub(super) fn shared_mut(&mut self) -> &mut SharedContext {
        Arc::make_mut(self.shared.get_or_insert_default())
    }

    pub(super) fn own(&self) -> Option<&OwnContext> {
        self.own.as_deref()
    }

    pub(super) fn own_mut(&mut self) -> &mut OwnContext {
        self.own.get_or_insert_default()
    }

    pub(super) fn is_in_run(&self) -> bool {
        self.shared().is_some_and(|shared| shared.in_run)
    }

    /// The context for opening the same session again: everything except the replay cursor.
    pub(super) fn for_reopening(&self) -> Self {
        let forks_outside = self.own().map(|own| own.forks_outside.clone());
        let own = forks_outside.map(|forks_outside| Box::new(OwnContext { forks_outside, ..OwnContext::default() }));
        Self { shared: self.shared.clone(), own }
    }

    pub(super) fn tree(&self) -> Option<&Arc<RunTree>> {
        self.shared()?.tree.as_ref()
    }

    pub(super) fn on_divergence(&self) -> OnDivergence {
        self.shared().map(|shared| shared.on_divergence).unwrap_or_default()
    }

    pub(super) fn replay(&self) -> Option<&Replay> {
        self.own()?.replay.as_ref()
    }

    pub(super) fn replay_mut(&mut self) -> Option<&mut Replay> {
        self.own.as_mut()?.replay.as_mut()
    }

    pub(super) fn set_replay(&mut self, replay: Option<Replay>) {
        if replay.is_some() || self.own.is_some() {
            self.own_mut().replay = replay;
        }
    }

    pub(super) fn consumed(&self) -> &[ConsumedPost] {
        self.own().map(|own| own.consumed.as_slice()).unwrap_or_default()
    }

    pub(super) fn clear_consumed(&mut self) {
        if let Some(own) = &mut self.own {
            own.consumed.clear();
        }
    }

    /// Records that the program made the record at `seq`.
    pub(super) fn note_program_record(&mut self, seq: u64) {
        if let Some(own) = &mut self.own {
            own.last_program_record = seq;
        }
    }

    /// Fails if the session is a fork that cannot continue: the run diverged on it, or another process has locked it.
    pub(super) fn check(&self) -> Result<()> {
        match self.own().and_then(|own| own.unusable.as_ref()) {
            Some(UnusableFork::Diverged(diverged)) => Err(ErrorKind::Diverged(Box::new((**diverged).clone())).into()),
            Some(UnusableFork::Locked(session, holder)) => {
                Err(store::Error::Locked { session: *session, holder: holder.clone() }.into())
            }
            None => Ok(()),
        }
    }

    /// The ordinal of the next fork in the innermost step; `None` outside runs.
    pub(super) fn next_fork(&self) -> Option<u64> {
        let counted = self.own().filter(|_| self.is_in_run());
        counted.map(|own| own.forks.fetch_add(1, Ordering::AcqRel))
    }

    pub(super) fn step_entered(&mut self) {
        if let Some(own) = &mut self.own {
            own.forks_outside.push(std::mem::take(own.forks.get_mut()));
        }
    }

    pub(super) fn step_left(&mut self) {
        if let Some(own) = &mut self.own {
            *own.forks.get_mut() = own.forks_outside.pop().unwrap_or(0);
        }
    }
}

impl Session {
    /// Provides a value to the session's tools, which look it up by its type. Forks get it too.
    pub fn provide<T: Send + Sync + 'static>(&mut self, value: T) {
        self.provide_shared(Arc::new(value));
    }

    /// Like [`provide`](Self::provide), for a value that is shared with others.
    pub fn provide_shared<T: Send + Sync + 'static>(&mut self, value: Arc<T>) {
        let shared = self.0.run_context.shared_mut();
        shared.resources = std::mem::take(&mut shared.resources).with(value);
    }

    /// Provides all of `resources`. They replace values of the same types.
    pub fn provide_all(&mut self, resources: &Resources) {
        let shared = self.0.run_context.shared_mut();
        shared.resources = resources.over(&shared.resources);
    }

    /// Takes a value back that [`provide`](Self::provide) added. Forks made before keep it.
    pub fn withdraw<T: Send + Sync + 'static>(&mut self) {
        let shared = self.0.run_context.shared_mut();
        shared.resources = std::mem::take(&mut shared.resources).without::<T>();
    }

    /// The resources that the session's tools can use.
    pub fn resources(&self) -> Resources {
        self.0.run_context.shared().map(|shared| shared.resources.clone()).unwrap_or_default()
    }

    /// The token that cancels the work on this session and on forks made after this call.
    pub fn cancel_token(&mut self) -> Cancel {
        if let Some(token) = self.0.run_context.shared().and_then(|shared| shared.cancel.clone()) {
            return token;
        }
        self.0.run_context.shared_mut().cancel.get_or_insert_default().clone()
    }

    /// Cancels the work on this session when `token` is cancelled.
    pub fn stop_with(&mut self, token: Cancel) {
        self.0.run_context.shared_mut().cancel = Some(token);
    }
}
