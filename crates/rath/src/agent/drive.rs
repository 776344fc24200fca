//! The driver: asks the machine what is next and does it.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;

use rath_core::body::{Assistant, ModelFailed, StepEntered};
use rath_core::store::{BoxFuture, Change, Lookup, Post, Scan, Watcher};
use rath_core::{
    Actor, Cancel, Entered, Equipment, Error, ErrorKind, Kind, Next, RecordId, Result, Session, Time, Touches,
};

use super::asker::Asker;
use super::event::{Event, Listener, Patience, RunEvent};
use super::stop::Late;
use super::{Agent, Sealed};
use crate::Workshop;
use crate::policy::Policy;
use crate::recorder;
use crate::tools::{self, Desk};
use crate::workshop;

/// What the driver has at hand during one step.
pub(super) struct Bench {
    pub(super) sealed: Arc<Sealed>,
    /// Whether the step names another configuration, one whose prose differs.
    pub(super) reworded: bool,
    pub(super) equipment: Equipment,
    pub(super) cancel: Cancel,
    pub(super) listener: Option<Arc<Listener>>,
    /// Rules that hold for every agent at work here.
    pub(super) house: Option<Arc<Policy>>,
    pub(super) since: Time,
    /// Whether another process worked on the step before.
    pub(super) resumed: bool,
    /// The last turn of the model, while this process made it.
    pub(super) turn: Option<Assistant>,
    /// Where workspace tools work, once one was called.
    pub(super) desk: Option<Arc<Desk>>,
    /// Branches of calls that ended while others of their turn wait for a person, with the place of the call.
    pub(super) branches: Vec<(usize, Session)>,
    /// Branches of calls that were left waiting for a person, by call: only a resumed run finds its way back into them.
    pub(super) waiting: HashMap<String, Session>,
    /// Whether the time is over.
    pub(super) late: Arc<Late>,
    /// Tells of posts since the inbox was looked at last.
    pub(super) posts: Watcher,
}

impl Bench {
    /// Where sessions meet their files.
    pub(super) fn workshop(&self) -> Result<Arc<Workshop>> {
        self.equipment.get().map_err(|missing| ErrorKind::Workflow(missing.into()).into())
    }

    /// Tells the listener; without one, `event` is not made.
    pub(super) fn tell(&self, session: &Session, event: impl FnOnce() -> Event) {
        if let Some(listener) = &self.listener {
            listener.tell(RunEvent { session: session.id(), agent: self.sealed.name.clone(), what: event() });
        }
    }
}

impl Agent {
    pub(super) async fn drive(&self, mut session: Session, sealed: Arc<Sealed>, entered: Entered) -> Result<Session> {
        let me = session.actor().clone();
        session.act_as(Actor::agent(&self.name));
        let equipment = self.equipment.over(&session.equipment());
        let mut bench = Bench {
            reworded: entered == Entered::Again && is_reworded(&session, &sealed).await?,
            sealed,
            cancel: session.cancel_token().child(),
            listener: equipment.get::<Listener>().ok(),
            house: equipment.get::<Policy>().ok(),
            late: Arc::new(Late::under(equipment.get::<Late>().ok())),
            equipment,
            since: Time::now(),
            posts: session.store().watch(Change::Posts),
            resumed: is_begun(&session),
            turn: None,
            desk: None,
            branches: Vec::new(),
            waiting: HashMap::new(),
        };
        bench.tell(&session, || Event::Started);
        let done = Box::pin(self.work(&mut session, &mut bench)).await;
        if let Err(error) = &done
            && !error.leaves_the_run_open()
        {
            // Nobody comes back to them. If this fails, so does the record of the step, and resuming comes here again.
            let waiting = std::mem::take(&mut bench.waiting);
            let _ = super::calls::give_up(&mut session, waiting, &error.why_given_up()).await;
            if error.is_cancelled() {
                // The wish that was heard in the middle of a turn leaves the inbox with its record.
                let _ = session.take_posts().await;
            }
        }
        let cleared = self.clear(&mut session, &mut bench).await;
        session.act_as(me);
        match done.and(cleared) {
            Ok(()) => Ok(session),
            Err(error) => Err(error.with_sessions(vec![session])),
        }
    }

    /// Fails where the session came from elsewhere and the agent's tools would work in a place that nobody gave it here.
    async fn check_place(&self, session: &mut Session) -> Result<()> {
        let works_on_files = self.tools.iter().any(|tool| tool.spec().touches != Touches::Nothing);
        if !works_on_files || !session.state().arrived {
            return Ok(());
        }
        session.publish().await?;
        match rath_core::last_place(session.store(), session.head().point()).await? {
            Some(placed) => Err(ErrorKind::NoPlaceHere { session: session.id(), was: placed.in_words() }.into()),
            None => Ok(()),
        }
    }

    async fn work(&self, session: &mut Session, bench: &mut Bench) -> Result<()> {
        self.check_place(session).await?;
        loop {
            self.look_around(session, bench).await?;
            match session.state().next() {
                Some(Next::CallModel) => self.take_turn(session, bench).await?,
                Some(Next::ModelInDoubt) => {
                    let why = "the process that sent the request ended before it had an answer";
                    session.append(ModelFailed { retried: true, lost: true, ..ModelFailed::new(why) })?;
                }
                Some(Next::CallTools(calls)) => self.make_calls(session, bench, calls).await?,
                Some(Next::Done) => return Ok(()),
                Some(Next::Failed) => return Err(self.model_failure(session).await?),
                None => return Err(ErrorKind::NoStep(session.id()).into()),
            }
        }
    }

