//! Resolves expressions that name sessions and records: `9f31`, `@`, `9f31@4`, `@-3`, `9f31@~12`, a record's id.

use std::sync::Arc;

use anyhow::Result;
use rath::files::Version;
use rath::query::{self, Location, UnresolvedExpression};
use rath::{SessionId, Store, View};
use rath_audit::admin::Erasures;

use crate::settings::Settings;

/// The last line of the help of commands that take an expression.
pub(crate) const HELP: &str = "`rath help addressing` shows how to name sessions, records and files";

/// A wrong command line, or a name of something that does not exist or is ambiguous.
#[derive(Debug)]
pub(crate) struct UsageError(String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// A usage error: exit code 2.
pub(crate) fn usage_error(text: impl Into<String>) -> anyhow::Error {
    UsageError(text.into()).into()
}

/// Finds what `text` names.
pub(crate) async fn resolve(store: &Arc<dyn Store>, text: &str) -> Result<Location> {
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
async fn explained(store: &Arc<dyn Store>, why: UnresolvedExpression) -> Result<anyhow::Error> {
    Ok(match why {
        UnresolvedExpression::Failed(error) => error.into(),
        UnresolvedExpression::NotAnExpression(_) => {
            usage_error(format!("{why}\n  help: `rath ls` lists the sessions; {HELP}"))
        }
        UnresolvedExpression::NoSessions => {
            usage_error(format!("{why}\n  help: `rath run TASK` or `rath new TITLE` creates one"))
        }
        UnresolvedExpression::NotFound { ref base, .. } => {
            let deleted = if base.len() >= 4 { removed(store, base).await? } else { None };
            deleted.unwrap_or_else(|| usage_error(format!("{why}\n  help: `rath ls` lists the sessions")))
        }
        why => usage_error(why.to_string()),
    })
}

/// The error for a session that a retention rule deleted.
async fn removed(store: &Arc<dyn Store>, base: &str) -> Result<Option<anyhow::Error>> {
    let erasures = Erasures::of(store).await?;
    let Some((session, gone)) = erasures.removed(base).next() else { return Ok(None) };
    let rule = gone.erased.rule.as_deref().unwrap_or("(none)");
    let (by, time) = (&gone.by, crate::time::local(gone.time));
    let see = format!("`rath show {}` shows the record", gone.record.point());
    Ok(Some(usage_error(format!(
        "session {} was deleted on {time} by {by}, under the rule {rule}: {}\n  help: {see}",
        session.short(),
        gone.erased.why
    ))))
}

/// Finds the files that `text` names: those of a session or record, or a version by its digest.
pub(crate) async fn version(settings: &Settings, store: &Arc<dyn Store>, text: &str) -> Result<Version> {
    let unknown = match resolve(store, text).await {
        Ok(place) => {
            let view = View::of(store, place.session, Some(place.seq)).await?;
            let none = || {
                usage_error(format!(
                    "{text} has no files\n  help: `rath workspace set {text} --in DIR` gives a session files"
                ))
            };
            return view.state().workspace.clone().ok_or_else(none);
        }
        Err(unknown) => unknown,
    };
    // A text that names no session or record may be the digest of a version.
    if text.len() >= 8 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        settings.embedded()?.version(&text.to_ascii_lowercase())?.ok_or(unknown)
    } else {
        Err(unknown)
    }
}
