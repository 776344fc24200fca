//! Runs the targets with the inputs in `fuzz/corpus` and variations of them. Unlike the fuzzer, this needs no nightly
//! compiler.

#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use rath_testkit::scaled;

/// Runs a target with every corpus input, unchanged and with bytes changed, duplicated and cut off.
fn replay(name: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut inputs: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    inputs.sort();
    assert!(!inputs.is_empty());
    for path in inputs {
        let input = fs::read(&path).unwrap();
        target(&input);
        let mut random = SmallRng::seed_from_u64(1);
        for round in 0..scaled(100) {
            let varied = vary(input.clone(), &mut random);
            if catch_unwind(|| target(&varied)).is_err() {
                let kept = std::env::temp_dir().join(format!("rath-{name}-{round}"));
                fs::write(&kept, &varied).unwrap();
                panic!("a variation of {} fails: {}", path.display(), kept.display());
            }
        }
    }
}

fn vary(mut input: Vec<u8>, random: &mut SmallRng) -> Vec<u8> {
    for _ in 0..random.random_range(1..=4) {
        let at = random.random_range(0..=input.len());
        match random.random_range(0..5) {
            0 => input.truncate(at),
            1 => input.insert(at, random.random()),
            2 => {
                let piece = input[at..(at + 16).min(input.len())].to_vec();
                input.splice(at..at, piece);
            }
            3 if at < input.len() => input[at] ^= 1 << random.random_range(0..8),
            _ if at < input.len() => input[at] = random.random(),
            _ => {}
        }
    }
    input
}

#[test]
fn bundles() {
    replay("bundle", rath_fuzz_targets::bundle);
}

#[test]
fn expressions() {
    replay("expression", rath_fuzz_targets::expression);
}

#[test]
fn imports() {
    replay("import", rath_fuzz_targets::import);
}

#[test]
fn records() {
    replay("record", rath_fuzz_targets::record);
}

#[test]
fn shell_commands() {
    replay("shell", rath_fuzz_targets::shell);
}

#[test]
fn provider_streams() {
    replay("sse", rath_fuzz_targets::sse);
}
