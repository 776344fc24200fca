//! Watching the commits and posts of other processes.

use std::sync::Arc;

use pollster::block_on;
use rath_core::store::{Cursor, Post, PostContent, WatchTopic};
use rath_core::{Actor, Kind, Session, Store, Time, View};
use rath_store::Embedded;

use crate::support::{child, child_dir, fresh};

/// Child process: commits to its own session, then posts to every session.
#[test]
fn committer() {
    let Some(dir) = child_dir() else { return };
    let store = Embedded::open(dir).unwrap();
    let mut session = Session::create(&store, Actor::program("committer"));
    session.user("from another process").unwrap();
    block_on(session.publish()).unwrap();
    for row in block_on(store.sessions(rath_core::store::Query::default())).unwrap() {
        let what = PostContent::Message { text: "from another process".into() };
        let post =
            Post { id: row.id.to_string(), session: row.id, actor: Actor::program("committer"), time: Time(1), what };
        block_on(store.post(post)).unwrap();
    }
}

#[test]
fn commits_and_posts_of_another_process_notify_watchers() {
    let (store, dir) = fresh();
    let store: Arc<dyn Store> = store;
    let mut session = Session::create(&store, Actor::program("test"));
    block_on(session.publish()).unwrap();
    let posts = store.watch(WatchTopic::Posts);
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
