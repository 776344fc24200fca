//! Measures erasing one record in a store of 1 GB: mostly packs, with versions of files and many records. Prints one
//! JSON row per line.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads its own arguments")]

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use pollster::block_on;
use rath_bench::{Better, Row, median, millis, time};
use rath_core::body::Placed;
use rath_core::store::Store;
use rath_core::{Actor, Blob, Reference, Session};
use rath_store::{Embedded, ErasePlan};
use rath_workspace::{Options, Workspace};

/// The allocator of the `rath` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const AREA: &str = "ledger";

/// The content of the store.
struct Sizes {
    /// The number of incompressible attachments of 1 MB.
    megabytes: u64,
    /// The number of other records, of 500 bytes each.
    records: usize,
    /// The number of files in a version, and of versions.
    files: usize,
    versions: usize,
    repeat: usize,
}

fn main() -> Result<()> {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let sizes = match quick {
        true => Sizes { megabytes: 32, records: 10_000, files: 200, versions: 4, repeat: 3 },
        false => Sizes { megabytes: 1000, records: 200_000, files: 2000, versions: 50, repeat: 5 },
    };
    let dir = tempfile::Builder::new().prefix("rath-bench-").tempdir_in(std::env::current_dir()?.join("target"))?;
    let path = dir.path().join("store");
    let attached = fill(&path, dir.path(), &sizes)?;
    let size = Embedded::open_as(&path, "bench")?.size()?;
    let (mut each, mut freed) = (Vec::new(), Vec::new());
    for turn in 0..sizes.repeat {
        let store = Embedded::open_as(&path, "bench")?;
        let doomed = ErasePlan { records: vec![attached[turn * attached.len() / sizes.repeat]], ..ErasePlan::new() };
        let (took, done) = time(|| store.destroy(&store.lock_for_erase()?, &doomed, &mut |_| {}));
        let done = done?;
        ensure!(done.records == 1 && done.blobs == 1 && done.packs == 1, "{done:?}");
        each.push(millis(took));
        freed.push(done.freed as f64 / 1e6);
    }
    ensure!(Embedded::open_as(&path, "bench")?.verify(None, &mut |_, _| {})?.is_valid());
    let name = format!("erase one record in a store of {:.1} GB, space returned", size as f64 / 1e9);
    Row::new(AREA, &name, "ms", median(each), 2000.0, Better::Less).print();
    Row::new(AREA, "given back by erasing a record with 1 MB attached", "MB", median(freed), 1.0, Better::More).print();
    Ok(())
}

/// 1 MB of incompressible bytes.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(1 << 20);
    while bytes.len() < 1_000_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

/// Fills a store. Returns the records with attachments.
fn fill(path: &Path, dir: &Path, sizes: &Sizes) -> Result<Vec<Reference>> {
    let store: Arc<dyn Store> = Embedded::create(path)?;
    let mut attached = Vec::new();
    let mut session = Session::create(&store, Actor::program("bench"));
    for n in 0..sizes.megabytes {
        let blob = Blob::new(noise(n), "application/octet-stream");
        session.user_with("Look at this.", [("a.bin", blob)])?;
        attached.push(session.head());
        block_on(session.publish())?;
    }
    for chunk in 0..sizes.records.div_ceil(1000) {
        let mut session = Session::create(&store, Actor::program("bench"));
        for n in 0..1000 {
            session.user(format!("{chunk} {n} {}", "x".repeat(480)))?;
        }
        block_on(session.publish())?;
    }
    let (root, state) = (dir.join("files"), dir.join("state"));
    for n in 0..sizes.files {
        let below = root.join(format!("d{}", n / 20));
        std::fs::create_dir_all(&below)?;
        std::fs::write(below.join(format!("{n}.txt")), format!("file {n}\n").repeat(50))?;
    }
    for n in 0..sizes.versions {
        std::fs::write(root.join("d0/changing.txt"), format!("version {n}"))?;
        let version = Workspace::open(store.clone(), &root, &state, &Options::default())?.0.save()?.version;
        session.append(Placed {
            backend: "host".into(),
            isolated: false,
            origin: None,
            in_place: false,
            workspace: Some(version),
            base: None,
            setup: None,
            why: None,
        })?;
        block_on(session.publish())?;
    }
    Ok(attached)
}
