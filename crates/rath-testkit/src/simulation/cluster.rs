//! The simulated processes, the store, and the messages between them. Runs one step at a time.

use std::rc::Rc;

use rath_core::protocol::PostStatus;
use rath_core::store::Error;

use super::disk::Disk;
use super::entry::{Content, Session, number};
use super::holder::{Holder, LeasedSession, Progress};
use super::injected_bug::{BuggyRules, InjectedBug};
use super::message::{Answer, Request, describe, describe_answer};
use super::mirror::Mirror;
use super::oracle::{Checked, Oracle, Violation};
use super::step::{Cut, Step};
use super::tally::Tally;

const HOLDERS: usize = 3;
const SESSIONS: usize = 6;
const POSTS: usize = 6;

/// The state of the simulation.
pub(super) struct Cluster {
    play: BuggyRules,
    disk: Disk,
    oracle: Oracle,
    holders: Vec<Holder>,
    /// For every process so far, whether it counts as alive.
    alive: Vec<bool>,
    requests: Vec<Request>,
    answers: Vec<Answer>,
    /// The number of sessions.
    sessions: usize,
    salt: u64,
    /// A real store that gets the same requests.
    pub(super) mirror: Option<Mirror>,
    pub(super) tally: Tally,
    /// A description of the steps, if requested.
    pub(super) trace: Option<Vec<String>>,
}

impl Cluster {
    pub(super) fn new(bug: Option<InjectedBug>, traced: bool) -> Self {
        let play = BuggyRules(bug);
        Self {
            play,
            disk: Disk::new(play, SESSIONS, POSTS),
            oracle: Oracle::new(SESSIONS, (0..POSTS).map(|post| post % 3).collect()),
            holders: (0..HOLDERS).map(Holder::new).collect(),
            alive: vec![true; HOLDERS],
            requests: Vec::new(),
            answers: Vec::new(),
            sessions: 0,
            salt: 0,
            mirror: None,
            tally: Tally::default(),
            trace: traced.then(Vec::new),
        }
    }

