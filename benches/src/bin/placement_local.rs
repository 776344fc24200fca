//! Measures the isolated sandbox: starting commands, opening, forking with files, saving layers, memory, and the speed
//! of commands. Compares with bubblewrap in the same run, where possible. Prints one JSON row per line.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads its own arguments and runs peers")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use pollster::block_on;
use rath::Workspaces;
use rath::sandbox::{
    Backend, Command as Run, Host, IsolationLevel, Limits, Local, Overlay, Registry, Sandbox, SandboxSpec,
};
use rath::workspaces::PlacementSpec;
use rath_bench::trees::{Dice, make_tree};
use rath_bench::{Better, Row, median, micros, millis, sync_floor, time};
use rath_core::{Actor, Store};
use rath_store::Embedded;
use rath_workspace::{Options, Workspace};

/// The allocator of the `rath` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const AREA: &str = "placement";

/// A measurement, which prints its rows.
type Measure = fn(&Sizes, &Path) -> Result<()>;

struct Sizes {
    files: usize,
    sandboxes: usize,
    work_rounds: usize,
    repeat: usize,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let quick = args.iter().any(|arg| arg == "--quick");
    let only = args.iter().position(|arg| arg == "--only").and_then(|at| args.get(at + 1)).cloned();
    let sizes = match quick {
        true => Sizes { files: 1_000, sandboxes: 50, work_rounds: 1, repeat: 3 },
        false => Sizes { files: 20_000, sandboxes: 1_000, work_rounds: 6, repeat: 7 },
    };
    if Local::new().diagnose().level != Some(IsolationLevel::Ns) {
        eprintln!("  skipped: this machine refuses the tier ns: {:?}", Local::new().diagnose().refusals);
        return Ok(());
    }
    let dir = tempfile::Builder::new().prefix("rath-bench-").tempdir_in(std::env::current_dir()?.join("target"))?;
    let rows: [(&str, Measure); 5] =
        [("start", start), ("layers", layers), ("fork", fork), ("many", many), ("work", work)];
    for (name, row) in rows {
        if only.as_ref().is_none_or(|only| only == name) {
            eprintln!("  {name} …");
            let dir = dir.path().join(name);
            fs::create_dir_all(&dir)?;
            Command::new("sync").status().context("running sync")?;
            row(&sizes, &dir)?;
            rath_workspace::remove_tree(&dir)?;
        }
    }
    Ok(())
}

fn spec(dir: &Path) -> Result<SandboxSpec> {
    let (files, state) = (dir.join("files"), dir.join("state"));
    fs::create_dir_all(&files)?;
    fs::create_dir_all(&state)?;
    Ok(SandboxSpec::new(files, state))
}

fn run(sandbox: &dyn Sandbox, command: Run) -> Result<()> {
    let finished = block_on(async { sandbox.exec(command).await?.finish().await })?;
    ensure!(finished.ended.success(), "{finished:?}");
    Ok(())
}

/// Measures `true` in an open sandbox, without a sandbox, and in a new bubblewrap sandbox.
fn start(sizes: &Sizes, dir: &Path) -> Result<()> {
    let sandbox = block_on(Local::new().open(spec(dir)?))?;
    let has_bwrap = Command::new("bwrap").arg("--version").output().is_ok();
    let (mut ours, mut bare, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..sizes.repeat * 30 {
        let (took, done) = time(|| run(&*sandbox, Run::argv(["true"])));
        done?;
        ours.push(micros(took));
        let (took, done) = time(|| Command::new("true").stdin(Stdio::null()).output());
        ensure!(done?.status.success());
        bare.push(micros(took));
        if has_bwrap {
            let arguments = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "true"];
            let (took, done) = time(|| Command::new("bwrap").args(arguments).stdin(Stdio::null()).output());
            ensure!(done?.status.success(), "bwrap failed");
            theirs.push(micros(took));
        }
    }
    let (ours, floor) = (median(ours), median(bare));
    let name = "`true` in an open sandbox, tier ns (floor: bare fork+exec)";
    Row::new(AREA, name, "us", ours, floor * 4.0, Better::Less).floor(floor).print();
    if has_bwrap {
        let peer = median(theirs);
        let mut row = Row::new(AREA, "the same against a fresh bwrap", "us", ours, peer / 3.0, Better::Less);
        (row.peer, row.peer_name) = (Some(peer), Some("bwrap".into()));
        row.print();
    }
    block_on(sandbox.close())?;
    Ok(())
}

