//! Processes, a store and what is on its way between them, one step after another.

use std::rc::Rc;

use rath_core::protocol::Standing;
use rath_core::store::Error;

use super::disk::Disk;
use super::entry::{Session, What, number};
use super::holder::{Held, Holder, Progress};
use super::mirror::Mirror;
use super::planted::{Planted, Play};
use super::step::{Cut, Step};
use super::tally::Tally;
use super::wire::{Answer, Request, heard, in_words};
use super::witness::{Checked, Violation, Witness};

const HOLDERS: usize = 3;
const SESSIONS: usize = 6;
const POSTS: usize = 6;

/// All there is.
pub(super) struct Scene {
    play: Play,
    disk: Disk,
    witness: Witness,
    holders: Vec<Holder>,
    /// Of every process that ever was: whether it is taken to live.
    lives: Vec<bool>,
    requests: Vec<Request>,
    answers: Vec<Answer>,
    /// How many sessions there are.
    sessions: usize,
    salt: u64,
    /// A real store that is asked the same.
    pub(super) mirror: Option<Mirror>,
    pub(super) tally: Tally,
    /// What happened, in words, if somebody wants to read it.
    pub(super) trace: Option<Vec<String>>,
}

impl Scene {
    pub(super) fn new(planted: Option<Planted>, traced: bool) -> Self {
        let play = Play(planted);
        Self {
            play,
            disk: Disk::new(play, SESSIONS, POSTS),
            witness: Witness::new(SESSIONS, (0..POSTS).map(|post| post % 3).collect()),
            holders: (0..HOLDERS).map(Holder::new).collect(),
            lives: vec![true; HOLDERS],
            requests: Vec::new(),
            answers: Vec::new(),
            sessions: 0,
            salt: 0,
            mirror: None,
            tally: Tally::default(),
            trace: traced.then(Vec::new),
        }
    }

