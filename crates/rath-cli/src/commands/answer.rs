use std::sync::Arc;

use anyhow::{Result, bail};
use rath::body::{About, Asked, Verdict};
use rath::store::{Error as StoreError, Holder, Post, Posted};
use rath::{Digest, OpenAsk, OpenCall, RecordId, Reference, SessionId, Store, View};
use serde_json::{Value, json};

use super::Answer as Exit;
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;

/// Answer a question that a session asks
///
/// `yes`, `no`, `always`, or words. `always` is yes to this call and to those that the question says it allows, on this
/// session and forks that are made of it later. The answer binds to exactly what was shown. The first answer counts; a late one is kept and
/// changes nothing. What allows or repeats a call is answered at its record, SESSION@SEQ, as `rath inbox` shows it: by
/// then the session may ask something else.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Answer {
    /// The record that asks; the session will do where it asks one thing that is not about a call
    session: String,
    /// yes, no, always, or words
    answer: String,
    /// The reason
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
}

impl Answer {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Exit> {
        let store = settings.store()?;
        let place = expression::resolve(&store, &self.session).await?;
        let asks = View::of(&store, place.session, None).await?.pending().asks;
        let question = match place.exact {
            true => asked_at(&store, place.session, place.seq).await?,
            false => Question::of(the_one(&asks, place.session)?),
        };
        if !asks.iter().any(|ask| ask.record == question.record) {
            output::remark("it was answered before: this answer is kept, and changes nothing");
        }
        let is_always = self.answer.eq_ignore_ascii_case("always") && question.about == About::Approval;
        if is_always {
            let Question { record: asked, shown_digest, .. } = question;
            if !question.offers_always {
                return Err(expression::unclear("this question offers no \"always\": answer yes or no"));
            }
            let posted = Posted::Always { asked, shown_digest, why: self.why.clone() };
            let handed_in = hand_in(settings, &store, place.session, posted).await?;
            handed_in.say(settings, place.session, Value::Null)?;
            return Ok(Exit::Yes);
        }
        let verdict = match (self.answer.to_ascii_lowercase().as_str(), question.about) {
            ("yes" | "y", _) => Verdict::Yes,
            ("no" | "n", _) => Verdict::No,
            (_, About::Approval) => {
                let why = "this is a yes-or-no question: answer yes or no, or always where it is offered, and say more with --why";
                return Err(expression::unclear(why));
            }
            _ => Verdict::Text(self.answer.clone().into()),
        };
        let posted = Posted::Answer {
            asked: question.record,
            shown_digest: question.shown_digest,
            verdict,
            why: self.why.clone(),
        };
        let handed_in = hand_in(settings, &store, place.session, posted).await?;
        handed_in.say(settings, place.session, Value::Null)?;
        Ok(Exit::Yes)
    }
}

/// What an answer binds to.
struct Question {
    record: RecordId,
    shown_digest: Digest,
    about: About,
    offers_always: bool,
}

impl Question {
    fn of(ask: &OpenAsk) -> Self {
        Self {
            record: ask.record,
            shown_digest: ask.shown_digest,
            about: ask.about,
            offers_always: ask.always.is_some(),
        }
    }
}

/// The question that a record asks, answered or not.
async fn asked_at(store: &Arc<dyn Store>, session: SessionId, seq: u64) -> Result<Question> {
    let view = View::of(store, session, Some(seq)).await?;
    match view.record().body::<Asked>() {
        Ok(Asked { shown_digest, about, always, .. }) => {
            Ok(Question { record: view.record().id(), shown_digest, about, offers_always: always.is_some() })
        }
        Err(_) => bail!("{}@{seq} asks nothing\n  help: `rath inbox` lists what is asked", session.short()),
    }
}

/// The one question of a session that can be answered without saying which.
fn the_one(asks: &[OpenAsk], session: SessionId) -> Result<&OpenAsk> {
    match asks {
        [] => bail!("session {} asks nothing\n  help: `rath inbox` lists what is asked", session.short()),
        [one] if one.about == About::Question => Ok(one),
        [one] => Err(expression::unclear(format!(
            "this answer decides on a call: name what you have read\n  help: `rath inbox`, then `rath answer {}@{} …`",
            session.short(),
            one.seq
        ))),
        several => {
            let places: Vec<_> = several.iter().map(|ask| format!("{}@{}", session.short(), ask.seq)).collect();
            Err(expression::unclear(format!(
                "session {} asks several things: name one of {}",
                session.short(),
                places.join(", ")
            )))
        }
    }
}

/// What became of a post.
pub(super) enum HandedIn {
    /// It is on the record.
    Added(Reference),
    /// A wish to stop what was not going on: there is nothing to put on the record.
    NothingToStop(Reference),
    /// It lies in the inbox: with the process that holds the session, or for whoever goes on with it.
    Left { post: String, holder: Option<Holder> },
}

impl HandedIn {
    /// Says it: in words, or as JSON with what else there is to know.
    pub(super) fn say(self, settings: &Settings, session: SessionId, more: Value) -> Result<()> {
        let mut answer = match self {
            HandedIn::Added(head) if !settings.json => return output::answer(head.point()),
            HandedIn::Added(head) => json!(head),
            HandedIn::NothingToStop(head) => {
                let mut answer = json!(head);
                answer["stopped"] = false.into();
                answer
            }
            HandedIn::Left { post, holder } => {
                match &holder {
                    Some(holder) => output::remark(format_args!("{} with {holder}", style::good("left"))),
                    None => output::remark(format_args!("{} until it goes on", style::good("left"))),
                }
                json!({ "session": session, "left": post, "holder": holder })
            }
        };
        if let (Value::Object(answer), Value::Object(more)) = (&mut answer, more) {
            answer.extend(more);
        }
        if settings.json { output::json(&answer) } else { Ok(()) }
    }
}

/// Makes a record of a post, or leaves it in the inbox while somebody else holds the session.
pub(super) async fn hand_in(
    settings: &Settings,
    store: &Arc<dyn Store>,
    session: SessionId,
    what: Posted,
) -> Result<HandedIn> {
    let post = Post::new(session, settings.actor(), what);
    match store.open(session, settings.actor()).await {
        // Words come after the results of the calls that the model waits for: whoever goes on takes them in.
        Ok(open)
            if matches!(post.what, Posted::Message { .. }) && open.state().calls.iter().any(OpenCall::is_models) =>
        {
            let left = HandedIn::Left { post: post.id.clone(), holder: None };
            store.post(post).await?;
            Ok(left)
        }
        Ok(mut session) => {
            // What waits in the inbox came first.
            let (before, head) = (session.take_posts().await?, session.head());
            if let Some(why) = session.take_post(&post)?.or(before) {
                session.cancel(why)?;
            }
            session.publish().await?;
            match session.head() {
                same if same == head => Ok(HandedIn::NothingToStop(head)),
                head => Ok(HandedIn::Added(head)),
            }
        }
        Err(error) => match error.kind() {
            rath::ErrorKind::Store(StoreError::Held { holder, .. }) => {
                let left = HandedIn::Left { post: post.id.clone(), holder: Some(holder.clone()) };
                store.post(post).await?;
                Ok(left)
            }
            _ => Err(error.into()),
        },
    }
}
