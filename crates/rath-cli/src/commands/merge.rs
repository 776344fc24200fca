use anyhow::Result;
use rath::{How, Session};

use super::Answer;
use crate::expression;
use crate::output;
use crate::settings::Settings;

/// Merge branches into a session
///
/// By default each branch's new items follow the session's own, the common part once. The branches are closed.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Merge {
    /// The session that goes on
    into: String,
    /// The branches it takes in
    #[arg(required = true)]
    branches: Vec<String>,
    /// Keep only this one's context; the others are recorded as rejected
    #[arg(long, value_name = "SESSION", conflicts_with = "synthesize")]
    keep: Option<String>,
    /// Why it is kept
    #[arg(long, value_name = "TEXT", requires = "keep", default_value = "")]
    why: String,
    /// Cancel what is open on those that are not kept
    #[arg(long, requires = "keep")]
    cancel: bool,
    /// Put this text in the place of all branches' items
    #[arg(long, value_name = "TEXT")]
    synthesize: Option<String>,
}

impl Merge {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let into = expression::resolve_session(&store, &self.into).await?;
        let mut ids = Vec::new();
        for branch in &self.branches {
            let id = expression::resolve_session(&store, branch).await?;
            if id == into || ids.contains(&id) {
                return Err(expression::unclear(format!("{branch} is named twice")));
            }
            ids.push(id);
        }
        let how = match (self.keep, self.synthesize) {
            (Some(keep), _) => {
                let chosen = expression::resolve_session(&store, &keep).await?;
                How::Keep { chosen, why: self.why, cancel_losers: self.cancel }
            }
            (None, Some(text)) => How::synthesize(move |mut session: Session| {
                let text = text.clone();
                async move {
                    session.assistant(text)?;
                    Ok(session)
                }
            }),
            (None, None) => How::Append,
        };
        let session = store.open(into, settings.actor()).await?;
        let mut branches = Vec::new();
        for id in ids {
            branches.push(store.open(id, settings.actor()).await?);
        }
        let session = session.merge(branches, how).await?;
        output::added(settings, session.head())?;
        Ok(Answer::Yes)
    }
}
