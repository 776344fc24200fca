use anyhow::Result;
use rath::files::Driver;
use rath::{How, Session};

use super::Answer;
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;

/// Merge branches into a session
///
/// By default each branch's new items follow the session's own, the common part once, and files merge by line; where
/// they cannot, the session's side stays, the conflict is recorded, and the exit code is 3. The branches are closed.
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
    /// Files on which the session wins where both sides changed them, e.g. '*.lock'
    #[arg(long, value_name = "PATTERN")]
    ours: Vec<String>,
    /// Files on which the branch wins
    #[arg(long, value_name = "PATTERN")]
    theirs: Vec<String>,
    /// Files on which a person decides, even where the lines would merge
    #[arg(long, value_name = "PATTERN")]
    conflict: Vec<String>,
}

impl Merge {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let workshop = settings.workshop(false)?;
        let store = workshop.store();
        let all = [(&self.ours, Driver::Ours), (&self.theirs, Driver::Theirs), (&self.conflict, Driver::Conflict)];
        let rules = all.into_iter().flat_map(|(patterns, driver)| patterns.iter().cloned().map(move |p| (p, driver)));
        let drivers = settings.config()?.drivers(rules.collect())?;
        let into = expression::resolve_session(store, &self.into).await?;
        let mut ids = Vec::new();
        for branch in &self.branches {
            let id = expression::resolve_session(store, branch).await?;
            if id == into || ids.contains(&id) {
                return Err(expression::unclear(format!("{branch} is named twice")));
            }
            ids.push(id);
        }
        let how = match (self.keep, self.synthesize) {
            (Some(keep), _) => {
                let chosen = expression::resolve_session(store, &keep).await?;
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
        let mut session = store.open(into, settings.actor()).await?;
        let mut branches = Vec::new();
        for id in ids {
            branches.push(store.open(id, settings.actor()).await?);
        }
        // What no record has would not be in the merge.
        for line in std::iter::once(&mut session).chain(&mut branches) {
            workshop.check_saved(line).await?;
        }
        let mut session = session.merge_with(branches, how, &drivers).await?;
        let merged = session.head();
        workshop.bring(&mut session).await?;
        output::added(settings, merged)?;
        let conflicts = &session.state().conflicts;
        for conflict in conflicts.iter().filter(|_| !settings.json) {
            output::remark(format_args!("{} {}: {}", style::bad("conflict"), conflict.path, conflict.kind));
        }
        if !conflicts.is_empty() && !settings.json {
            output::remark(format_args!("  help: `rath conflicts {0}`, `rath resolve {0} PATH …`", into.short()));
        }
        Ok(if conflicts.is_empty() { Answer::Yes } else { Answer::No })
    }
}
