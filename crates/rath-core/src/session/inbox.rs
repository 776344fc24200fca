//! The inbox: posts that other processes send to a session while it is open in one, and questions to people.

use super::Session;
use super::publish::ConsumedPost;
use crate::actor::Actor;
use crate::body::{Answered, Asked, Body as _, Cancelled, Grant, Granted, QuestionKind, User, Verdict};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Digest, RecordId};
use crate::kind::Kind;
use crate::record::Record;
use crate::state::{OpenAsk, OpenCall};
use crate::store::{Lookup, Post, PostContent};

impl Session {
    /// Consumes the session's posts: appends a record for each, with the poster as actor. Returns the reason if one of
    /// the posts asks to cancel the work.
    pub async fn consume_posts(&mut self) -> Result<Option<String>> {
        if !self.is_live() {
            return Ok(None);
        }
        self.read_questions_with_grants().await?;
        let posts = self.0.store.posts(self.id()).await?;
        // A user message must come after the results of the open calls.
        let calling = self.0.state.calls.iter().any(OpenCall::is_models);
        let held_back = |post: &Post| match post.what {
            PostContent::Message { .. } => calling,
            // A wait for the event consumes it.
            PostContent::Event { .. } | PostContent::Unknown(_) => true,
            _ => false,
        };
        let mut stop = None;
        for post in posts
            .into_iter()
            .filter(|post| {
                !held_back(post) && self.0.run_context.consumed().iter().all(|consumed| consumed.post != post.id)
            })
            .collect::<Vec<_>>()
        {
            let reason = self.consume_post(&post)?;
            // A cancellation has no record yet: the caller writes it as the next record.
            let seq = self.0.head.seq + u64::from(reason.is_some());
            self.0.run_context.own_mut().consumed.push(ConsumedPost { post: post.id, seq });
            // The record and the removal from the inbox must become durable in one commit.
            self.0.at_boundary = true;
            stop = stop.or(reason);
        }
        Ok(stop)
    }

    /// Appends the record of one post. For a cancellation it appends nothing and returns the reason.
    ///
    /// Call [`consume_posts`](Self::consume_posts) first. It reads the grants that open questions offer; without that,
    /// an answer "always" counts as a plain "yes".
    pub fn consume_post(&mut self, post: &Post) -> Result<Option<String>> {
        let me = self.actor().clone();
        let made = self.0.run_context.own().map_or(0, |own| own.last_program_record);
        self.act_as(post.actor.clone());
        let done = match &post.what {
            PostContent::Answer { asked, shown_digest, verdict, why } => {
                let answered =
                    Answered { asked: *asked, shown_digest: *shown_digest, verdict: verdict.clone(), why: why.clone() };
                self.append(answered).map(|_| None)
            }
            PostContent::Always { asked, shown_digest, why } => self.answer_always(*asked, *shown_digest, why.clone()),
            PostContent::Message { text } => self
                .append(User { text: text.clone().into(), post: Some(post.id.clone()), attached: Vec::new() })
                .map(|_| None),
            PostContent::Label { labelled } => self.append(labelled.clone()).map(|_| None),
            PostContent::Cancel { why } => Ok(Some(format!("requested by {}: {why}", post.actor))),
            PostContent::Event { name, .. } => {
                let why = format!("event {name:?} is consumed by a wait for it");
                Err(ErrorKind::BadBody { kind: "post".into(), why }.into())
            }
            // Only a version that knows this kind of post can consume it.
            PostContent::Unknown(what) => {
                let why = format!("post {} is of kind {what}, which this version does not know: upgrade rath", post.id);
                Err(ErrorKind::BadBody { kind: "post".into(), why }.into())
            }
        };
        self.act_as(me);
        // The record was not made by the program.
        self.0.run_context.note_program_record(made);
        done
    }

    /// Records the answer "always": a yes, and a grant for later calls if the question offers one and is still open.
    fn answer_always(&mut self, asked: RecordId, shown_digest: Digest, why: Option<String>) -> Result<Option<String>> {
        let bound = |ask: &OpenAsk| ask.record == asked && ask.shown_digest == shown_digest;
        // Take the grant from the record of the question. The folded state is not hashed and may have been forged.
        let allows = self.0.state.asks.iter().any(bound).then(|| self.offered_grant(asked)).flatten();
        self.append(Answered { asked, shown_digest, verdict: Verdict::Yes, why })?;
        if let Some(allows) = allows {
            self.append(Granted { asked, allows })?;
        }
        Ok(None)
    }

