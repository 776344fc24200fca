//! The inboxes: posts from other processes to sessions.

use std::collections::HashSet;

use rath_core::SessionId;
use rath_core::protocol::PostStatus;
use rath_core::store::{Error, IoErrorKind, Post, Result};
use rath_core::verify::FindingKind;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::schema::{self, sql};

/// The status of a post.
pub(super) fn status(db: &Connection, id: &str) -> Result<PostStatus> {
    let query = db.prepare_cached("SELECT taken FROM posts WHERE id = ?1");
    let consumed: Option<bool> =
        query.and_then(|mut query| query.query_row([id], |row| row.get(0)).optional()).map_err(sql)?;
    Ok(match consumed {
        None => PostStatus::Unknown,
        Some(false) => PostStatus::Waiting,
        Some(true) => PostStatus::Consumed,
    })
}

/// Stores a post.
pub(super) fn put(db: &Connection, post: &Post) -> Result<()> {
    let body = serde_json::to_vec(post).map_err(|error| Error::machine("writing a post", error))?;
    db.prepare_cached("INSERT INTO posts (id, session, body) VALUES (?1, ?2, ?3)")
        .and_then(|mut insert| insert.execute(params![post.id, post.session.0.as_bytes(), body]))
        .map_err(sql)?;
    Ok(())
}

/// Marks a post as consumed and empties it, in the commit of the record that it became. A post that never arrived gets
/// a row too, so that it is not delivered later.
pub(super) fn consume(db: &Connection, id: &str) -> Result<()> {
    let consume = "INSERT INTO posts (id, session, body, taken) VALUES (?1, x'', x'', 1)
        ON CONFLICT (id) DO UPDATE SET taken = 1, body = x''";
    db.prepare_cached(consume).and_then(|mut consume| consume.execute([id])).map_err(sql)?;
    Ok(())
}

/// The queued posts of a session, oldest first. Every turn of an agent reads them; a partial index makes the usual
/// empty result fast.
pub(super) fn waiting(db: &Connection, session: SessionId) -> Result<Vec<Post>> {
    let query = "SELECT id, body FROM posts WHERE session = ?1 AND taken = 0 ORDER BY no";
    let Some(mut query) = schema::prepare_added(db, query, schema::RUNS_AND_POSTS)? else { return Ok(Vec::new()) };
    let mut rows = query.query([session.0.as_bytes()]).map_err(sql)?;
    let mut posts = Vec::new();
    while let Some(row) = rows.next().map_err(sql)? {
        let id: String = row.get(0).map_err(sql)?;
        let body = row.get_ref(1).map_err(sql)?.as_blob().unwrap_or_default();
        let damaged =
            |why| Error::with_kind(format!("reading post {id} to session {session}"), IoErrorKind::Damaged, why);
        posts.push(parse(&id, session, body).map_err(damaged)?);
    }
    Ok(posts)
}

/// The sessions with queued posts.
pub(super) fn sessions_with_posts(db: &Connection) -> Result<HashSet<SessionId>> {
    let query = "SELECT DISTINCT session FROM posts WHERE taken = 0";
    let Some(mut query) = schema::prepare_added(db, query, schema::RUNS_AND_POSTS)? else {
        return Ok(HashSet::new());
    };
    let rows = query.query_map([], |row| Ok(SessionId(uuid::Uuid::from_bytes(row.get(0)?)))).map_err(sql)?;
    rows.collect::<rusqlite::Result<_>>().map_err(sql)
}

/// Parses a post. Its id and session must be those of its row.
fn parse(id: &str, session: SessionId, body: &[u8]) -> std::result::Result<Post, String> {
    let post: Post = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    match post.id == id && post.session == session {
        true => Ok(post),
        false => Err(format!("the row has the text of post {} to session {}", post.id, post.session.short())),
    }
}

/// Checks the inboxes, of all sessions or of those in `only`. Returns the session, the kind and the description of each
/// fault. A post has no digest, so its text is authenticated only by the record that it becomes.
pub(super) fn faults(
    db: &Connection,
    only: Option<&HashSet<SessionId>>,
) -> Result<Vec<(Option<SessionId>, FindingKind, String)>> {
    // All rows are read: the index lists only queued posts, and a consumed post with a body is a fault.
    let query = "SELECT p.id, p.session, p.body, p.taken, s.no FROM posts p LEFT JOIN sessions s ON s.id = p.session
        ORDER BY p.no";
    let Some(mut query) = schema::prepare_added(db, query, schema::RUNS_AND_POSTS)? else { return Ok(Vec::new()) };
    let mut rows = query.query([]).map_err(sql)?;
    let mut faults = Vec::new();
    while let Some(row) = rows.next().map_err(sql)? {
        let id = row.get_ref(0).map_err(sql)?;
        let id = id.as_str().map_or_else(|_| "without an id".to_owned(), str::to_owned);
        let session = row.get(1).map(|bytes| SessionId(uuid::Uuid::from_bytes(bytes))).ok();
        if only.is_some_and(|only| session.is_none_or(|session| !only.contains(&session))) {
            continue;
        }
        let listed = row.get::<_, Option<i64>>(4).map_err(sql)?.is_some();
        let body = row.get_ref(2).map_err(sql)?;
        let body = body.as_blob().unwrap_or_default();
        let what = match (row.get(3), session) {
            (Ok(1), _) if body.is_empty() => continue,
            (Ok(1), _) => (FindingKind::Index, format!("post {id} was consumed, but still has a body")),
            (Ok(0), Some(session)) if listed => match parse(&id, session, body) {
                Ok(_) => continue,
                Err(why) => (FindingKind::Unreadable, format!("queued post {id} cannot be read: {why}")),
            },
            (Ok(0), _) => (FindingKind::Index, format!("post {id} is queued for a session that is not in the store")),
            _ => (FindingKind::Index, format!("post {id} is neither queued nor consumed")),
        };
        faults.push((session, what.0, what.1));
    }
    Ok(faults)
}
