use anyhow::Result;
use rath::files::{Change, Conflict, Driver};
use rath::inspect::FileComparison;
use rath::{How, Reference, Session, SessionId, View};
use serde::Serialize;

use super::Answer;
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;

/// Merge branches into a session, and close the branches
///
/// By default, the new messages of each branch are appended to the session, and files are merged line by line. Where
/// lines conflict, the session's side stays, the conflict is recorded, and the exit code is 3.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Merge {
    /// The session that stays open
    into: String,
    /// The branches: they are merged into it and closed
    #[arg(required = true, value_name = "BRANCH")]
    branches: Vec<String>,
    /// Keep the context of this session only; the others are recorded as rejected
    #[arg(long, value_name = "SESSION", conflicts_with = "synthesize")]
    keep: Option<String>,
    /// Why this one is kept
    #[arg(long, value_name = "TEXT", requires = "keep", default_value = "", hide_default_value = true)]
    why: String,
    /// Cancel open steps and calls of the others
    #[arg(long, requires = "keep")]
    cancel: bool,
    /// Replace the messages of all branches by this text
    #[arg(long, value_name = "TEXT")]
    synthesize: Option<String>,
    /// Take the session's side of these files if both sides changed them, e.g. '*.lock'
    #[arg(long, value_name = "PATTERN")]
    ours: Vec<String>,
    /// Take the branch's side of these files
    #[arg(long, value_name = "PATTERN")]
    theirs: Vec<String>,
    /// Always record a conflict for these files
    #[arg(long, value_name = "PATTERN")]
    conflict: Vec<String>,
    /// Merge sessions that have no common ancestor
    #[arg(long)]
    allow_unrelated: bool,
    /// Merge a session into its own fork, and close it
    #[arg(long)]
    allow_parent: bool,
}

/// What a merge did.
#[derive(Serialize)]
struct MergeOutcome {
    /// The `merged` record.
    #[serde(flatten)]
    merged: Reference,
    /// The branches, which are closed now.
    closed: Vec<SessionId>,
    /// What the merge changed in the session's files.
    changed: Vec<Change>,
    /// Paths in conflict.
    conflicts: Vec<Conflict>,
}

impl Merge {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let workspaces = settings.workspaces(false)?;
        let store = workspaces.store();
        let all = [(&self.ours, Driver::Ours), (&self.theirs, Driver::Theirs), (&self.conflict, Driver::Conflict)];
        let rules = all.into_iter().flat_map(|(patterns, driver)| patterns.iter().cloned().map(move |p| (p, driver)));
        let drivers = settings.config()?.drivers(rules.collect())?;
        let into = expression::resolve_session(store, &self.into).await?;
        let mut ids = Vec::new();
        for branch in &self.branches {
            let id = expression::resolve_session(store, branch).await?;
            if id == into {
                let help = "`@` is the session that changed last: name the session to merge into";
                return Err(expression::usage_error(format!("cannot merge {branch} into itself\n  help: {help}")));
            }
            if ids.contains(&id) {
                return Err(expression::usage_error(format!("{branch} is named twice")));
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
        for id in &ids {
            branches.push(store.open(*id, settings.actor()).await?);
        }
        if !self.allow_parent {
            let lineage = View::of(store, into, None).await?.lineage().await?;
            if let Some(parent) = ids.iter().find(|id| lineage.iter().any(|ancestor| ancestor.session == **id)) {
                return Err(expression::usage_error(format!(
                    "{0} was forked from {1}, and merging {1} into it closes {1}\n  \
                     help: `rath merge {1} {0}` merges the fork; --allow-parent merges the parent anyway",
                    into.short(),
                    parent.short()
                )));
            }
        }
        if !self.allow_unrelated {
            let base = View::of(store, into, None).await?;
            for id in &ids {
                if base.divergence(&View::of(store, *id, None).await?).await?.base.is_none() {
                    return Err(expression::usage_error(format!(
                        "sessions {} and {} have no common ancestor\n  help: --allow-unrelated merges them anyway",
                        into.short(),
                        id.short()
                    )));
                }
            }
        }
        // Changes that no record has would not be merged.
        for one in std::iter::once(&mut session).chain(&mut branches) {
            workspaces.check_saved(one).await?;
        }
        let before = session.state().workspace.clone();
        let closed: Vec<SessionId> = branches.iter().map(Session::id).collect();
        let mut session = session.merge_with(branches, how, &drivers).await?;
        let merged = session.head();
        workspaces.sync(&mut session).await?;
        let files = FileComparison::between(&**store, before, session.state().workspace.clone()).await?;
        let conflicts = session.state().conflicts.clone();
        let answer = if conflicts.is_empty() { Answer::Yes } else { Answer::No };
        if settings.json {
            let outcome = MergeOutcome { merged, closed, changed: files.changes, conflicts };
            output::json("rath.merge/1", &outcome)?;
            return Ok(answer);
        }
        output::answer(merged.point())?;
        let names: Vec<_> = closed.iter().map(|id| style::session(id.short())).collect();
        output::remark(format_args!("merged and closed {} into {}", names.join(", "), style::session(into.short())));
        output::remark_changes(&files.changes);
        for conflict in &conflicts {
            let path = output::escaped(&conflict.path.to_string());
            output::remark(format_args!("{} {path}: {}", style::bad("conflict"), conflict.kind));
        }
        if !conflicts.is_empty() {
            output::remark(format_args!("  help: `rath resolve --list {0}`, `rath resolve {0}:PATH …`", into.short()));
        }
        Ok(answer)
    }
}