/// Measures opening a sandbox with an existing checkout, and saving after edits.
fn layers(sizes: &Sizes, dir: &Path) -> Result<()> {
    let origin = dir.join("tree");
    let paths = make_tree(&origin, sizes.files)?;
    let store: Arc<dyn Store> = Embedded::create(dir.join("store"))?;
    let options = Options::default();
    let (mut plain, _) = Workspace::open(store.clone(), &origin, &dir.join("origin"), &options)?;
    let version = plain.save()?.version;
    let home = dir.join("home");
    let (took, laid) = time(|| Workspace::create_layered(store.clone(), &home, &home.join("one"), &version, &options));
    let (mut workspace, laid) = laid?;
    ensure!(!laid.reused);
    eprintln!("  the checkout itself took {:.0} ms", millis(took));
    let rath_workspace::OverlayDirs { lowers, upper, work } = workspace.overlay().context("no layers")?;
    let mut spec = spec(&dir.join("box"))?;
    spec.overlay = Some(Overlay { lowers, upper, work });
    spec.mount_path = Some(origin.clone());
    let local = Local::new();
    let mut opens = Vec::new();
    for _ in 0..sizes.repeat * 5 {
        let (took, sandbox) = time(|| block_on(local.open(spec.clone())));
        block_on(sandbox?.suspend())?;
        opens.push(millis(took));
    }
    let name = format!("open a sandbox on an existing checkout of {} files", sizes.files);
    Row::new(AREA, &name, "ms", median(opens), 15.0, Better::Less).print();

    let sandbox = block_on(local.open(spec))?;
    workspace.save()?;
    let mut dice = Dice(5);
    let (sync, _) = sync_floor(dir, 4096, 50)?;
    let mut saves = Vec::new();
    for _ in 0..sizes.repeat {
        for _ in 0..10 {
            let path = paths[dice.roll(paths.len())].strip_prefix(&origin)?.to_owned();
            let line = format!("echo '// edit {}' >> {}", dice.roll(1 << 30), path.display());
            run(&*sandbox, Run::shell(line))?;
        }
        std::thread::sleep(std::time::Duration::from_millis(30));
        let (took, saved) = time(|| workspace.save());
        ensure!(saved?.files as usize >= sizes.files);
        saves.push(millis(took));
    }
    let name = format!("save after 10 edits in {} files, layers (floor: one fdatasync)", sizes.files);
    Row::new(AREA, &name, "ms", median(saves), 5.0 + sync * 1e3, Better::Less).floor(sync * 1e3).print();
    block_on(sandbox.close())?;
    Ok(())
}