    fn log(&mut self, words: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(words());
        }
    }

    fn salt(&mut self) -> u64 {
        self.salt += 1;
        self.salt
    }

    /// Runs one step and checks the guarantees.
    pub(super) fn step(&mut self, step: Step) -> Checked {
        match step {
            Step::Work { first, count, again, cut } => self.work(first, count, again, cut),
            Step::Deliver { first, count, lost } => {
                self.deliver(first, count, lost);
                Ok(())
            }
            Step::Post { post } => {
                let post = usize::from(post) % POSTS;
                self.log(|| format!("post {post} is sent"));
                self.requests.push(Request::Post(post));
                Ok(())
            }
            Step::Erase { session, seq } => {
                if self.sessions > 0 {
                    let (session, seq) = (usize::from(session) % self.sessions, usize::from(seq) % 8);
                    self.log(|| format!("the erasure of record {seq} of session {session} is requested"));
                    self.requests.push(Request::Erase { session, seq });
                }
                Ok(())
            }
            Step::Crash { holder } => {
                self.crash(usize::from(holder) % HOLDERS);
                Ok(())
            }
            Step::Stall { holder } => {
                let holder = &mut self.holders[usize::from(holder) % HOLDERS];
                holder.stalled = true;
                let process = holder.process;
                self.alive[process] = false;
                self.log(|| format!("process {process} stalls and is considered dead"));
                Ok(())
            }
            Step::Wake { holder } => {
                let holder = &mut self.holders[usize::from(holder) % HOLDERS];
                if std::mem::take(&mut holder.stalled) {
                    let process = holder.process;
                    self.log(|| format!("process {process} resumes"));
                }
                Ok(())
            }
            Step::Begin { holder } => {
                self.begin(holder, None);
                Ok(())
            }
            Step::Ask { holder, session } => {
                self.ask(holder, session);
                Ok(())
            }
            Step::PublishAll { holder } => {
                if let Some(at) = self.awake(holder) {
                    let sessions: Vec<Session> = self.active(at).collect();
                    self.publish(at, &sessions, false);
                }
                Ok(())
            }
            Step::Fork { holder, session }
            | Step::Write { holder, session }
            | Step::Plan { holder, session }
            | Step::Act { holder, session }
            | Step::TakePosts { holder, session }
            | Step::Publish { holder, session, .. }
            | Step::Close { holder, session }
            | Step::Leave { holder, session } => match self.pick_session(holder, session) {
                Some((at, session)) => self.use_session(step, at, session),
                // A process without a session creates one first.
                None => {
                    self.begin(holder, None);
                    Ok(())
                }
            },
        }
    }

    /// Checks everything after the last step.
    pub(super) fn end(&self) -> Checked {
        self.oracle.check_all(&self.disk)?;
        self.oracle.check_erased(&self.disk)?;
        match &self.mirror {
            Some(mirror) => mirror.compare(&self.disk, &self.oracle.addressed),
            None => Ok(()),
        }
    }

    fn awake(&self, holder: u8) -> Option<usize> {
        let at = usize::from(holder) % HOLDERS;
        (!self.holders[at].stalled).then_some(at)
    }

    fn active(&self, at: usize) -> impl Iterator<Item = Session> {
        self.holders[at].sessions.iter().filter(|held| !held.released).map(|held| held.session)
    }

    fn pick_session(&self, holder: u8, session: u8) -> Option<(usize, Session)> {
        let at = self.awake(holder)?;
        let many = self.active(at).count();
        let session = self.active(at).nth(usize::from(session).checked_rem(many)?)?;
        Some((at, session))
    }

    fn begin(&mut self, holder: u8, origin: Option<(Session, u64, rath_core::RecordId)>) {
        let Some(at) = self.awake(holder) else { return };
        let (session, process) = (self.sessions, self.holders[at].process);
        if session == SESSIONS || (origin.is_none() && session > 0 && self.active(at).count() > 2) {
            return;
        }
        self.sessions += 1;
        let salt = self.salt();
        self.holders[at].sessions.push(LeasedSession::created(session, origin, salt));
        self.oracle.begin(session, process);
        self.log(|| match origin {
            Some((from, seq, _)) => format!("process {process} forks session {session} from session {from}@{seq}"),
            None => format!("process {process} creates session {session}"),
        });
    }

    fn ask(&mut self, holder: u8, session: u8) {
        let Some(at) = self.awake(holder) else { return };
        let Some(session) = usize::from(session).checked_rem(self.sessions) else { return };
        if self.active(at).any(|held| held == session) {
            return;
        }
        let process = self.holders[at].process;
        self.log(|| format!("process {process} requests the lease of session {session}"));
        self.requests.push(Request::Lease { session, process });
    }

    fn publish(&mut self, at: usize, sessions: &[Session], ahead: bool) {
        let batch = self.holders[at].batch(sessions, ahead, self.play.has(InjectedBug::ForkOmitsPosts));
        if batch.parts.is_empty() {
            return;
        }
        if let Some(mirror) = &mut self.mirror {
            mirror.learn(&batch);
        }
        self.log(|| format!("process {} sends {}", batch.process, describe(&batch)));
        self.requests.push(Request::Commit(Rc::new(batch)));
    }

    fn use_session(&mut self, step: Step, at: usize, session: Session) -> Checked {
        let salt = self.salt();
        let process = self.holders[at].process;
        let Some(held) = self.holders[at].held(session) else { return Ok(()) };
        let full = held.is_full();
        match step {
            Step::Fork { .. } => {
                let origin = held.head();
                self.begin(at as u8, origin);
            }
            Step::Write { .. } if !full => {
                held.append(salt, Content::Note);
                self.log(|| format!("process {process} appends to session {session}"));
            }
            Step::Plan { .. } if !full && held.effect.is_none() => {
                held.plan(salt);
                self.log(|| format!("process {process} records the intent of an effect in session {session}"));
            }
            Step::Close { .. } if !full => {
                held.append(salt, Content::Closed);
                self.log(|| format!("process {process} closes session {session}"));
            }
            Step::Act { .. } if !full => return self.act(at, session, salt),
            Step::TakePosts { .. } if !full => self.consume_posts(at, session),
            Step::Publish { ahead, .. } => self.publish(at, &[session], ahead),
            Step::Leave { .. } => {
                held.released = true;
                let fence = held.fence;
                self.oracle.leave(session, process);
                self.log(|| format!("process {process} releases session {session}"));
                self.requests.push(Request::Release { session, process, fence });
            }
            _ => {}
        }
        Ok(())
    }

    /// Performs a side effect whose intent was acknowledged. An effect that another process intended is not performed,
    /// because it may have happened already.
    fn act(&mut self, at: usize, session: Session, salt: u64) -> Checked {
        let play = self.play;
        let holder = &mut self.holders[at];
        let (process, lost) = (holder.process, holder.lost.contains(&session));
        let Some(held) = holder.held(session) else { return Ok(()) };
        let Some((effect, progress)) = held.effect else { return Ok(()) };
        let (intent, may, own) = match progress {
            Progress::Intended { at } => {
                (at, held.acknowledged() > at || (play.has(InjectedBug::EffectBeforeAnswer) && held.was_sent(at)), true)
            }
            Progress::Inherited { at } => (at, true, play.has(InjectedBug::EffectOfOtherProcess)),
        };
        if !may {
            return Ok(());
        }
        held.effect = None;
        if !own {
            held.append(salt, Content::Unknown(effect));
            self.log(|| {
                format!(
                    "process {process} records that the outcome of effect {} of session {session} is unknown",
                    effect.nth
                )
            });
            return Ok(());
        }
        held.append(salt, Content::Done(effect));
        self.tally.effects += 1;
        self.log(|| format!("process {process} performs effect {} of session {session}", effect.nth));
        self.oracle.act(effect, intent, &self.disk, lost)
    }

    fn consume_posts(&mut self, at: usize, session: Session) {
        for post in 0..POSTS {
            let here = self.oracle.addressed[post] == session && self.disk.posts[post] == PostStatus::Waiting;
            let salt = self.salt();
            let holder = &mut self.holders[at];
            let process = holder.process;
            let Some(held) = holder.held(session).filter(|held| here && !held.has_recorded(post) && !held.is_full())
            else {
                continue;
            };
            held.record_post(salt, post);
            self.log(|| format!("process {process} records post {post} in session {session}"));
        }
    }

    fn crash(&mut self, at: usize) {
        let process = self.holders[at].process;
        self.alive[process] = false;
        self.alive.push(true);
        let next = self.alive.len() - 1;
        self.holders[at] = Holder::new(next);
        self.log(|| format!("process {process} crashes; process {next} replaces it"));
    }

    /// The store handles some requests in any order. One of them may be delivered again later.
    fn work(&mut self, first: u8, count: u8, again: bool, cut: Cut) -> Checked {
        let mut answers = Vec::new();
        let mut must_last = false;
        let mut touched = 0_u32;
        for n in 0..=usize::from(count) % 4 {
            let Some(at) = (usize::from(first) + n).checked_rem(self.requests.len()) else { break };
            let request = self.requests.swap_remove(at);
            if again && n == 0 {
                self.requests.push(request.clone());
            }
            must_last |= !matches!(request, Request::Lease { .. } | Request::Release { .. });
            let answer = self.serve(&request, &mut touched);
            self.log_request(&request, answer.as_ref().ok());
            let answer = answer?;
            answers.extend(answer);
        }
        if self.play.has(InjectedBug::AnswerBeforeSync) {
            for answer in std::mem::take(&mut answers) {
                self.promise(&answer)?;
                self.answers.push(answer);
            }
        }
        if let Cut::BeforeSync { kept } = cut {
            return self.lose_power(usize::from(kept));
        }
        // Leases end with their process and need no sync, as in the embedded store.
        if must_last {
            self.disk.sync();
        }
        for session in (0..self.sessions).filter(|session| touched & (1 << session) != 0) {
            self.oracle.check(session, &self.disk)?;
        }
        if cut == Cut::AfterSync {
            return self.lose_power(0);
        }
        for answer in answers {
            self.promise(&answer)?;
            self.answers.push(answer);
        }
        match cut {
            Cut::AfterAnswers => self.lose_power(0),
            _ => Ok(()),
        }
    }

    /// Simulates a power cut: all processes end, and all messages are lost.
    fn lose_power(&mut self, kept: usize) -> Checked {
        self.tally.power_cuts += 1;
        self.disk.lose_power(kept);
        self.requests.clear();
        self.answers.clear();
        self.log(|| "the power fails".into());
        (0..HOLDERS).for_each(|at| self.crash(at));
        self.end()
    }

    fn serve(&mut self, request: &Request, touched: &mut u32) -> Result<Option<Answer>, Violation> {
        Ok(match request {
            Request::Commit(batch) => {
                batch.parts.iter().for_each(|part| *touched |= 1 << part.session);
                self.tally.commits += 1;
                let done = self.disk.commit(&batch.parts, &batch.consumed);
                if let Some(mirror) = &mut self.mirror {
                    mirror.commit(batch, &done)?;
                }
                match done {
                    Ok(()) => Some(Answer::Committed(batch.clone())),
                    Err(Error::LeaseLost { session }) => {
                        self.tally.fenced += 1;
                        Some(Answer::Lost(batch.clone(), number(session)))
                    }
                    Err(Error::Conflict { .. } | Error::NotFound(_)) if batch.ahead => {
                        self.tally.early += 1;
                        Some(Answer::TooEarly(batch.clone()))
                    }
                    Err(Error::Closed { .. }) => None,
                    Err(other) => {
                        return Err(Violation(format!(
                            "process {} repeats all that is not acknowledged: {other}",
                            batch.process
                        )));
                    }
                }
            }
            Request::Lease { session, process } => {
                let alive = &self.alive;
                let before = self.disk.stored(*session).map(|stored| stored.fence);
                let granted = self.disk.lease(*session, *process, |other| alive[other]);
                if let Some(mirror) = &self.mirror {
                    mirror.lease(*session, before, &granted)?;
                }
                match granted {
                    Ok(Some(fence)) => {
                        self.tally.grants += 1;
                        self.oracle.grant(*session, *process, |other| alive[other])?;
                        Some(Answer::Granted { session: *session, process: *process, fence })
                    }
                    _ => None,
                }
            }
            Request::Release { session, process, fence } => {
                self.disk.release(*session, *process, *fence);
                if let Some(mirror) = &self.mirror {
                    mirror.release(*session, *fence);
                }
                None
            }
            Request::Post(post) => {
                let session = self.oracle.addressed[*post];
                *touched |= 1 << session;
                let kept = self.disk.post(*post, session).is_ok();
                if let Some(mirror) = &self.mirror {
                    mirror.post(*post, session, kept)?;
                }
                kept.then_some(Answer::Accepted(*post))
            }
            Request::Erase { session, seq } => {
                *touched |= 1 << session;
                let erased = self.disk.erase(*session, *seq);
                if let Some(mirror) = self.mirror.as_ref().filter(|_| erased) {
                    mirror.erase(*session, *seq, &self.disk)?;
                }
                erased.then_some(Answer::Erased { session: *session, seq: *seq })
            }
        })
    }

    /// Tells the oracle about an answer when it is sent, and checks it.
    fn promise(&mut self, answer: &Answer) -> Checked {
        match answer {
            Answer::Committed(batch) => {
                for part in &batch.parts {
                    self.tally.records += part.entries.len() as u64;
                    self.oracle.acknowledge(&part.entries, &self.disk)?;
                    self.oracle.check(part.session, &self.disk)?;
                }
                self.oracle.check_erased(&self.disk)
            }
            Answer::Accepted(post) => {
                self.tally.posts += 1;
                self.oracle.accept(*post);
                Ok(())
            }
            Answer::Erased { session, seq } => {
                self.tally.erased += 1;
                self.oracle.erase(*session, *seq);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn deliver(&mut self, first: u8, count: u8, lost: bool) {
        for n in 0..=usize::from(count) % 3 {
            let Some(at) = (usize::from(first) + n).checked_rem(self.answers.len()) else { return };
            let answer = self.answers.swap_remove(at);
            let process = match &answer {
                Answer::Committed(batch) | Answer::Lost(batch, _) | Answer::TooEarly(batch) => batch.process,
                Answer::Granted { process, .. } => *process,
                Answer::Accepted(_) | Answer::Erased { .. } => continue,
            };
            let Some(at) = self.holders.iter().position(|holder| holder.process == process) else { continue };
            if self.holders[at].stalled {
                self.answers.push(answer);
                continue;
            }
            if lost {
                self.log(|| format!("an answer to process {process} is lost: {}", describe_answer(Some(&answer))));
                continue;
            }
            self.log(|| format!("process {process} receives: {}", describe_answer(Some(&answer))));
            self.receive(at, answer);
        }
    }

    fn receive(&mut self, at: usize, answer: Answer) {
        let holder = &mut self.holders[at];
        let process = holder.process;
        match answer {
            Answer::Committed(batch) => {
                for (session, fence) in holder.settle(&batch) {
                    self.requests.push(Request::Release { session, process, fence });
                }
            }
            Answer::Lost(batch, session) => {
                let fence = batch.parts.iter().find(|part| part.session == session).map(|part| part.fence);
                // The process may have a new lease of the session by now.
                if holder.held(session).is_some_and(|held| Some(held.fence) == fence) {
                    holder.lost.insert(session);
                    if !self.play.has(InjectedBug::EffectAfterLeaseLost) {
                        holder.drop_session(session);
                    }
                }
                holder.resend_all();
            }
            Answer::TooEarly(_) => holder.resend_all(),
            Answer::Granted { session, fence, .. } => {
                let known = holder.held(session).is_some_and(|held| held.fence >= fence);
                if !known && let Some(stored) = self.disk.stored(session) {
                    self.oracle.mark_acknowledged(session, stored.entries.len() as u64 - 1, &self.disk);
                    holder.drop_session(session);
                    holder.lost.remove(&session);
                    holder.sessions.push(LeasedSession::opened(session, fence, stored));
                }
            }
            Answer::Accepted(_) | Answer::Erased { .. } => {}
        }
    }

    fn log_request(&mut self, request: &Request, answer: Option<&Option<Answer>>) {
        if self.trace.is_none() {
            return;
        }
        let what = request.describe();
        self.log(|| match answer {
            Some(answer) => format!("the store handles {what}: {}", describe_answer(answer.as_ref())),
            None => format!("the store handles {what}"),
        });
    }
}