    /// The grant that a question offers, from its record in memory.
    fn offered_grant(&self, asked: RecordId) -> Option<Grant> {
        let cached = self.0.records.iter().find(|record| record.id() == asked);
        let read = || self.0.run_context.own()?.read_questions.iter().find(|record| record.id() == asked);
        cached.or_else(read)?.body::<Asked>().ok()?.always.map(|always| *always)
    }

    /// Reads the records of open questions that can be answered with "always".
    async fn read_questions_with_grants(&mut self) -> Result<()> {
        let open = self.0.state.asks.iter().filter(|ask| ask.always.is_some());
        let known = |id: RecordId| {
            let read =
                self.0.run_context.own().is_some_and(|own| own.read_questions.iter().any(|record| record.id() == id));
            read || self.0.records.iter().any(|record| record.id() == id)
        };
        let unread: Vec<RecordId> = open.map(|ask| ask.record).filter(|id| !known(*id)).collect();
        for id in unread {
            let found = self.0.store.get(Lookup::Id(id)).await?;
            // A question whose record is missing or not published offers no grant.
            let asked = found.into_iter().filter(|record| record.id() == id && *record.kind() == Kind::Asked);
            self.0.run_context.own_mut().read_questions.extend(asked);
        }
        Ok(())
    }

    /// Asks a person. Returns the answer if there is one. Otherwise fails with [`ErrorKind::Waiting`]: resume the run
    /// after the person has answered.
    pub async fn ask(&mut self, question: impl Into<String>) -> Result<Verdict> {
        let asked = Asked::new(QuestionKind::Question, None, question);
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
            // After an import of the session the question was asked again.
            let again = self.peek_recorded(&Kind::Asked)?;
            let Some(again) = again.filter(|record| record.body::<Asked>().is_ok_and(|body| body == asked)) else {
                break;
            };
            question = again.id();
            self.advance()?;
        }
        if let Some(record) = self.peek_recorded(&Kind::Cancelled)? {
            // The work was cancelled, and the process ended before it recorded that on the outer steps.
            let point = record.point();
            let body: Cancelled = record.body().map_err(|why| ErrorKind::Record { point, why })?;
            self.jump_to_end().await?;
            return Err(Error::from(ErrorKind::Cancelled { why: body.why }).recorded(point));
        }
        // The post of a cancellation is consumed together with the `cancelled` record, which the step writes.
        if let Some(why) = self.consume_posts().await? {
            return Err(ErrorKind::Cancelled { why }.into());
        }
        let is_open = self.0.state.asks.iter().any(|ask| ask.record == question);
        if let Some(verdict) = self.answer_to(question, digest).await? {
            self.publish().await?;
            return Ok(verdict);
        }
        if !is_open && self.is_live() {
            // The question was asked on another machine or store and not answered there: ask again.
            self.append(asked)?;
        }
        self.publish().await?;
        Err(ErrorKind::Waiting(self.id()).into())
    }

    /// The answer among the records ahead of the replay cursor.
    fn recorded_answer(&mut self, asked: RecordId, digest: Digest) -> Result<Option<Verdict>> {
        let answers = |record: &Record| {
            let body = record.body::<Answered>().ok();
            body.filter(|body| body.asked == asked && body.shown_digest == digest).map(|body| body.verdict)
        };
        loop {
            match self.peek_recorded(&Kind::Answered)? {
                Some(record) => {
                    let verdict = answers(&record);
                    self.advance()?;
                    if verdict.is_some() {
                        return Ok(verdict);
                    }
                }
                None => return Ok(None),
            }
        }
    }

    /// The first answer to a question in this session.
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

    /// The answer recorded at `seq` of this session, and the actor who gave it.
    pub async fn answer_at(&self, seq: u64) -> Result<(Answered, Actor)> {
        let point = crate::id::Point { session: self.id(), seq };
        let record = self.reader().record(point).await?;
        let bad = |why| ErrorKind::Record { point, why };
        let header = record.header().map_err(|why| bad(why.into()))?;
        Ok((record.body().map_err(bad)?, header.actor))
    }
}

impl Post {
    /// A post to `session` with a fresh id.
    pub fn new(session: crate::id::SessionId, actor: Actor, what: PostContent) -> Self {
        let (id, time) = (crate::entropy::fresh_name(), crate::clock::Time::now());
        Self { id, session, actor, time, what }
    }

    /// The kind of the record that the post becomes.
    pub fn kind(&self) -> Kind {
        match &self.what {
            PostContent::Answer { .. } | PostContent::Always { .. } => Answered::KIND,
            PostContent::Message { .. } => Kind::User,
            PostContent::Label { .. } => Kind::Labelled,
            PostContent::Cancel { .. } => Kind::Cancelled,
            PostContent::Event { .. } => Kind::Received,
            PostContent::Unknown(what) => Kind::named(what.name()),
        }
    }
}
