//! Processes that wait for each other's commits and posts.

use std::sync::Arc;

use pollster::block_on;
use rath_core::store::{Change, Cursor, Post, Posted};
use rath_core::{Actor, Kind, Session, Store, Time, View};
use rath_store::Embedded;

use crate::support::{child, child_dir, fresh};

/// Says something in a session of its own, then posts to every other one.
#[test]
fn committer() {
    let Some(dir) = child_dir() else { return };
    let store = Embedded::open(dir).unwrap();
    let mut session = Session::create(&store, Actor::program("committer"));
    session.user("from another process").unwrap();
    block_on(session.publish()).unwrap();
    for row in block_on(store.sessions(rath_core::store::Query::default())).unwrap() {
        let what = Posted::Message { text: "from another process".into() };
        let post =
            Post { id: row.id.to_string(), session: row.id, actor: Actor::program("committer"), time: Time(1), what };
        block_on(store.post(post)).unwrap();
    }
}

#[test]
fn commits_and_posts_of_another_process_wake() {
    let (store, dir) = fresh();
    let store: Arc<dyn Store> = store;
    let mut session = Session::create(&store, Actor::program("test"));
    block_on(session.publish()).unwrap();
    let posts = store.watch(Change::Posts);
    let mut commits = store.commits(Cursor::start()).kinds(&[Kind::User]);
    let mut other = child("watching::committer", &dir.path().join("store"));
    let page = block_on(commits.next()).unwrap();
    assert_eq!(page.records.len(), 1);
    block_on(posts.changed());
    while block_on(store.posts(session.id())).unwrap().is_empty() {
        block_on(posts.changed());
    }
    assert!(other.wait().unwrap().success());
    drop(block_on(View::of(&store, page.records[0].session(), None)).unwrap());
}