    fn say(&mut self, words: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(words());
        }
    }

    fn salt(&mut self) -> u64 {
        self.salt += 1;
        self.salt
    }

    /// Does one step and looks whether all still holds.
    pub(super) fn step(&mut self, step: Step) -> Checked {
        match step {
            Step::Work { first, count, again, cut } => self.work(first, count, again, cut),
            Step::Hear { first, count, lost } => {
                self.hear(first, count, lost);
                Ok(())
            }
            Step::Post { post } => {
                let post = usize::from(post) % POSTS;
                self.say(|| format!("somebody sends post {post}"));
                self.requests.push(Request::Post(post));
                Ok(())
            }
            Step::Erase { session, seq } => {
                if self.sessions > 0 {
                    let (session, seq) = (usize::from(session) % self.sessions, usize::from(seq) % 8);
                    self.say(|| format!("somebody erases record {seq} of session {session}"));
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
                let life = holder.life;
                self.lives[life] = false;
                self.say(|| format!("process {life} stops and is taken for dead"));
                Ok(())
            }
            Step::Wake { holder } => {
                let holder = &mut self.holders[usize::from(holder) % HOLDERS];
                if std::mem::take(&mut holder.stalled) {
                    let life = holder.life;
                    self.say(|| format!("process {life} goes on"));
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
                    let lines: Vec<Session> = self.active(at).collect();
                    self.publish(at, &lines, false);
                }
                Ok(())
            }
            Step::Fork { holder, line }
            | Step::Write { holder, line }
            | Step::Plan { holder, line }
            | Step::Act { holder, line }
            | Step::TakePosts { holder, line }
            | Step::Publish { holder, line, .. }
            | Step::Close { holder, line }
            | Step::Leave { holder, line } => match self.line(holder, line) {
                Some((at, session)) => self.use_line(step, at, session),
                // The first thing that anybody does is to make a session.
                None => {
                    self.begin(holder, None);
                    Ok(())
                }
            },
        }
    }

    /// After the last step everything is looked at.
    pub(super) fn end(&self) -> Checked {
        self.witness.check_all(&self.disk)?;
        self.witness.check_erased(&self.disk)?;
        match &self.mirror {
            Some(mirror) => mirror.compare(&self.disk, &self.witness.addressed),
            None => Ok(()),
        }
    }

    fn awake(&self, holder: u8) -> Option<usize> {
        let at = usize::from(holder) % HOLDERS;
        (!self.holders[at].stalled).then_some(at)
    }

    fn active(&self, at: usize) -> impl Iterator<Item = Session> {
        self.holders[at].lines.iter().filter(|held| !held.left).map(|held| held.session)
    }

    fn line(&self, holder: u8, line: u8) -> Option<(usize, Session)> {
        let at = self.awake(holder)?;
        let many = self.active(at).count();
        let session = self.active(at).nth(usize::from(line).checked_rem(many)?)?;
        Some((at, session))
    }

    fn begin(&mut self, holder: u8, origin: Option<(Session, u64, rath_core::RecordId)>) {
        let Some(at) = self.awake(holder) else { return };
        let (session, life) = (self.sessions, self.holders[at].life);
        if session == SESSIONS || (origin.is_none() && session > 0 && self.active(at).count() > 2) {
            return;
        }
        self.sessions += 1;
        let salt = self.salt();
        self.holders[at].lines.push(Held::begun(session, origin, salt));
        self.witness.begin(session, life);
        self.say(|| match origin {
            Some((from, seq, _)) => format!("process {life} forks session {session} off session {from}@{seq}"),
            None => format!("process {life} makes session {session}"),
        });
    }

    fn ask(&mut self, holder: u8, session: u8) {
        let Some(at) = self.awake(holder) else { return };
        let Some(session) = usize::from(session).checked_rem(self.sessions) else { return };
        if self.active(at).any(|held| held == session) {
            return;
        }
        let life = self.holders[at].life;
        self.say(|| format!("process {life} asks for session {session}"));
        self.requests.push(Request::Lease { session, life });
    }

    fn publish(&mut self, at: usize, lines: &[Session], ahead: bool) {
        let batch = self.holders[at].batch(lines, ahead, self.play.has(Planted::ForkLeavesPosts));
        if batch.parts.is_empty() {
            return;
        }
        if let Some(mirror) = &mut self.mirror {
            mirror.learn(&batch);
        }
        self.say(|| format!("process {} sends {}", batch.life, in_words(&batch)));
        self.requests.push(Request::Commit(Rc::new(batch)));
    }

    fn use_line(&mut self, step: Step, at: usize, session: Session) -> Checked {
        let salt = self.salt();
        let life = self.holders[at].life;
        let Some(held) = self.holders[at].held(session) else { return Ok(()) };
        let full = held.is_full();
        match step {
            Step::Fork { .. } => {
                let origin = held.head();
                self.begin(at as u8, origin);
            }
            Step::Write { .. } if !full => {
                held.append(salt, What::Note);
                self.say(|| format!("process {life} appends to session {session}"));
            }
            Step::Plan { .. } if !full && held.effect.is_none() => {
                held.plan(salt);
                self.say(|| format!("process {life} intends an effect in session {session}"));
            }
            Step::Close { .. } if !full => {
                held.append(salt, What::Closed);
                self.say(|| format!("process {life} closes session {session}"));
            }
            Step::Act { .. } if !full => return self.act(at, session, salt),
            Step::TakePosts { .. } if !full => self.take_posts(at, session),
            Step::Publish { ahead, .. } => self.publish(at, &[session], ahead),
            Step::Leave { .. } => {
                held.left = true;
                let fence = held.fence;
                self.witness.leave(session, life);
                self.say(|| format!("process {life} gives session {session} back"));
                self.requests.push(Request::Release { session, life, fence });
            }
            _ => {}
        }
        Ok(())
    }

    /// Does an effect whose intent was acknowledged. One that another process intended is not done: it may have been.
    fn act(&mut self, at: usize, session: Session, salt: u64) -> Checked {
        let play = self.play;
        let holder = &mut self.holders[at];
        let (life, lost) = (holder.life, holder.lost.contains(&session));
        let Some(held) = holder.held(session) else { return Ok(()) };
        let Some((effect, progress)) = held.effect else { return Ok(()) };
        let (intent, may, own) = match progress {
            Progress::Intended { at } => {
                (at, held.acknowledged() > at || (play.has(Planted::ActsBeforeAnswer) && held.was_sent(at)), true)
            }
            Progress::Inherited { at } => (at, true, play.has(Planted::ActsForOthers)),
        };
        if !may {
            return Ok(());
        }
        held.effect = None;
        if !own {
            held.append(salt, What::Unknown(effect));
            self.say(|| {
                format!("process {life} notes that nobody knows about effect {} of session {session}", effect.nth)
            });
            return Ok(());
        }
        held.append(salt, What::Done(effect));
        self.tally.effects += 1;
        self.say(|| format!("process {life} does effect {} of session {session}", effect.nth));
        self.witness.act(effect, intent, &self.disk, lost)
    }

    fn take_posts(&mut self, at: usize, session: Session) {
        for post in 0..POSTS {
            let here = self.witness.addressed[post] == session && self.disk.posts[post] == Standing::Waiting;
            let salt = self.salt();
            let holder = &mut self.holders[at];
            let life = holder.life;
            let Some(held) = holder.held(session).filter(|held| here && !held.says(post) && !held.is_full()) else {
                continue;
            };
            held.say(salt, post);
            self.say(|| format!("process {life} makes a record of post {post} in session {session}"));
        }
    }

    fn crash(&mut self, at: usize) {
        let life = self.holders[at].life;
        self.lives[life] = false;
        self.lives.push(true);
        let next = self.lives.len() - 1;
        self.holders[at] = Holder::new(next);
        self.say(|| format!("process {life} dies; process {next} takes its place"));
    }

    /// The store takes some requests, in any order; a copy of one may come again later.
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
            self.say_taken(&request, answer.as_ref().ok());
            let answer = answer?;
            answers.extend(answer);
        }
        if self.play.has(Planted::AnsweredBeforeSync) {
            for answer in std::mem::take(&mut answers) {
                self.promise(&answer)?;
                self.answers.push(answer);
            }
        }
        if let Cut::BeforeSync { kept } = cut {
            return self.lose_power(usize::from(kept));
        }
        // As the embedded store does it: what dies with its process need not be synced.
        if must_last {
            self.disk.sync();
        }
        for session in (0..self.sessions).filter(|session| touched & (1 << session) != 0) {
            self.witness.check(session, &self.disk)?;
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

    /// All processes die with the machine, and what was on its way with them.
    fn lose_power(&mut self, kept: usize) -> Checked {
        self.tally.power_cuts += 1;
        self.disk.lose_power(kept);
        self.requests.clear();
        self.answers.clear();
        self.say(|| "the power fails".into());
        (0..HOLDERS).for_each(|at| self.crash(at));
        self.end()
    }

    fn serve(&mut self, request: &Request, touched: &mut u32) -> Result<Option<Answer>, Violation> {
        Ok(match request {
            Request::Commit(batch) => {
                batch.parts.iter().for_each(|part| *touched |= 1 << part.session);
                self.tally.commits += 1;
                let done = self.disk.commit(&batch.parts, &batch.taken);
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
                            batch.life
                        )));
                    }
                }
            }
            Request::Lease { session, life } => {
                let lives = &self.lives;
                let before = self.disk.stored(*session).map(|line| line.fence);
                let granted = self.disk.lease(*session, *life, |other| lives[other]);
                if let Some(mirror) = &self.mirror {
                    mirror.lease(*session, before, &granted)?;
                }
                match granted {
                    Ok(Some(fence)) => {
                        self.tally.grants += 1;
                        self.witness.grant(*session, *life, |other| lives[other])?;
                        Some(Answer::Granted { session: *session, life: *life, fence })
                    }
                    _ => None,
                }
            }
            Request::Release { session, life, fence } => {
                self.disk.release(*session, *life, *fence);
                if let Some(mirror) = &self.mirror {
                    mirror.release(*session, *fence);
                }
                None
            }
            Request::Post(post) => {
                let session = self.witness.addressed[*post];
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

    /// What an answer says must be so from the moment it leaves.
    fn promise(&mut self, answer: &Answer) -> Checked {
        match answer {
            Answer::Committed(batch) => {
                for part in &batch.parts {
                    self.tally.records += part.entries.len() as u64;
                    self.witness.acknowledge(&part.entries, &self.disk)?;
                    self.witness.check(part.session, &self.disk)?;
                }
                self.witness.check_erased(&self.disk)
            }
            Answer::Accepted(post) => {
                self.tally.posts += 1;
                self.witness.accept(*post);
                Ok(())
            }
            Answer::Erased { session, seq } => {
                self.tally.erased += 1;
                self.witness.erase(*session, *seq);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn hear(&mut self, first: u8, count: u8, lost: bool) {
        for n in 0..=usize::from(count) % 3 {
            let Some(at) = (usize::from(first) + n).checked_rem(self.answers.len()) else { return };
            let answer = self.answers.swap_remove(at);
            let life = match &answer {
                Answer::Committed(batch) | Answer::Lost(batch, _) | Answer::TooEarly(batch) => batch.life,
                Answer::Granted { life, .. } => *life,
                Answer::Accepted(_) | Answer::Erased { .. } => continue,
            };
            let Some(at) = self.holders.iter().position(|holder| holder.life == life) else { continue };
            if self.holders[at].stalled {
                self.answers.push(answer);
                continue;
            }
            if lost {
                self.say(|| format!("an answer to process {life} is lost: {}", heard(Some(&answer))));
                continue;
            }
            self.say(|| format!("process {life} hears: {}", heard(Some(&answer))));
            self.take_answer(at, answer);
        }
    }

    fn take_answer(&mut self, at: usize, answer: Answer) {
        let holder = &mut self.holders[at];
        let life = holder.life;
        match answer {
            Answer::Committed(batch) => {
                for (session, fence) in holder.settle(&batch) {
                    self.requests.push(Request::Release { session, life, fence });
                }
            }
            Answer::Lost(batch, session) => {
                let fence = batch.parts.iter().find(|part| part.session == session).map(|part| part.fence);
                // It may have the session anew by now.
                if holder.held(session).is_some_and(|held| Some(held.fence) == fence) {
                    holder.lost.insert(session);
                    if !self.play.has(Planted::ActsWhenLost) {
                        holder.drop_line(session);
                    }
                }
                holder.start_over();
            }
            Answer::TooEarly(_) => holder.start_over(),
            Answer::Granted { session, fence, .. } => {
                let known = holder.held(session).is_some_and(|held| held.fence >= fence);
                if !known && let Some(stored) = self.disk.stored(session) {
                    self.witness.vouch(session, stored.entries.len() as u64 - 1, &self.disk);
                    holder.drop_line(session);
                    holder.lost.remove(&session);
                    holder.lines.push(Held::opened(session, fence, stored));
                }
            }
            Answer::Accepted(_) | Answer::Erased { .. } => {}
        }
    }

    fn say_taken(&mut self, request: &Request, answer: Option<&Option<Answer>>) {
        if self.trace.is_none() {
            return;
        }
        let what = request.in_words();
        self.say(|| match answer {
            Some(answer) => format!("the store takes {what}: {}", heard(answer.as_ref())),
            None => format!("the store takes {what}"),
        });
    }
}
