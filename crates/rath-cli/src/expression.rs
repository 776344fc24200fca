//! How people name sessions and records: `9f31`, `@`, `9f31@4`, `@-3`, `9f31@~12`, a record's id.

use std::sync::Arc;

use anyhow::Result;
use rath::care::Erasures;
use rath::expression::{Expression, OPERATOR_WORD, Place as At};
use rath::files::Version;
use rath::store::{Lookup, Query, Row, Which};
use rath::{Point, SessionId, Store, View};

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

fn parse(text: &str) -> Result<Expression<'_>> {
    Expression::parse(text).map_err(|_| unclear(format!("{text:?} names no session or record\n\n{HELP}")))
}

/// A place that an expression named.
pub(crate) struct Place {
    pub(crate) session: SessionId,
    pub(crate) seq: u64,
    /// Whether a record was named, not just a session.
    pub(crate) exact: bool,
}

/// Finds what `text` names.
pub(crate) async fn resolve(store: &Arc<dyn Store>, text: &str) -> Result<Place> {
    let parsed = parse(text)?;
    let lower = parsed.base.to_ascii_lowercase();
    let Some(row) = find_session(store, &lower).await? else {
        return find_record(store, text, &lower, &parsed).await;
    };
    let (session, last) = (row.id, row.seq);
    let outside = || unclear(format!("session {} has records 0 to {last}: {text} is not one of them", session.short()));
    let point = match parsed.at {
        At::Head => Point { session, seq: last },
        At::Seq(seq) if seq <= last => Point { session, seq },
        At::Seq(_) => return Err(outside()),
        At::Before(back) => Point { session, seq: last.checked_sub(back).ok_or_else(outside)? },
        At::Back(back) => {
            let found = View::of(store, session, None).await?.back(back).await?;
            found.ok_or_else(|| unclear(format!("{text} goes back further than the history of {}", session.short())))?
        }
    };
    Ok(Place { session: point.session, seq: point.seq, exact: parsed.at != At::Head })
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

/// Finds the session that `text` names; a record is not enough.
pub(crate) async fn resolve_session(store: &Arc<dyn Store>, text: &str) -> Result<SessionId> {
    let place = resolve(store, text).await?;
    match place.exact {
        false => Ok(place.session),
        true => Err(unclear(format!("{text} names a record; a session is needed here"))),
    }
}

async fn find_session(store: &Arc<dyn Store>, base: &str) -> Result<Option<Row>> {
    if base.is_empty() {
        // What was done to the store is no work: who took a session goes on with that one.
        let operator = operator_session(store).await?.map(|operator| operator.id);
        let newest = store.sessions(Query::all().limit(2)).await?;
        return match newest.into_iter().find(|row| Some(row.id) != operator) {
            Some(row) => Ok(Some(row)),
            None => Err(unclear("the store has no sessions yet\n  help: `rath new TITLE` makes one")),
        };
    }
    if base == OPERATOR_WORD {
        let none =
            || unclear("the store has no operator session yet: nobody placed a hold, erased, or made a checkpoint");
        return operator_session(store).await?.ok_or_else(none).map(Some);
    }
    let mut rows = store.sessions(Query::from(Which::Prefix(base.into())).limit(10)).await?;
    match rows.len() {
        0 => Ok(None),
        1 => Ok(rows.pop()),
        _ => {
            let list: Vec<_> = rows
                .iter()
                .map(|row| format!("  {}  {}", row.id.tail(), row.title.as_deref().unwrap_or("")).trim_end().to_owned())
                .collect();
            Err(unclear(format!("{base:?} is the beginning of several sessions:\n{}", list.join("\n"))))
        }
    }
}

/// The session that is the store's account of what was done to it.
pub(crate) async fn operator_session(store: &Arc<dyn Store>) -> Result<Option<Row>> {
    Ok(store.sessions(Which::Run(rath::OPERATOR.into()).into()).await?.into_iter().next())
}

async fn find_record(store: &Arc<dyn Store>, text: &str, base: &str, parsed: &Expression<'_>) -> Result<Place> {
    let nothing = || {
        unclear(format!("there is no session or record {text:?} in this store\n  help: `rath log` lists the sessions"))
    };
    if base.len() < 4 {
        return Err(nothing());
    }
    if let Some((session, gone)) = Erasures::of(store).await?.removed(base).next() {
        let rule = gone.erased.rule.as_deref().unwrap_or("nobody's rule");
        let (by, time) = (&gone.by, crate::time::local(gone.time));
        let see = format!("`rath show {}` is the record of it", gone.record.point());
        return Err(unclear(format!(
            "session {} was removed on {time} by {by}, by the rule {rule}: {}\n  help: {see}",
            session.short(),
            gone.erased.why
        )));
    }
    if parsed.at != At::Head {
        return Err(nothing());
    }
    let found = store.get(Lookup::Prefix(base.into())).await?;
    match &found[..] {
        [] => Err(nothing()),
        [record] => Ok(Place { session: record.session(), seq: record.seq(), exact: true }),
        several => {
            let list: Vec<_> =
                several.iter().map(|record| format!("  {}  {}", record.id().short(), record.point())).collect();
            Err(unclear(format!("{base:?} is the beginning of several records:\n{}", list.join("\n"))))
        }
    }
}
