//! How people name sessions and records: `9f31`, `@`, `9f31@4`, `@-3`, `9f31@~12`, a record's id.

use std::sync::Arc;

use anyhow::Result;
use rath::files::Version;
use rath::query::{self, Place, Unresolved};
use rath::{SessionId, Store, View};
use rath_audit::care::Erasures;

use crate::settings::Settings;

/// Help text shared by all commands that take one.
pub(crate) const HELP: &str = "\
How to name a session or a record:
  9f31c2ab    a session, by any unique prefix of the digits shown
  @           the session that changed last
  operator    the store's own session: holds, erasures, checkpoints, imports
  9f31@4      record 4 of that session
  9f31@-3     the record three before its last
  9f31@~12    twelve parents back, through the fork points
  @-1         as above, of the session that changed last
  5d0b22f1    a record, by any unique prefix of its id
Where files are asked for, also a version by the first eight or more digits of its digest.";

/// An expression that names nothing, or more than one thing.
#[derive(Debug)]
pub(crate) struct Unclear(String);

impl std::fmt::Display for Unclear {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unclear {}

/// A usage error: exit code 2.
pub(crate) fn unclear(text: impl Into<String>) -> anyhow::Error {
    Unclear(text.into()).into()
}

/// Finds what `text` names.
pub(crate) async fn resolve(store: &Arc<dyn Store>, text: &str) -> Result<Place> {
    match query::resolve(store, text).await {
        Ok(place) => Ok(place),
        Err(why) => Err(explained(store, why).await?),
    }
}

/// Finds the session that `text` names; a record is not enough.
pub(crate) async fn resolve_session(store: &Arc<dyn Store>, text: &str) -> Result<SessionId> {
    match query::resolve_session(store, text).await {
        Ok(session) => Ok(session),
        Err(why) => Err(explained(store, why).await?),
    }
}

/// The error with what to do about it.
async fn explained(store: &Arc<dyn Store>, why: Unresolved) -> Result<anyhow::Error> {
    Ok(match why {
        Unresolved::Failed(error) => error.into(),
        Unresolved::NotAnExpression(_) => unclear(format!("{why}\n\n{HELP}")),
        Unresolved::NoSessions => unclear(format!("{why}\n  help: `rath new TITLE` makes one")),
        Unresolved::NotFound { ref base, .. } => match base.len() >= 4 {
            true => removed(store, base).await?,
            false => None,
        }
        .unwrap_or_else(|| unclear(format!("{why}\n  help: `rath log` lists the sessions"))),
        why => unclear(why.to_string()),
    })
}

/// That a session was removed by a rule.
async fn removed(store: &Arc<dyn Store>, base: &str) -> Result<Option<anyhow::Error>> {
    let erasures = Erasures::of(store).await?;
    let Some((session, gone)) = erasures.removed(base).next() else { return Ok(None) };
    let rule = gone.erased.rule.as_deref().unwrap_or("nobody's rule");
    let (by, time) = (&gone.by, crate::time::local(gone.time));
    let see = format!("`rath show {}` is the record of it", gone.record.point());
    Ok(Some(unclear(format!(
        "session {} was removed on {time} by {by}, by the rule {rule}: {}\n  help: {see}",
        session.short(),
        gone.erased.why
    ))))
}

/// Finds the files that `text` names: those of a session or record, or a version by its digest.
pub(crate) async fn version(settings: &Settings, store: &Arc<dyn Store>, text: &str) -> Result<Version> {
    let unknown = match resolve(store, text).await {
        Ok(place) => {
            let view = View::of(store, place.session, Some(place.seq)).await?;
            let none = || unclear(format!("{text} has no files\n  help: `rath place` says where a session works"));
            return view.state().workspace.clone().ok_or_else(none);
        }
        Err(unknown) => unknown,
    };
    // What is neither session nor record may be the digest of a tree.
    match text.len() >= 8 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        true => settings.embedded()?.version(&text.to_ascii_lowercase())?.ok_or(unknown),
        false => Err(unknown),
    }
}
