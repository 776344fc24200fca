use std::sync::Arc;

use anyhow::Result;
use rath::body::Forked;
use rath::store::{Error as StoreError, Posted, Which};
use rath::{ErrorKind, SessionId, Store, View};
use serde_json::{Value, json};

use super::Answer;
use super::answer::{HandedIn, hand_in};
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;
use crate::transcript::{Is, Status};

/// Stop the work on a session; what was done stays on the record
///
/// While a process works on it, that process is told and stops at its next boundary. Else open calls and steps are
/// closed as cancelled here.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Cancel {
    /// The session
    session: String,
    /// The reason
    #[arg(long, value_name = "TEXT", default_value = "no reason given")]
    why: String,
}

/// The branches of a session, and theirs, on which something is open.
async fn open_branches(store: &Arc<dyn Store>, session: SessionId) -> Result<Vec<SessionId>> {
    let (mut open, mut parents) = (Vec::new(), vec![session]);
    while let Some(parent) = parents.pop() {
        for row in store.sessions(Which::ChildrenOf(parent).into()).await? {
            // A person's own fork is none of the run's; what goes on instead of the session itself is another session.
            let first = View::of(store, row.id, Some(0)).await?;
            let forked = first.record().body::<Forked>();
            if !forked.is_ok_and(|forked| forked.is_of_run() || forked.instead.is_some() && parent != session) {
                continue;
            }
            parents.push(row.id);
            if !row.closed && !View::of(store, row.id, None).await?.pending().is_empty() {
                open.push(row.id);
            }
        }
    }
    Ok(open)
}

/// Whether a process works on a session.
async fn is_held(settings: &Settings, store: &Arc<dyn Store>, session: SessionId) -> Result<bool> {
    match store.open(session, settings.actor()).await {
        Ok(_) => Ok(false),
        Err(error) => match error.kind() {
            ErrorKind::Store(StoreError::Held { .. }) => Ok(true),
            _ => Err(error.into()),
        },
    }
}

/// Says that there was nothing to stop, and what there is to do.
fn say_idle(id: SessionId, run: Option<Is>) {
    let id = id.short();
    let why = match run {
        Some(Is::Done) => "the run is over",
        Some(Is::Failed) => "the run has failed",
        Some(Is::Cancelled) => "the run was cancelled before",
        _ => "nobody works on it, and nothing is open",
    };
    let help = match run {
        Some(_) => format!("`rath run --continue {id} WORDS` goes on with it"),
        None => format!("`rath close {id}` ends the session"),
    };
    output::remark(format_args!("nothing to stop in session {}: {why}\n  help: {help}", style::session(&id)));
}

impl Cancel {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let id = expression::resolve_session(&store, &self.session).await?;
        let run = Status::of(&store, &View::of(&store, id, None).await?).await?.map(|run| run.is);
        // Whoever works on it stops what its branches do. If those heard of it first, what waits for them would begin.
        if !is_held(settings, &store, id).await? {
            // What its branches ask is asked for nothing from here on.
            for branch in open_branches(&store, id).await? {
                let handed_in = hand_in(settings, &store, branch, Posted::Cancel { why: self.why.clone() }).await?;
                handed_in.say(settings, branch, Value::Null)?;
            }
        }
        let handed_in = hand_in(settings, &store, id, Posted::Cancel { why: self.why }).await?;
        let idle = matches!(handed_in, HandedIn::NothingToStop(_));
        let more = if idle { json!({ "run": run }) } else { Value::Null };
        handed_in.say(settings, id, more)?;
        if idle && !settings.json {
            say_idle(id, run);
        }
        for row in store.sessions(Which::ChildrenOf(id).into()).await? {
            let forked = View::of(&store, row.id, Some(0)).await?.record().body::<Forked>();
            if forked.is_ok_and(|forked| forked.instead.is_some())
                && !View::of(&store, row.id, None).await?.pending().is_empty()
            {
                output::remark(format_args!(
                    "the run went on as session {}, which is not cancelled\n  help: `rath cancel {}`",
                    style::session(row.id.short()),
                    row.id.short()
                ));
            }
        }
        Ok(Answer::Yes)
    }
}
