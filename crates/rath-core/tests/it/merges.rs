//! Merges of many branches: in fork order whichever finished first, and at a cost that grows only with their number.

use std::sync::Arc;

use pollster::block_on;
use rath_core::body::{Forked, Merged, Placed};
use rath_core::files::{FilePath, Node, NodeKind, Tree, TreeEntry, TreeStore, Version};
use rath_core::store::Scan;
use rath_core::{Actor, Blob, ErrorKind, How, InMemory, Kind, Result, Session, Store, View};
use rath_testkit::{CrashPoint, CrashingStore};

const KEY: &str = "many hands";

async fn input(session: &mut Session) -> Result<()> {
    session.user("Share the work.").map(|_| ())
}

/// Four branches from two points, merged in the order given by `shuffle`, and a question.
async fn share(mut session: Session, shuffle: &[usize]) -> Result<Session> {
    let mut branches = Vec::new();
    for (at, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        if at == 2 {
            session.user("and then")?;
        }
        let mut branch = session.fork(name);
        branch.assistant(name)?;
        branches.push(Some(branch));
    }
    let finished: Vec<_> = shuffle.iter().filter_map(|at| branches[*at].take()).collect();
    let mut session = session.merge(finished, How::Append).await?;
    match session.ask("Further?").await {
        Ok(_) => Ok(session),
        Err(error) => Err(error.with_sessions(vec![session])),
    }
}

/// The reasons for the forks, as recorded in the merge.
async fn merged(store: &Arc<dyn Store>, id: rath_core::SessionId) -> Vec<String> {
    let scan = Scan::session(id, 0, 99).kinds(&[Kind::Merged]);
    let body: Merged = store.scan(scan).await.unwrap().records[0].body().unwrap();
    body.branches.into_iter().filter_map(|branch| branch.why).collect()
}

#[test]
fn branches_are_merged_in_fork_order_whichever_finished_first() {
    block_on(async {
        let orders = [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]];
        for (first, order) in orders.iter().enumerate() {
            let store: Arc<dyn Store> = InMemory::new();
            // The branches finish in a different order in every process.
            for order in [order, &orders[(first + 1) % 3], &orders[(first + 2) % 3]] {
                let code = async |session: Session| share(session, order).await;
                let waiting = store.run(KEY, Actor::program("test"), &code, input).await.unwrap_err();
                let ErrorKind::Waiting(id) = *waiting.kind() else { panic!("{waiting}") };
                drop(waiting);
                assert_eq!(merged(&store, id).await, ["a", "b", "c", "d"]);
                let context = View::of(&store, id, None).await.unwrap().context().await.unwrap();
                let said: Vec<_> = context.iter().map(|message| message.body.to_string()).collect();
                let answers: Vec<_> = said.iter().filter(|said| said.len() == 1).map(String::as_str).collect();
                assert_eq!(answers, ["a", "b", "c", "d"], "{said:?}");
            }
        }
    });
}

#[test]
fn merging_another_set_of_branches_diverges() {
    block_on(async {
        let store: Arc<dyn Store> = InMemory::new();
        let all = async |session: Session| share(session, &[0, 1, 2, 3]).await;
        assert!(store.run(KEY, Actor::program("test"), &all, input).await.is_err());
        let some = async |session: Session| share(session, &[0, 1, 2]).await;
        let error = store.run(KEY, Actor::program("test"), &some, input).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Diverged(_)), "{error}");
    });
}

#[test]
fn a_merge_killed_midway_gives_the_same_result() {
    block_on(async {
        let (mut commits, mut died) = (0, true);
        while died {
            let store: Arc<dyn Store> = InMemory::new();
            let mortal = CrashingStore::new(store.clone(), commits, CrashPoint::After);
            let dying: Arc<dyn Store> = mortal.clone();
            let early = async |session: Session| share(session, &[3, 1, 0, 2]).await;
            drop(dying.run(KEY, Actor::program("test"), &early, input).await);
            died = mortal.is_dead();
            let interrupted = async |session: Session| share(session, &[2, 3, 1, 0]).await;
            let waiting = store.run(KEY, Actor::program("test"), &interrupted, input).await.unwrap_err();
            let ErrorKind::Waiting(id) = *waiting.kind() else { panic!("{waiting}") };
            assert_eq!(merged(&store, id).await, ["a", "b", "c", "d"], "killed at commit {commits}");
            commits += 1;
        }
        assert!(commits > 2, "{commits}");
    });
}

