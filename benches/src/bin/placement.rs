//! Measures versioned files: save, restore, diff, blame, and commands through a backend. Compares with git in the same
//! run. Prints one JSON row per line.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads its own arguments and runs git")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use pollster::block_on;
use rath::Workspaces;
use rath::sandbox::{Backend as _, ByteRange, Host, Registry, SandboxSpec};
use rath::workspaces::PlacementSpec;
use rath_bench::trees::{Dice, edit, make_tree, text};
use rath_bench::{Better, Row, median, micros, millis, time};
use rath_core::files::{TreeStore, diff};
use rath_core::{Actor, InMemory, Store, View};
use rath_store::Embedded;
use rath_workspace::{Options, Workspace, disk_use};

/// The allocator of the `rath` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const AREA: &str = "placement";

/// A measurement, which prints its rows.
type Measure = fn(&Sizes, &Path) -> Result<()>;

struct Sizes {
    small: usize,
    large: usize,
    saves: usize,
    repeat: usize,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let quick = args.iter().any(|arg| arg == "--quick");
    let only = args.iter().position(|arg| arg == "--only").and_then(|at| args.get(at + 1)).cloned();
    let sizes = match quick {
        true => Sizes { small: 200, large: 1_000, saves: 50, repeat: 3 },
        false => Sizes { small: 1_000, large: 20_000, saves: 1_000, repeat: 7 },
    };
    let dir = tempfile::Builder::new().prefix("rath-bench-").tempdir_in(std::env::current_dir()?.join("target"))?;
    let rows: [(&str, Measure); 7] = [
        ("exec", exec),
        ("files", files),
        ("blame", blame),
        ("edits", edits),
        ("restore", restore),
        ("first_save", first_save),
        ("disk", disk),
    ];
    for (name, row) in rows {
        if only.as_ref().is_none_or(|only| only == name) {
            eprintln!("  {name} …");
            let dir = dir.path().join(name);
            fs::create_dir_all(&dir)?;
            // Sync, so that pending writes of the previous measurement do not affect this one.
            Command::new("sync").status().context("running sync")?;
            row(&sizes, &dir)?;
            fs::remove_dir_all(&dir)?;
        }
    }
    Ok(())
}

