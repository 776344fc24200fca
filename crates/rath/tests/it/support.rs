//! Support for these tests: a store with workspaces, and directories as maps.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use pollster::block_on;
use rath::files::{TreeStore, Version};
use rath::sandbox::{Backend as _, Command, Host, Local, Registry};
use rath::store::Scan;
use rath::{Actor, Embedded, Kind, Point, Record, Session, SessionId, Store, View, Workspaces};
use tempfile::TempDir;

/// The isolated backend. The machine is probed once.
pub(crate) fn local() -> &'static Local {
    static LOCAL: OnceLock<Local> = OnceLock::new();
    LOCAL.get_or_init(Local::new)
}

/// Whether this machine supports isolation. Tests that need it are skipped otherwise.
pub(crate) fn isolates() -> bool {
    let diagnosis = local().diagnose();
    if diagnosis.level.is_none() {
        rath_testkit::Requirement::Sandbox.skip(format_args!("{:?}", diagnosis.refusals));
    }
    diagnosis.level.is_some()
}

/// Whether copies on `local` consist of layers on this machine.
pub(crate) fn layers() -> bool {
    static LAYERS: OnceLock<bool> = OnceLock::new();
    let layers = *LAYERS.get_or_init(|| isolates() && local().supports_layers_in(&std::env::temp_dir()));
    if !layers {
        rath_testkit::Requirement::Mounts.skip("no layers on this machine");
    }
    layers
}

/// The backends that this machine supports.
pub(crate) fn backends() -> &'static [&'static str] {
    if isolates() { &["host", "local"] } else { &["host"] }
}

/// Files by path. A directory ends in `/` and has no content.
pub(crate) type Tree = BTreeMap<String, String>;

pub(crate) struct Shop {
    pub(crate) dir: TempDir,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) workspaces: Workspaces,
}

impl Shop {
    pub(crate) fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let store = Embedded::create(dir.path().join("store")).unwrap();
        let workspaces = workspaces(&store, dir.path());
        Self { dir, store, workspaces }
    }

    /// Opens the store and the workspaces again, as another process would.
    pub(crate) fn reopen(&mut self) {
        self.store = rath::InMemory::new();
        self.workspaces = workspaces(&self.store, self.dir.path());
        self.store = Embedded::open(self.dir.path().join("store")).unwrap();
        self.workspaces = workspaces(&self.store, self.dir.path());
    }

    /// Second workspaces with the same store and home.
    pub(crate) fn second(&self) -> Workspaces {
        workspaces(&self.store, self.dir.path())
    }

    /// The same, with another `local` backend.
    pub(crate) fn second_on(&self, local: Local) -> Workspaces {
        workspaces_on(&self.store, self.dir.path(), local)
    }

    pub(crate) fn create(&self) -> Session {
        self.store.create(Actor::person("ada"))
    }

    pub(crate) fn open(&self, id: SessionId) -> Session {
        block_on(self.store.open(id, Actor::person("ada"))).unwrap()
    }

    /// A directory next to the store.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path.canonicalize().unwrap()
    }

    /// The copy that a session works in.
    pub(crate) fn copy(&self, id: SessionId) -> PathBuf {
        self.dir.path().join("home").join(id.to_string()).join("files")
    }

    /// The state directory of the copy.
    pub(crate) fn state(&self, id: SessionId) -> PathBuf {
        self.dir.path().join("home").join(id.to_string())
    }

    /// The upper layer of the session.
    pub(crate) fn upper(&self, id: SessionId) -> PathBuf {
        self.state(id).join("upper")
    }

    /// The supervisor process of the session's sandbox.
    pub(crate) fn supervisor(&self, session: &Session) -> Option<u32> {
        let id = session.id();
        rath::sandbox::supervisor_pid(&self.state(id).join(format!("sandbox-{id}")))
    }

    pub(crate) fn is_layered(&self, session: &Session) -> bool {
        self.state(session.id()).join("stack.json").exists()
    }

    pub(crate) fn files(&self, version: &Version) -> Tree {
        block_on(tree_of(&self.store, version))
    }

    pub(crate) fn view(&self, point: Point) -> View {
        block_on(View::of(&self.store, point.session, Some(point.seq))).unwrap()
    }

    /// The session's current files.
    pub(crate) fn now(&self, session: &Session) -> Tree {
        self.files(session.state().workspace.as_ref().unwrap())
    }

    pub(crate) fn sh(&self, session: &mut Session, line: &str) -> rath::workspaces::ExecReport {
        block_on(self.workspaces.exec(session, Command::shell(line), |_| {})).unwrap()
    }

    pub(crate) fn verify(&self) {
        let store = Embedded::open_as(self.dir.path().join("store"), "test").unwrap();
        let report = store.verify(None, &mut |_, _| {}).unwrap();
        assert!(report.is_valid(), "{:?}", report.findings);
    }
}