#[test]
fn sessions_outside_the_run_keep_their_position() {
    block_on(async {
        let store: Arc<dyn Store> = InMemory::new();
        let mut other = store.create(Actor::program("other"));
        other.user("from elsewhere").unwrap();
        other.publish().await.unwrap();
        let mut elsewhere = Some(other.fork("from elsewhere"));
        let other_store = store.clone();
        let id = elsewhere.as_ref().unwrap().id();
        let mut session = other_store.begin_run(KEY, Actor::program("test"), input).await.unwrap();
        session.enter("run").unwrap();
        let (one, two) = (session.fork("one"), session.fork("two"));
        let given = [Some(two), elsewhere.take(), Some(one)].into_iter().flatten();
        let session = session.merge(given, How::Append).await.unwrap();
        let scan = Scan::session(session.id(), 0, 99).kinds(&[Kind::Merged]);
        let body: Merged = store.scan(scan).await.unwrap().records[0].body().unwrap();
        assert_eq!(body.branches[1].session, id);
        let first = View::of(&store, body.branches[0].session, Some(0)).await.unwrap();
        assert_eq!(first.record().body::<Forked>().unwrap().why, "one");
    });
}

/// A version with a shared file and one of its own name and content.
async fn version(store: &Arc<dyn Store>, own: &str) -> Version {
    let tree_store = TreeStore::new(&**store);
    let mut tree = Tree::default();
    for name in [own, "shared"] {
        let blob = Blob::new(name.as_bytes().to_vec(), "text/plain");
        let (sha256, size) = (blob.reference.digest, blob.reference.bytes);
        store.blob_put(vec![blob]).await.unwrap();
        let node = Node { kind: NodeKind::File, mode: 0o644, sha256, size };
        tree.entries.push(TreeEntry { name: FilePath::from(name), node });
    }
    Version { tree: tree_store.put(tree).await.unwrap(), rules: None }
}

fn placed(workspace: Version) -> Placed {
    let (backend, isolated, in_place) = ("test".into(), true, false);
    Placed { backend, isolated, origin: None, in_place, workspace: Some(workspace), base: None, setup: None, why: None }
}

/// The number of store reads in a merge of `branches` published branches.
async fn reads_of_a_merge(branches: usize, with_files: bool) -> u64 {
    let memory: Arc<dyn Store> = InMemory::new();
    let mortal = CrashingStore::new(memory, u64::MAX, CrashPoint::Before);
    let store: Arc<dyn Store> = mortal.clone();
    let mut session = store.create(Actor::program("test"));
    session.user("Share the work.").unwrap();
    if with_files {
        session.append(placed(version(&store, "own").await)).unwrap();
    }
    session.publish().await.unwrap();
    let mut finished = Vec::new();
    for at in 0..branches {
        let mut branch = session.fork(format!("{at}"));
        branch.assistant(format!("done {at}")).unwrap();
        if with_files {
            branch.append(placed(version(&store, &format!("own {at}")).await)).unwrap();
        }
        branch.publish().await.unwrap();
        // As in a later process, with nothing cached.
        let id = branch.id();
        drop(branch);
        finished.push(store.open(id, Actor::program("test")).await.unwrap());
    }
    let before = mortal.reads();
    let session = session.merge(finished, How::FilesOnly { without_files: Vec::new() }).await.unwrap();
    let reads = mortal.reads() - before;
    if with_files {
        let merged = session.state().workspace.clone().unwrap();
        assert_eq!(TreeStore::new(&*store).list(&merged).await.unwrap().len(), branches + 1);
    }
    reads
}

#[test]
fn the_cost_of_a_merge_is_linear_in_its_branches() {
    block_on(async {
        for with_files in [false, true] {
            let (few, many) = (reads_of_a_merge(150, with_files).await, reads_of_a_merge(600, with_files).await);
            let (a_few, a_many) = (few.div_ceil(150), many.div_ceil(600));
            assert!(a_many <= a_few + 1, "with files: {with_files}; {few} reads for 150, {many} for 600 branches");
            assert!(a_many < 20, "{many} reads for 600 branches");
        }
    });
}
