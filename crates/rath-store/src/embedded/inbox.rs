//! What others leave for whoever holds a session.

use std::collections::HashSet;

use rath_core::SessionId;
use rath_core::protocol::Standing;
use rath_core::store::{Error, Post, Result, Trouble};
use rath_core::verify::What;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::schema::{self, sql};

/// Where a post stands.
pub(super) fn standing(db: &Connection, id: &str) -> Result<Standing> {
    let query = db.prepare_cached("SELECT taken FROM posts WHERE id = ?1");
    let taken: Option<bool> =
        query.and_then(|mut query| query.query_row([id], |row| row.get(0)).optional()).map_err(sql)?;
    Ok(match taken {
        None => Standing::Unknown,
        Some(false) => Standing::Waiting,
        Some(true) => Standing::Taken,
    })
}

/// Puts a post there.
pub(super) fn put(db: &Connection, post: &Post) -> Result<()> {
    let body = serde_json::to_vec(post).map_err(|error| Error::machine("writing a post", error))?;
    db.prepare_cached("INSERT INTO posts (id, session, body) VALUES (?1, ?2, ?3)")
        .and_then(|mut insert| insert.execute(params![post.id, post.session.0.as_bytes(), body]))
        .map_err(sql)?;
    Ok(())
}

/// Empties a post that a record says now. Its id stays known, also if it never came here.
pub(super) fn take(db: &Connection, id: &str) -> Result<()> {
    let take = "INSERT INTO posts (id, session, body, taken) VALUES (?1, x'', x'', 1)
        ON CONFLICT (id) DO UPDATE SET taken = 1, body = x''";
    db.prepare_cached(take).and_then(|mut take| take.execute([id])).map_err(sql)?;
    Ok(())
}

/// What waits for a session, oldest first. Asked at every turn, and mostly there is nothing: the index says so.
pub(super) fn waiting(db: &Connection, session: SessionId) -> Result<Vec<Post>> {
    let query = "SELECT id, body FROM posts WHERE session = ?1 AND taken = 0 ORDER BY no";
    let Some(mut query) = schema::prepare_added(db, query, schema::RUNS_AND_POSTS)? else { return Ok(Vec::new()) };
    let mut rows = query.query([session.0.as_bytes()]).map_err(sql)?;
    let mut posts = Vec::new();
    while let Some(row) = rows.next().map_err(sql)? {
        let id: String = row.get(0).map_err(sql)?;
        let body = row.get_ref(1).map_err(sql)?.as_blob().unwrap_or_default();
        let damaged = |why| Error::trouble(format!("reading post {id} to session {session}"), Trouble::Damaged, why);
        posts.push(read(&id, session, body).map_err(damaged)?);
    }
    Ok(posts)
}

/// The sessions for which posts wait.
pub(super) fn sessions_with_posts(db: &Connection) -> Result<HashSet<SessionId>> {
    let query = "SELECT DISTINCT session FROM posts WHERE taken = 0";
    let Some(mut query) = schema::prepare_added(db, query, schema::RUNS_AND_POSTS)? else {
        return Ok(HashSet::new());
    };
    let rows = query.query_map([], |row| Ok(SessionId(uuid::Uuid::from_bytes(row.get(0)?)))).map_err(sql)?;
    rows.collect::<rusqlite::Result<_>>().map_err(sql)
}

/// A post as it was put there, under its own name and into its own inbox.
fn read(id: &str, session: SessionId, body: &[u8]) -> std::result::Result<Post, String> {
    let post: Post = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    match post.id == id && post.session == session {
        true => Ok(post),
        false => Err(format!("it is post {} to session {}", post.id, post.session.short())),
    }
}

/// What is wrong in the inboxes, or in those of these sessions: whose it is, and what. A post has no digest, so what it
/// says is not vouched for before a record says it.
pub(super) fn wrong(
    db: &Connection,
    only: Option<&HashSet<SessionId>>,
) -> Result<Vec<(Option<SessionId>, What, String)>> {
    // All are read, once for however many sessions: the index lists what waits, not what pretends to be taken.
    let query = "SELECT p.id, p.session, p.body, p.taken, s.no FROM posts p LEFT JOIN sessions s ON s.id = p.session
        ORDER BY p.no";
    let Some(mut query) = schema::prepare_added(db, query, schema::RUNS_AND_POSTS)? else { return Ok(Vec::new()) };
    let mut rows = query.query([]).map_err(sql)?;
    let mut wrong = Vec::new();
    while let Some(row) = rows.next().map_err(sql)? {
        let id = row.get_ref(0).map_err(sql)?;
        let id = id.as_str().map_or_else(|_| "without a name".to_owned(), str::to_owned);
        let session = row.get(1).map(|bytes| SessionId(uuid::Uuid::from_bytes(bytes))).ok();
        if only.is_some_and(|only| session.is_none_or(|session| !only.contains(&session))) {
            continue;
        }
        let listed = row.get::<_, Option<i64>>(4).map_err(sql)?.is_some();
        let body = row.get_ref(2).map_err(sql)?;
        let body = body.as_blob().unwrap_or_default();
        let what = match (row.get(3), session) {
            (Ok(1), _) if body.is_empty() => continue,
            (Ok(1), _) => (What::Index, format!("post {id} was taken, and still says something")),
            (Ok(0), Some(session)) if listed => match read(&id, session, body) {
                Ok(_) => continue,
                Err(why) => (What::Unreadable, format!("post {id}, which waits in its inbox, cannot be read: {why}")),
            },
            (Ok(0), _) => (What::Index, format!("post {id} waits for a session that is not in the store")),
            _ => (What::Index, format!("post {id} neither waits nor was it taken")),
        };
        wrong.push((session, what.0, what.1));
    }
    Ok(wrong)
}
