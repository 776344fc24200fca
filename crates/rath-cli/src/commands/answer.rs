use std::sync::Arc;

use anyhow::{Result, bail};
use rath::body::{About, Verdict};
use rath::store::{Error as StoreError, Post, Posted};
use rath::{OpenAsk, OpenCall, SessionId, Store, View};

use super::Answer as Exit;
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;

/// Answer a question that a session asks
///
/// `yes`, `no`, or words. The answer binds to exactly what was shown. The first answer counts; a late one is kept and
/// changes nothing. What allows or repeats a call is answered at its record, SESSION@SEQ, as `rath inbox` shows it: by
/// then the session may ask something else.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Answer {
    /// The record that asks; the session will do where it asks one thing that is not about a call
    session: String,
    /// yes, no, or words
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
        let ask = choose(&asks, place.exact.then_some(place.seq), place.session)?;
        let verdict = match (self.answer.to_ascii_lowercase().as_str(), ask.about) {
            ("yes" | "y", _) => Verdict::Yes,
            ("no" | "n", _) => Verdict::No,
            (_, About::Approval) => {
                let why = "this is a yes-or-no question: answer yes or no, and say more with --why";
                return Err(expression::unclear(why));
            }
            _ => Verdict::Text(self.answer.clone().into()),
        };
        let posted =
            Posted::Answer { asked: ask.record, shown_digest: ask.shown_digest, verdict, why: self.why.clone() };
        hand_in(settings, &store, place.session, posted).await?;
        Ok(Exit::Yes)
    }
}

fn choose(asks: &[OpenAsk], seq: Option<u64>, session: SessionId) -> Result<&OpenAsk> {
    match (asks, seq) {
        ([], _) => bail!("session {} asks nothing\n  help: `rath inbox` lists what is asked", session.short()),
        (asks, Some(seq)) => match asks.iter().find(|ask| ask.seq == seq) {
            Some(ask) => Ok(ask),
            None => {
                bail!("{}@{seq} is not an open question\n  help: `rath inbox` lists what is asked", session.short())
            }
        },
        ([one], None) if one.about == About::Question => Ok(one),
        ([one], None) => Err(expression::unclear(format!(
            "this answer decides on a call: name what you have read\n  help: `rath inbox`, then `rath answer {}@{} …`",
            session.short(),
            one.seq
        ))),
        (several, None) => {
            let places: Vec<_> = several.iter().map(|ask| format!("{}@{}", session.short(), ask.seq)).collect();
            Err(expression::unclear(format!(
                "session {} asks several things: name one of {}",
                session.short(),
                places.join(", ")
            )))
        }
    }
}

/// Makes a record of a post, or leaves it in the inbox while somebody else holds the session.
pub(super) async fn hand_in(
    settings: &Settings,
    store: &Arc<dyn Store>,
    session: SessionId,
    what: Posted,
) -> Result<()> {
    let post = Post::new(session, settings.actor(), what);
    match store.open(session, settings.actor()).await {
        // Words come after the results of the calls that the model waits for: whoever goes on takes them in.
        Ok(open)
            if matches!(post.what, Posted::Message { .. }) && open.state().calls.iter().any(OpenCall::is_models) =>
        {
            store.post(post).await?;
            output::remark(format_args!("{} until it goes on", style::good("left")));
            Ok(())
        }
        Ok(mut session) => {
            // What waits in the inbox came first.
            let before = session.take_posts().await?;
            if let Some(why) = session.take_post(&post)?.or(before) {
                session.cancel(why)?;
            }
            session.publish().await?;
            output::added(settings, session.head())
        }
        Err(error) => match error.kind() {
            rath::ErrorKind::Store(StoreError::Held { holder, .. }) => {
                let holder = holder.clone();
                store.post(post).await?;
                output::remark(format_args!("{} with {holder}", style::good("left")));
                Ok(())
            }
            _ => Err(error.into()),
        },
    }
}
