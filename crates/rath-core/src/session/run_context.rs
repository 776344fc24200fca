//! What a session carries besides its records while a program has it. Forks share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Session;
use super::publish::Taken;
use super::resume::Replay;
use super::run::{OnDivergence, WorkflowName};
use super::tree::Tree;
use crate::blob::Blob;
use crate::cancel::Cancel;
use crate::equipment::Equipment;
use crate::error::{Diverged, ErrorKind, Result};
use crate::id::SessionId;
use crate::record::Record;
use crate::store::{self, Holder};

/// Small: every fork has one. What most sessions lack is boxed.
#[derive(Default)]
pub(super) struct Gear {
    shared: Option<Arc<Shared>>,
    own: Option<Box<Own>>,
}

/// What forks have too.
#[derive(Clone, Default)]
pub(super) struct Shared {
    /// The branches that a resumed run has stored.
    pub(super) tree: Option<Arc<Tree>>,
    /// Whether a run works on it: then forks are counted, to be found again.
    pub(super) in_run: bool,
    pub(super) on_divergence: OnDivergence,
    /// What the run is made of, where the text of a program says it.
    pub(super) program: Option<Blob>,
    /// The name and the version of the run's workflow.
    pub(super) workflow: Option<WorkflowName>,
    pub(super) equipment: Equipment,
    pub(super) cancel: Option<Cancel>,
}

/// Why a fork must not be used. The call that made it cannot fail, so its first use does.
#[derive(Clone)]
pub(super) enum Broken {
    /// The code that forks it is not the one that is recorded.
    Diverged(Arc<Diverged>),
    /// It was made before, and another process works on it.
    Held(SessionId, Holder),
}

/// What only this line has.
#[derive(Default)]
pub(super) struct Own {
    /// Forks made in the innermost step.
    forks: AtomicU64,
    /// Forks made in the steps around the innermost one.
    forks_outside: Vec<u64>,
    /// The last record that the program made on this line.
    pub(super) made: u64,
    /// Why it must not be used.
    pub(super) broken: Option<Broken>,
    /// Posts that the next commit takes out of the inbox.
    pub(super) taken: Vec<Taken>,
    /// Records of open questions that were read for what they offer.
    pub(super) offers: Vec<Record>,
    /// What lies ahead while a run is resumed.
    pub(super) replay: Option<Replay>,
}

impl Gear {
    /// That of a run.
    pub(super) fn of_run(tree: Option<Arc<Tree>>) -> Self {
        let shared = Shared { tree, in_run: true, ..Shared::default() };
        Self { shared: Some(Arc::new(shared)), own: Some(Box::default()) }
    }

    /// What a fork carries.
    pub(super) fn inherited(&self) -> Self {
        let broken = self.own().and_then(|own| own.broken.clone());
        let own = self.is_in_run().then(|| Box::new(Own { broken, ..Own::default() }));
        Self { shared: self.shared.clone(), own }
    }

    pub(super) fn shared(&self) -> Option<&Shared> {
        self.shared.as_deref()
    }

    pub(super) fn shared_mut(&mut self) -> &mut Shared {
        Arc::make_mut(self.shared.get_or_insert_default())
    }

    pub(super) fn own(&self) -> Option<&Own> {
        self.own.as_deref()
    }

    pub(super) fn own_mut(&mut self) -> &mut Own {
        self.own.get_or_insert_default()
    }

    pub(super) fn is_in_run(&self) -> bool {
        self.shared().is_some_and(|shared| shared.in_run)
    }

    /// What is put on the same line when it is opened again: all but what lies ahead of a cursor.
    pub(super) fn kept(&self) -> Self {
        let forks_outside = self.own().map(|own| own.forks_outside.clone());
        let own = forks_outside.map(|forks_outside| Box::new(Own { forks_outside, ..Own::default() }));
        Self { shared: self.shared.clone(), own }
    }

    pub(super) fn tree(&self) -> Option<&Arc<Tree>> {
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

    pub(super) fn taken(&self) -> &[Taken] {
        self.own().map(|own| own.taken.as_slice()).unwrap_or_default()
    }

    pub(super) fn forget_taken(&mut self) {
        if let Some(own) = &mut self.own {
            own.taken.clear();
        }
    }

    /// The program made this record.
    pub(super) fn made(&mut self, seq: u64) {
        if let Some(own) = &mut self.own {
            own.made = seq;
        }
    }

    /// Fails on a fork that must not be used.
    pub(super) fn check(&self) -> Result<()> {
        match self.own().and_then(|own| own.broken.as_ref()) {
            Some(Broken::Diverged(diverged)) => Err(ErrorKind::Diverged(Box::new((**diverged).clone())).into()),
            Some(Broken::Held(session, holder)) => {
                Err(store::Error::Held { session: *session, holder: holder.clone() }.into())
            }
            None => Ok(()),
        }
    }

    /// Which fork of the innermost step the next one is, where a run counts them.
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
    /// Gives the session something that its tools may use, by type. Forks have it too.
    pub fn equip<T: Send + Sync + 'static>(&mut self, value: T) {
        self.equip_shared(Arc::new(value));
    }

    /// As [`equip`](Self::equip), with something that others have too.
    pub fn equip_shared<T: Send + Sync + 'static>(&mut self, value: Arc<T>) {
        let shared = self.0.gear.shared_mut();
        shared.equipment = std::mem::take(&mut shared.equipment).with(value);
    }

    /// What the session's tools may use.
    pub fn equipment(&self) -> Equipment {
        self.0.gear.shared().map(|shared| shared.equipment.clone()).unwrap_or_default()
    }

    /// The token that stops the work on this session and on forks made from here on.
    pub fn cancel_token(&mut self) -> Cancel {
        if let Some(token) = self.0.gear.shared().and_then(|shared| shared.cancel.clone()) {
            return token;
        }
        self.0.gear.shared_mut().cancel.get_or_insert_default().clone()
    }

    /// Has the work on this session stop when `token` says so.
    pub fn stop_with(&mut self, token: Cancel) {
        self.0.gear.shared_mut().cancel = Some(token);
    }
}
