//! The inbox: what others post to a session while somebody holds it, and questions to people.

use super::Session;
use super::publish::Taken;
use crate::actor::Actor;
use crate::body::{About, Answered, Asked, Body as _, Cancelled, Grant, Granted, User, Verdict};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Digest, RecordId};
use crate::kind::Kind;
use crate::record::Record;
use crate::state::{OpenAsk, OpenCall};
use crate::store::{Lookup, Post, Posted};

impl Session {
    /// Turns what was posted into records, with the poster as actor. Returns why the work is to stop, if somebody
    /// said so.
    pub async fn take_posts(&mut self) -> Result<Option<String>> {
        if !self.is_live() {
            return Ok(None);
        }
        self.read_offers().await?;
        let posts = self.0.store.posts(self.id()).await?;
        // Words come after the results of the calls that the model is waiting for.
        let calling = self.0.state.calls.iter().any(OpenCall::is_models);
        let held_back = |post: &Post| match post.what {
            Posted::Message { .. } => calling,
            Posted::Unknown(_) => true,
            _ => false,
        };
        let mut stop = None;
        for post in posts
            .into_iter()
            .filter(|post| !held_back(post) && self.0.gear.taken().iter().all(|taken| taken.post != post.id))
            .collect::<Vec<_>>()
        {
            let said = self.take_post(&post)?;
            // A wish to stop is said by the record that comes next.
            let seq = self.0.head.seq + u64::from(said.is_some());
            self.0.gear.own_mut().taken.push(Taken { post: post.id, seq });
            // What the post asked for is durable together with its leaving the inbox.
            self.0.at_boundary = true;
            stop = stop.or(said);
        }
        Ok(stop)
    }

    /// Makes a record of a post. A wish to stop is handed on. Call [`take_posts`](Self::take_posts) first: it reads what
    /// open questions offer, and a question that was not read offers nothing.
    pub fn take_post(&mut self, post: &Post) -> Result<Option<String>> {
        let me = self.actor().clone();
        let made = self.0.gear.own().map_or(0, |own| own.made);
        self.act_as(post.actor.clone());
        let done = match &post.what {
            Posted::Answer { asked, shown_digest, verdict, why } => {
                let answered =
                    Answered { asked: *asked, shown_digest: *shown_digest, verdict: verdict.clone(), why: why.clone() };
                self.append(answered).map(|_| None)
            }
            Posted::Always { asked, shown_digest, why } => self.take_always(*asked, *shown_digest, why.clone()),
            Posted::Message { text } => self
                .append(User { text: text.clone().into(), post: Some(post.id.clone()), attached: Vec::new() })
                .map(|_| None),
            Posted::Label { labelled } => self.append(labelled.clone()).map(|_| None),
            Posted::Cancel { why } => Ok(Some(format!("{} said so: {why}", post.actor))),
            // Only a process that knows it can take it.
            Posted::Unknown(what) => {
                let why = format!("post {} wants something of a later version ({what})", post.id);
                Err(ErrorKind::BadBody { kind: "post".into(), why }.into())
            }
        };
        self.act_as(me);
        // It is not the program's.
        self.0.gear.made(made);
        done
    }

    /// A yes that holds for more than one call. To a question that offers no such thing, or not any more, it is a yes.
    fn take_always(&mut self, asked: RecordId, shown_digest: Digest, why: Option<String>) -> Result<Option<String>> {
        let bound = |ask: &OpenAsk| ask.record == asked && ask.shown_digest == shown_digest;
        // What was shown is on the record. A folded state is not: nobody signed it, and it may have been forged.
        let allows = self.0.state.asks.iter().any(bound).then(|| self.offer(asked)).flatten();
        self.append(Answered { asked, shown_digest, verdict: Verdict::Yes, why })?;
        if let Some(allows) = allows {
            self.append(Granted { asked, allows })?;
        }
        Ok(None)
    }

    /// What a question offers to allow for good, as its record says: one that this process made, or that was read.
    fn offer(&self, asked: RecordId) -> Option<Grant> {
        let at_hand = self.0.records.iter().find(|record| record.id() == asked);
        let read = || self.0.gear.own()?.offers.iter().find(|record| record.id() == asked);
        at_hand.or_else(read)?.body::<Asked>().ok()?.always.map(|always| *always)
    }