/// Measures forking a session with its files, until a command has written on both sides.
fn fork(sizes: &Sizes, dir: &Path) -> Result<()> {
    let origin = dir.join("tree");
    let paths = make_tree(&origin, sizes.files)?;
    let store: Arc<dyn Store> = Embedded::create(dir.join("store"))?;
    let backends = Registry::new().with(Arc::new(Local::new())).with(Arc::new(Host::new()));
    let workspaces = Workspaces::new(store.clone(), dir.join("store/workspaces"), backends);
    let mut session = store.create(Actor::person("bench"));
    block_on(workspaces.assign(&mut session, PlacementSpec::copy_of("local", &origin)))?;
    block_on(workspaces.exec(&mut session, Run::shell("echo one > one"), |_| {}))?;
    let mut dice = Dice(9);
    let mut forks = Vec::new();
    for round in 0..sizes.repeat {
        let path = paths[dice.roll(paths.len())].strip_prefix(&origin)?.to_owned();
        let change = Run::shell(format!("echo '// {round}' >> {}", path.display()));
        block_on(workspaces.exec(&mut session, change, |_| {}))?;
        let (took, done) = time(|| -> Result<_> {
            let (a, mut fork) = time(|| session.fork("bench"));
            let (b, done) = time(|| block_on(workspaces.exec(&mut session, Run::shell("echo ours > side"), |_| {})));
            done?;
            let (c, done) = time(|| block_on(workspaces.exec(&mut fork, Run::shell("echo theirs > side"), |_| {})));
            done?;
            eprintln!("  fork {:.1} ms, ours {:.1} ms, theirs {:.1} ms", millis(a), millis(b), millis(c));
            Ok(fork)
        });
        drop(done?);
        forks.push(millis(took));
    }
    let name = format!("fork with {} files, until both sides have written, recorded and synced", sizes.files);
    Row::new(AREA, &name, "ms", median(forks), 30.0, Better::Less).print();
    Ok(())
}

/// Measures the memory of an idle sandbox as the change of the machine's available memory, including the kernel's.
fn many(sizes: &Sizes, dir: &Path) -> Result<()> {
    let available = || -> Result<f64> {
        let text = fs::read_to_string("/proc/meminfo")?;
        let line = text.lines().find(|line| line.starts_with("MemAvailable:")).context("no MemAvailable")?;
        Ok(line.split_whitespace().nth(1).context("no number")?.parse::<f64>()? / 1e3)
    };
    let local = Local::new();
    let before = available()?;
    let mut open = Vec::new();
    let (took, done) = time(|| -> Result<()> {
        for n in 0..sizes.sandboxes {
            open.push(block_on(local.open(spec(&dir.join(n.to_string()))?))?);
        }
        Ok(())
    });
    done?;
    std::thread::sleep(std::time::Duration::from_secs(1));
    let each = (before - available()?) / sizes.sandboxes as f64;
    let name = format!("memory of each of {} sandboxes open at once, idle (of the whole machine)", sizes.sandboxes);
    Row::new(AREA, &name, "MB", each, 3.0, Better::Less).print();
    eprintln!("  opening them took {:.1} ms each", millis(took) / sizes.sandboxes as f64);
    for sandbox in open {
        block_on(sandbox.close())?;
    }
    Ok(())
}

/// Measures the same work inside and outside the sandbox, alternating: compression, hashing, sorting, and a few hundred
/// short processes.
fn work(sizes: &Sizes, dir: &Path) -> Result<()> {
    let spec = SandboxSpec { limits: Limits { wall_time: None, ..Limits::default() }, ..spec(dir)? };
    let files: PathBuf = spec.directory.clone();
    make_tree(&files.join("tree"), 400)?;
    let script = "cat tree/*/*/*.rs > all; for i in 1 2 3 4 5 6; do gzip -9 < all | sha256sum; sort all | uniq -c | \
                  sort -rn | head -1; for f in tree/part00/module000/*; do wc -l < $f; done; done > out";
    fs::write(files.join("work.sh"), script)?;
    let sandbox = block_on(Local::new().open(spec))?;
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    let mut total = 0.0;
    while total < 10_000.0 * sizes.work_rounds as f64 {
        let (took, done) = time(|| run(&*sandbox, Run::argv(["sh", "work.sh"])));
        done?;
        inside.push(millis(took));
        total += millis(took);
        let (took, done) = time(|| Command::new("sh").arg("work.sh").current_dir(&files).stdin(Stdio::null()).status());
        ensure!(done?.success());
        outside.push(millis(took));
    }
    let floor = median(outside);
    let name = "a test run inside (floor: outside, in turns, 60 s of each)";
    Row::new(AREA, name, "ms", median(inside), floor * 1.03, Better::Less).floor(floor).print();
    block_on(sandbox.close())?;
    Ok(())
}