    /// What others want of the session, and whether the work is to stop.
    async fn look_around(&self, session: &mut Session, bench: &Bench) -> Result<()> {
        // What is posted from here on wakes whatever waits next.
        bench.posts.mark();
        if let Some(why) = session.take_posts().await? {
            return Err(ErrorKind::Cancelled { why }.into());
        }
        match bench.cancel.why() {
            Some(why) => Err(ErrorKind::Cancelled { why: why.to_string() }.into()),
            None => Ok(()),
        }
    }

    /// Waits for an answer, or says that the run waits.
    pub(super) async fn await_answer(&self, session: &mut Session, bench: &Bench) -> Result<()> {
        session.publish().await?;
        let left_waiting = ErrorKind::Waiting(session.id()).into();
        let open = |session: &Session| session.state().asks.iter().filter(|ask| !ask.inherited).count();
        // What is asked on a branch is answered there: nothing comes here.
        let is_asked_elsewhere = !bench.waiting.is_empty() || open(session) == 0;
        if bench.late.is_said() || is_asked_elsewhere && !bench.cancel.is_cancelled() {
            return Err(left_waiting);
        }
        let mut time = pin!(self.time_is_over(bench));
        let waiting = open(session);
        self.look_around(session, bench).await?;
        let asker = bench.equipment.get::<Asker>().ok();
        let patience = bench.equipment.get::<Patience>().map(|patience| *patience).unwrap_or_default();
        let mut asking: Option<BoxFuture<'static, Option<Post>>> = None;
        while open(session) == waiting {
            if let (None, Some(asker)) = (&asking, &asker) {
                asking = asker.next(session).await?.map(|question| asker.put(question));
            }
            if asking.is_none() && patience == Patience::Leave {
                return Err(left_waiting);
            }
            let answer = async {
                match &mut asking {
                    Some(asking) => asking.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = bench.cancel.cancelled() => {}
                () = &mut time => return Err(left_waiting),
                post = answer => {
                    asking = None;
                    if let Some(post) = post {
                        session.take_post(&post)?;
                    }
                }
                () = bench.late.said() => return Err(left_waiting),
                () = bench.posts.changed() => {}
            }
            if bench.late.is_said() {
                return Err(left_waiting);
            }
            self.look_around(session, bench).await?;
        }
        Ok(())
    }

    /// The turn of the model that this record holds: the last one, on this line or before the fork.
    pub(super) async fn turn(&self, session: &mut Session, bench: &mut Bench, record: RecordId) -> Result<Assistant> {
        if let Some(turn) = bench.turn.take() {
            return Ok(turn);
        }
        session.publish().await?;
        let found = session.store().get(Lookup::Id(record)).await?;
        let Some(record) = found.first() else { return Ok(Assistant::default()) };
        let point = record.point();
        record.body().map_err(|why| ErrorKind::Record { point, why }.into())
    }

    async fn model_failure(&self, session: &Session) -> Result<Error> {
        let scan = Scan::session(session.id(), 0, session.head().seq).kinds(&[Kind::ModelFailed]).backwards().limit(1);
        let found = session.store().scan(scan).await?.records;
        let failed = found.first().and_then(|record| record.body::<ModelFailed>().ok());
        let transient = failed.as_ref().is_some_and(|failed| failed.transient);
        let why = failed.map_or_else(|| "the record of it is gone".into(), |failed| failed.why);
        let model = self.model.as_ref().map_or_else(String::new, |model| model.name().into());
        Ok(ErrorKind::Model { model, why, transient }.into())
    }

    /// Stops what runs in the background.
    async fn clear(&self, session: &mut Session, bench: &mut Bench) -> Result<()> {
        let Some(desk) = bench.desk.take() else { return Ok(()) };
        let gone = desk.take_gone();
        if !gone.is_empty() {
            let words: Vec<_> = gone.iter().map(tools::in_words).collect();
            session.note(words.join(", "))?;
        }
        let stopped = desk.stop_all().await;
        if !stopped.is_empty() {
            session.note(format!("stopped what ran in the background: {}", stopped.join(", ")))?;
        }
        let busy = desk.busy().ids;
        match (session.state().workspace.clone(), bench.workshop()) {
            (Some(before), Ok(workshop)) if !busy.is_empty() => {
                let after = workshop.after_call(session, &before).await.map_err(of_workshop)?;
                let isolated = desk.sandbox().capabilities().isolated;
                recorder::changes_in_background(session, &busy, isolated, &after.version, after.changed)?;
                session.publish().await?;
                workshop.noted(session).map_err(of_workshop)
            }
            _ => Ok(()),
        }
    }
}

/// Whether the open step names another configuration than this.
async fn is_reworded(session: &Session, sealed: &Sealed) -> Result<bool> {
    let entered = session.view().await?.last_of(&Kind::StepEntered).await?;
    let step = entered.and_then(|entered| entered.record().body::<StepEntered>().ok());
    let config = step.and_then(|step| step.config);
    Ok(config.is_some_and(|config| config.digest != sealed.blob.reference.digest))
}

/// Whether a model was asked in the open step.
fn is_begun(session: &Session) -> bool {
    let run = session.state().steps.last().and_then(|step| step.run.as_ref());
    run.is_some_and(|run| run.turns > 0 || run.request.is_some())
}

/// An error of the workshop as one of the run.
pub(super) fn of_workshop(error: workshop::Error) -> Error {
    match error {
        workshop::Error::Session(error) => error,
        error => ErrorKind::Coded { code: error.code().into(), why: Box::new(error) }.into(),
    }
}
