//! A rule for which files may change.

use globset::{Glob, GlobSet, GlobSetBuilder};
use rath_core::files::{TreeStore, diff};
use rath_core::{Error, ErrorKind, Result, Session, View};

use super::{Validation, Validator};

/// Accepts the work if only files that match one of the patterns changed since the session was forked. For a session that
/// is not a fork, it compares with the first version of its files.
///
/// Patterns are those of `.gitignore` without negation: `src/**`, `*.md`.
pub fn only_paths<P: AsRef<str>>(patterns: impl IntoIterator<Item = P>) -> Result<ChangedPaths> {
    let (mut set, mut names) = (GlobSetBuilder::new(), Vec::new());
    for pattern in patterns {
        let pattern = pattern.as_ref();
        set.add(Glob::new(pattern).map_err(|why| ErrorKind::Workflow(why.into()))?);
        names.push(pattern.to_owned());
    }
    let allowed = set.build().map_err(|why| ErrorKind::Workflow(why.into()))?;
    Ok(ChangedPaths { allowed, patterns: names })
}

/// See [`only_paths`].
#[derive(Clone, Debug)]
pub struct ChangedPaths {
    allowed: GlobSet,
    patterns: Vec<String>,
}

impl ChangedPaths {
    async fn check(&self, session: &Session) -> Result<Validation> {
        // The session is the validator's fork: its origin is the session that is validated.
        let Some(now) = &session.state().workspace else { return Ok(Validation::accept()) };
        let before = match session.origin() {
            Some(origin) => first_version(session, origin.session).await?,
            None => None,
        };
        let Some(before) = before else { return Ok(Validation::accept()) };
        let trees = TreeStore::new(&**session.store());
        let changed = diff(&trees, &before, now).await?;
        let bad: Vec<String> =
            changed.iter().map(|change| change.path.to_string()).filter(|path| !self.allowed.is_match(path)).collect();
        match bad.as_slice() {
            [] => Ok(Validation::accept()),
            bad => Ok(Validation::reject(format!("these paths may not change: {}", bad.join(", ")))),
        }
    }
}

/// The files at the point where `id` was forked, or its first version.
async fn first_version(session: &Session, id: rath_core::SessionId) -> Result<Option<rath_core::files::Version>> {
    let start = View::of(session.store(), id, Some(0)).await?;
    if let Some(version) = &start.state().workspace {
        return Ok(Some(version.clone()));
    }
    let last = session.origin().map_or(0, |origin| origin.seq);
    for seq in 1..=last {
        let view = View::of(session.store(), id, Some(seq)).await?;
        if let Some(version) = &view.state().workspace {
            return Ok(Some(version.clone()));
        }
    }
    Ok(None)
}

impl Validator for ChangedPaths {
    fn name(&self) -> String {
        format!("only paths {}", self.patterns.join(", "))
    }

    async fn validate(&self, session: Session) -> Result<(Session, Validation)> {
        match self.check(&session).await {
            Ok(validation) => Ok((session, validation)),
            Err(error) => Err(Error::with_sessions(error, vec![session])),
        }
    }
}