fn git(dir: &Path, arguments: &str) -> Result<String> {
    let out = Command::new("git")
        .args(["-c", "gc.auto=0", "-c", "core.fsmonitor=false"])
        .args(arguments.split(' '))
        .current_dir(dir)
        .stderr(Stdio::null())
        .output()
        .context("running git")?;
    ensure!(out.status.success(), "git {arguments} failed");
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

fn store(dir: &Path) -> Result<Arc<dyn Store>> {
    Ok(Embedded::create(dir.join("store"))?)
}

fn open(store: &Arc<dyn Store>, root: &Path, dir: &Path) -> Result<Workspace> {
    Ok(Workspace::open(store.clone(), root, &dir.join("state"), &Options::default())?.0)
}

fn first_save(sizes: &Sizes, dir: &Path) -> Result<()> {
    let root = dir.join("tree");
    make_tree(&root, sizes.large)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..3 {
        let git_dir = root.join(".git");
        git(&root, "init -q")?;
        let (took, done) = time(|| git(&root, "add -A").and_then(|_| git(&root, "write-tree")));
        done?;
        theirs.push(millis(took));
        fs::remove_dir_all(git_dir)?;
        let at = dir.join(format!("ours{round}"));
        fs::create_dir_all(&at)?;
        let store = store(&at)?;
        let mut workspace = open(&store, &root, &at)?;
        let (took, saved) = time(|| workspace.save());
        ensure!(saved?.files as usize >= sizes.large);
        ours.push(millis(took));
    }
    let peer = median(theirs);
    let name = format!("first save of {} files (git: add -A, write-tree)", sizes.large);
    let mut row = Row::new(AREA, &name, "ms", median(ours), peer / 3.0, Better::Less);
    (row.peer, row.peer_name) = (Some(peer), Some("git".into()));
    row.print();
    Ok(())
}

fn edits(sizes: &Sizes, dir: &Path) -> Result<()> {
    for (files, target) in [(sizes.small, 4.0), (sizes.large, 60.0)] {
        let dir = dir.join(files.to_string());
        let root = dir.join("tree");
        let paths = make_tree(&root, files)?;
        git(&root, "init -q")?;
        git(&root, "add -A")?;
        let store = store(&dir)?;
        open(&store, &root, &dir)?.save()?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let mut dice = Dice(7);
        for _ in 0..sizes.repeat {
            let (took, done) = time(|| git(&root, "add -A").and_then(|_| git(&root, "write-tree")));
            done?;
            theirs.push(millis(took));
            edit(&paths, 10, &mut dice)?;
            // As in a new process: the index is read from disk.
            let (took, done) = time(|| open(&store, &root, &dir).and_then(|mut workspace| Ok(workspace.save()?)));
            ensure!(done?.read <= 30);
            ours.push(millis(took));
            git(&root, "add -A")?;
        }
        let peer = median(theirs);
        let name = format!("save after 10 edits, {files} files (git: nothing changed)");
        let mut row = Row::new(AREA, &name, "ms", median(ours), peer.min(target), Better::Less);
        (row.peer, row.peer_name) = (Some(peer), Some("git".into()));
        row.print();
    }
    Ok(())
}

fn restore(sizes: &Sizes, dir: &Path) -> Result<()> {
    let root = dir.join("tree");
    let paths = make_tree(&root, sizes.large)?;
    let store = store(dir)?;
    let before = open(&store, &root, dir)?.save()?.version;
    let (mut restores, mut diffs) = (Vec::new(), Vec::new());
    let mut dice = Dice(9);
    for _ in 0..sizes.repeat {
        edit(&paths, 10, &mut dice)?;
        let after = open(&store, &root, dir)?.save()?.version;
        let (took, changes) = time(|| block_on(diff(&TreeStore::new(&*store), &before, &after)));
        ensure!(changes?.len() <= 10);
        diffs.push(millis(took));
        let (took, done) =
            time(|| open(&store, &root, dir).and_then(|mut workspace| Ok(workspace.restore(Some(&after), &before)?)));
        ensure!(done?.version.same_files(&before));
        restores.push(millis(took));
    }
    let files = sizes.large;
    Row::new(AREA, &format!("restore 10 edits in {files} files"), "ms", median(restores), 60.0, Better::Less).print();
    let name = format!("diff of two versions of {files} files, 10 changed");
    Row::new(AREA, &name, "ms", median(diffs), 30.0, Better::Less).print();
    Ok(())
}

fn disk(sizes: &Sizes, dir: &Path) -> Result<()> {
    let root = dir.join("tree");
    let paths = make_tree(&root, sizes.large)?;
    git(&root, "init -q")?;
    git(&root, "add -A")?;
    git(&root, "write-tree")?;
    let store = store(dir)?;
    let mut workspace = open(&store, &root, dir)?;
    workspace.save()?;
    let held = || disk_use(&dir.join("store"));
    let (ours_before, git_before) = (held(), disk_use(&root.join(".git/objects")));
    let mut dice = Dice(11);
    let mut halfway = 0;
    for n in 0..sizes.saves {
        edit(&paths, 1, &mut dice)?;
        workspace.save()?;
        git(&root, "add -A")?;
        git(&root, "write-tree")?;
        if n + 1 == sizes.saves / 2 {
            halfway = held() - ours_before;
        }
    }
    let (ours, peer) = (held() - ours_before, disk_use(&root.join(".git/objects")) - git_before);
    let name = format!("disk for {} saves with one edit each, {} files (git: loose objects)", sizes.saves, sizes.large);
    let mut row = Row::new(AREA, &name, "KB", ours as f64 / 1e3, peer as f64 / 1e3, Better::Less);
    (row.peer, row.peer_name) = (Some(peer as f64 / 1e3), Some("git".into()));
    row.print();
    let name = "the second half of those saves against the first (linear is 1)";
    let ratio = (ours - halfway) as f64 / halfway as f64;
    Row::new(AREA, name, "ratio", ratio, 1.2, Better::Less).print();
    Ok(())
}

fn workspaces(store: Arc<dyn Store>, dir: &Path) -> Workspaces {
    let env = vec![("PATH".into(), std::env::var_os("PATH").unwrap_or_default())];
    Workspaces::new(store, dir.join("workspaces"), Registry::new().with(Arc::new(Host::new()))).with_env(env)
}

fn blame(sizes: &Sizes, dir: &Path) -> Result<()> {
    let root = dir.join("tree");
    fs::create_dir_all(&root)?;
    let path = root.join("file.txt");
    let mut dice = Dice(13);
    fs::write(&path, text(&mut dice, 20_000))?;
    let store = store(dir)?;
    let workspaces = workspaces(store.clone(), dir);
    let mut session = store.create(Actor::person("bench"));
    block_on(workspaces.assign(&mut session, PlacementSpec::in_place("host", &root)))?;
    for _ in 0..sizes.saves {
        edit(std::slice::from_ref(&path), 1, &mut dice)?;
        block_on(workspaces.save(&mut session))?;
    }
    let mut took = Vec::new();
    for _ in 0..sizes.repeat {
        let (one, blame) = time(|| {
            let view = block_on(View::of(&store, session.id(), None))?;
            block_on(view.blame(&"file.txt".into()))
        });
        ensure!(blame?.origins.len() > sizes.saves / 2);
        took.push(millis(one));
    }
    let name = format!("blame of a file changed {} times", sizes.saves);
    Row::new(AREA, &name, "ms", median(took), 100.0, Better::Less).print();
    Ok(())
}

fn exec(sizes: &Sizes, dir: &Path) -> Result<()> {
    let store = InMemory::new();
    let workspaces = workspaces(store.clone(), dir);
    let mut session = store.create(Actor::person("bench"));
    block_on(workspaces.assign(&mut session, PlacementSpec::empty("host")))?;
    let rounds = sizes.repeat * 50;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (took, done) = time(|| Command::new("true").stdin(Stdio::null()).output());
        ensure!(done?.status.success());
        bare.push(micros(took));
        let run = rath::sandbox::Command::argv(["true"]);
        let (took, done) = time(|| block_on(workspaces.exec(&mut session, run, |_| {})));
        ensure!(done?.finished.ended.success());
        ours.push(micros(took));
    }
    let floor = median(bare);
    let name = "exec `true` through host, evidence recorded in memory (floor: bare fork+exec)";
    Row::new(AREA, name, "us", median(ours), floor * 1.5, Better::Less).floor(floor).print();
    Ok(())
}

fn files(sizes: &Sizes, dir: &Path) -> Result<()> {
    let (root, state) = (dir.join("files"), dir.join("state"));
    fs::create_dir_all(&root)?;
    fs::create_dir_all(&state)?;
    let sandbox = block_on(Host::new().open(SandboxSpec::new(&root, &state)))?;
    let bytes = [b'x'; 1024];
    let (mut writes, mut reads) = (Vec::new(), Vec::new());
    for n in 0..sizes.repeat * 50 {
        let path = PathBuf::from(format!("f{}", n % 16));
        let (took, done) = time(|| block_on(sandbox.write(&path, &bytes, None)));
        done?;
        writes.push(micros(took));
        let (took, read) = time(|| block_on(sandbox.read(&path, ByteRange::ALL)));
        ensure!(read?.bytes.len() == 1024);
        reads.push(micros(took));
    }
    Row::new(AREA, "write 1 KiB through the backend", "us", median(writes), f64::MAX, Better::Less).bare().print();
    Row::new(AREA, "read 1 KiB through the backend", "us", median(reads), f64::MAX, Better::Less).bare().print();
    Ok(())
}