/// The files of a version.
pub(crate) async fn tree_of(store: &Arc<dyn Store>, version: &Version) -> Tree {
    let forest = TreeStore::new(&**store);
    let mut tree = Tree::new();
    for (path, node) in forest.list(version).await.unwrap() {
        let path = path.lossy().into_owned();
        match node.is_directory() {
            true => tree.insert(path + "/", String::new()),
            false => {
                let content = forest.content(node.sha256).await.unwrap();
                tree.insert(path, String::from_utf8(content.to_vec()).unwrap())
            }
        };
    }
    tree
}

pub(crate) fn workspaces(store: &Arc<dyn Store>, dir: &Path) -> Workspaces {
    workspaces_on(store, dir, local().clone())
}

fn workspaces_on(store: &Arc<dyn Store>, dir: &Path, local: Local) -> Workspaces {
    let backends = Registry::new().with(Arc::new(Host::new())).with(Arc::new(local));
    let env = vec![("PATH".into(), std::env::var_os("PATH").unwrap())];
    Workspaces::new(store.clone(), dir.join("home"), backends).with_env(env)
}

/// The files on disk.
pub(crate) fn disk(root: &Path) -> Tree {
    fn walk(root: &Path, under: &str, tree: &mut Tree) {
        for entry in fs::read_dir(root.join(under)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{under}{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => {
                    tree.insert(format!("{path}/"), String::new());
                    walk(root, &format!("{path}/"), tree);
                }
                false => {
                    tree.insert(path.clone(), fs::read_to_string(root.join(&path)).unwrap());
                }
            }
        }
    }
    let mut tree = Tree::new();
    walk(root, "", &mut tree);
    tree
}

/// Writes or removes a file. Removes a directory with its last file.
pub(crate) fn put(root: &Path, path: &str, content: Option<&str>) {
    let file = root.join(path);
    match content {
        Some(content) => {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        None if file.exists() => {
            fs::remove_file(&file).unwrap();
            if file.parent().unwrap() != root {
                let _ = fs::remove_dir(file.parent().unwrap());
            }
        }
        None => {}
    }
}

/// As [`put`], in a map.
pub(crate) fn put_in(tree: &mut Tree, path: &str, content: Option<&str>) {
    let parent = path.rsplit_once('/').map(|(parent, _)| format!("{parent}/"));
    match content {
        Some(content) => {
            tree.extend(parent.map(|parent| (parent, String::new())));
            tree.insert(path.into(), content.into());
        }
        None if tree.remove(path).is_some() => {
            if let Some(parent) = parent.filter(|parent| tree.keys().filter(|key| key.starts_with(parent)).count() == 1)
            {
                tree.remove(&parent);
            }
        }
        None => {}
    }
}

pub(crate) fn tree(entries: &[(&str, &str)]) -> Tree {
    let mut tree = Tree::new();
    entries.iter().for_each(|(path, content)| put_in(&mut tree, path, Some(content)));
    tree
}

/// The records of a kind.
pub(crate) fn records(shop: &Shop, session: &Session, kind: Kind) -> Vec<Record> {
    let scan = Scan::session(session.id(), 0, session.head().seq).kinds(&[kind]);
    block_on(shop.store.scan(scan)).unwrap().records
}

/// The number of records of a kind.
pub(crate) fn count(shop: &Shop, session: &Session, kind: Kind) -> usize {
    records(shop, session, kind).len()
}
