//! Durable waits for a time or for a named event.
//!
//! A wait is recorded, and the run ends with [`ErrorKind::Waiting`] until it is resumed after the time, or after someone
//! has posted the event. No process has to stay alive.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use super::Session;
use super::publish::ConsumedPost;
use crate::blob::Content;
use crate::body::{Awaited, Cancelled, Received, WaitKind};
use crate::clock::Time;
use crate::error::{Diverged, Error, ErrorKind, Result};
use crate::id::SessionId;
use crate::kind::Kind;
use crate::store::{Post, PostContent};

/// The posts of events that a wait in this process is about to consume, so that two branches do not consume one event.
static RESERVED: Mutex<Option<HashSet<String>>> = Mutex::new(None);

impl Session {
    /// Waits until `time`, where it is `now`. Fails with [`ErrorKind::Waiting`] before that time: resume the run then.
    pub async fn sleep_until(&mut self, time: Time, now: Time) -> Result<()> {
        let id = self.start_wait(WaitKind::Time, None, Some(time)).await?;
        if self.received(&id)?.is_some() {
            return Ok(());
        }
        self.check_cancelled().await?;
        if now < time {
            self.publish().await?;
            return Err(ErrorKind::Waiting(self.id()).into());
        }
        self.append(Received { id, value: None, post: None })?;
        self.publish().await
    }

    /// Waits for an event called `name` and returns its value as JSON text. Fails with [`ErrorKind::Waiting`] if none
    /// was posted: resume the run afterwards.
    ///
    /// The event may be posted to this session or to one that it was forked from. It stays in the inbox until one wait
    /// of its name, on any branch of the run, consumes it.
    pub async fn wait_for(&mut self, name: &str) -> Result<Content> {
        let id = self.start_wait(WaitKind::Event, Some(name), None).await?;
        if let Some(received) = self.received(&id)? {
            return Ok(received.value.unwrap_or_else(|| "null".into()));
        }
        self.check_cancelled().await?;
        let Some(post) = self.reserve_event(name).await? else {
            self.publish().await?;
            return Err(ErrorKind::Waiting(self.id()).into());
        };
        let PostContent::Event { value, .. } = post.what else { return Ok("null".into()) };
        let me = self.actor().clone();
        self.act_as(post.actor);
        let value = Content::from(value);
        let appended = self.append(Received { id, value: Some(value.clone()), post: Some(post.id.clone()) });
        self.act_as(me);
        let seq = self.0.head.seq;
        self.0.run_context.own_mut().consumed.push(ConsumedPost { post: post.id.clone(), seq });
        let done = match appended {
            Ok(_) => self.publish().await,
            Err(error) => Err(error),
        };
        release(&post.id);
        done.map(|()| value)
    }

    /// Records the start of a wait and returns its id.
    async fn start_wait(&mut self, what: WaitKind, name: Option<&str>, until: Option<Time>) -> Result<String> {
        self.read_ahead().await?;
        if let Some(awaited) = self.recorded::<Awaited>()? {
            if awaited.what == what && awaited.name.as_deref() == name {
                return Ok(awaited.id);
            }
            let now = format!("a wait for {what} {}", name.unwrap_or_default());
            let recorded = format!("a wait for {} {}", awaited.what, awaited.name.unwrap_or_default());
            let diverged = Diverged { point: self.point(), recorded, now, changed: Vec::new() };
            return Err(ErrorKind::Diverged(Box::new(diverged)).into());
        }
        let id = format!("w{}", self.head().seq + 1);
        self.append(Awaited { id: id.clone(), what, name: name.map(Into::into), until, why: None })?;
        Ok(id)
    }

    /// The recorded end of a wait.
    fn received(&mut self, id: &str) -> Result<Option<Received>> {
        match self.recorded::<Received>()? {
            Some(received) if received.id == id => Ok(Some(received)),
            Some(received) => {
                let (recorded, now) = (format!("the end of wait {}", received.id), format!("the end of wait {id}"));
                let diverged = Diverged { point: self.point(), recorded, now, changed: Vec::new() };
                Err(ErrorKind::Diverged(Box::new(diverged)).into())
            }
            None => Ok(None),
        }
    }

    /// Fails if the work was cancelled, now or before the process ended.
    async fn check_cancelled(&mut self) -> Result<()> {
        if let Some(record) = self.peek_recorded(&Kind::Cancelled)? {
            let point = record.point();
            let body: Cancelled = record.body().map_err(|why| ErrorKind::Record { point, why })?;
            self.jump_to_end().await?;
            return Err(Error::from(ErrorKind::Cancelled { why: body.reason().to_owned() }).recorded(point));
        }
        match self.consume_posts().await? {
            Some(why) => Err(ErrorKind::Cancelled { why }.into()),
            None => Ok(()),
        }
    }

    /// Finds the oldest event of this name in the inboxes of this session and of those it was forked from.
    async fn reserve_event(&self, name: &str) -> Result<Option<Post>> {
        let (mut session, mut seen): (Option<SessionId>, _) = (Some(self.id()), HashSet::new());
        while let Some(id) = session.filter(|id| seen.insert(*id)) {
            for post in self.0.store.posts(id).await? {
                let is_meant = matches!(&post.what, PostContent::Event { name: posted, .. } if posted == name);
                if is_meant && reserve(&post.id) {
                    return Ok(Some(post));
                }
            }
            session = match id == self.id() {
                true => self.origin().map(|origin| origin.session),
                false => self.reader().session_start(id).await?.origin.map(|origin| origin.session),
            };
        }
        Ok(None)
    }
}

fn reserve(post: &str) -> bool {
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(post.to_owned())
}

fn release(post: &str) {
    if let Some(reserved) = RESERVED.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        reserved.remove(post);
    }
}
