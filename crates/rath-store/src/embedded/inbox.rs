//! What others leave for whoever holds a session.

use rath_core::SessionId;
use rath_core::protocol::Standing;
use rath_core::store::{Error, Post, Result};
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
    let query = "SELECT body FROM posts WHERE session = ?1 AND taken = 0 ORDER BY no";
    let Some(mut query) = schema::prepare_added(db, query, schema::RUNS_AND_POSTS)? else { return Ok(Vec::new()) };
    let mut rows = query.query([session.0.as_bytes()]).map_err(sql)?;
    let mut posts = Vec::new();
    while let Some(row) = rows.next().map_err(sql)? {
        let body = row.get_ref(0).and_then(|body| Ok(body.as_blob()?)).map_err(sql)?;
        posts.push(serde_json::from_slice(body).map_err(|error| Error::machine("reading a post", error))?);
    }
    Ok(posts)
}