    /// Reads the records of open questions that may be answered for good.
    async fn read_offers(&mut self) -> Result<()> {
        let open = self.0.state.asks.iter().filter(|ask| ask.always.is_some());
        let known = |id: RecordId| {
            let read = self.0.gear.own().is_some_and(|own| own.offers.iter().any(|record| record.id() == id));
            read || self.0.records.iter().any(|record| record.id() == id)
        };
        let unread: Vec<RecordId> = open.map(|ask| ask.record).filter(|id| !known(*id)).collect();
        for id in unread {
            let found = self.0.store.get(Lookup::Id(id)).await?;
            // One that is not there, or not published by the line it was asked on, offers nothing.
            let asked = found.into_iter().filter(|record| record.id() == id && *record.kind() == Kind::Asked);
            self.0.gear.own_mut().offers.extend(asked);
        }
        Ok(())
    }

    /// Asks a person. Returns the answer once there is one; until then the error says that the run waits.
    pub async fn ask(&mut self, question: impl Into<String>) -> Result<Verdict> {
        let asked = Asked::new(About::Question, None, question);
        let digest = asked.shown_digest;
        let already = self.0.state.asks.iter().find(|ask| ask.shown_digest == digest && !ask.inherited);
        let mut question = match already.map(|ask| ask.record) {
            Some(record) => record,
            None => self.append(asked.clone())?,
        };
        loop {
            if let Some(verdict) = self.recorded_answer(question, digest)? {
                return Ok(verdict);
            }
            // Where the line came from elsewhere it was asked again.
            let again = self.peek_recorded(&Kind::Asked)?;
            let Some(again) = again.filter(|record| record.body::<Asked>().is_ok_and(|body| body == asked)) else {
                break;
            };
            question = again.id();
            self.absorb_next()?;
        }
        if let Some(record) = self.peek_recorded(&Kind::Cancelled)? {
            // It was given up, and the process ended before it said so elsewhere.
            let point = record.point();
            let body: Cancelled = record.body().map_err(|why| ErrorKind::Record { point, why })?;
            self.jump_to_the_end().await?;
            return Err(Error::from(ErrorKind::Cancelled { why: body.why }).recorded(point));
        }
        // A wish to stop leaves the inbox with the record that says so, which is written by the step.
        if let Some(why) = self.take_posts().await? {
            return Err(ErrorKind::Cancelled { why }.into());
        }
        let is_open = self.0.state.asks.iter().any(|ask| ask.record == question);
        if let Some(verdict) = self.answer_to(question, digest).await? {
            self.publish().await?;
            return Ok(verdict);
        }
        if !is_open && self.is_live() {
            // It was asked elsewhere, where nobody answered.
            self.append(asked)?;
        }
        self.publish().await?;
        Err(ErrorKind::Waiting(self.id()).into())
    }

    /// The answer that lies ahead of the cursor.
    fn recorded_answer(&mut self, asked: RecordId, digest: Digest) -> Result<Option<Verdict>> {
        let answers = |record: &Record| {
            let body = record.body::<Answered>().ok();
            body.filter(|body| body.asked == asked && body.shown_digest == digest).map(|body| body.verdict)
        };
        loop {
            match self.peek_recorded(&Kind::Answered)? {
                Some(record) => {
                    let verdict = answers(&record);
                    self.absorb_next()?;
                    if verdict.is_some() {
                        return Ok(verdict);
                    }
                }
                None => return Ok(None),
            }
        }
    }

    /// The first answer on this line to a question.
    async fn answer_to(&self, asked: RecordId, digest: Digest) -> Result<Option<Verdict>> {
        if self.0.state.asks.iter().any(|ask| ask.record == asked) {
            return Ok(None);
        }
        for record in self.own_records(&[Kind::Answered]).await? {
            if let Ok(body) = record.body::<Answered>()
                && body.asked == asked
                && body.shown_digest == digest
            {
                return Ok(Some(body.verdict));
            }
        }
        Ok(None)
    }

    /// The answer that stands at `seq` on this line, and who gave it.
    pub async fn answer_at(&self, seq: u64) -> Result<(Answered, Actor)> {
        let point = crate::id::Point { session: self.id(), seq };
        let record = self.reader().record(point).await?;
        let bad = |why| ErrorKind::Record { point, why };
        let header = record.header().map_err(|why| bad(why.into()))?;
        Ok((record.body().map_err(bad)?, header.actor))
    }
}

impl Post {
    /// A post to `session`, under a name that no other has.
    pub fn new(session: crate::id::SessionId, actor: Actor, what: Posted) -> Self {
        let (id, time) = (crate::entropy::fresh_name(), crate::clock::Time::now());
        Self { id, session, actor, time, what }
    }

    /// The kind of record it becomes.
    pub fn kind(&self) -> Kind {
        match &self.what {
            Posted::Answer { .. } | Posted::Always { .. } => Answered::KIND,
            Posted::Message { .. } => Kind::User,
            Posted::Label { .. } => Kind::Labelled,
            Posted::Cancel { .. } => Kind::Cancelled,
            Posted::Unknown(what) => Kind::named(what.name()),
        }
    }
}
