//! Looks for bytes in the files of a store, as somebody would who found its disk.

use std::fs;
use std::path::{Path, PathBuf};

/// The files below `dir` that hold `secret`: as it is, or, in a pack, behind its compression.
pub fn find(dir: &Path, secret: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(find(&path, secret));
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let packed = path.extension().is_some_and(|end| end == "pack");
        if has(&bytes, secret) || packed && contents(&bytes).iter().any(|content| has(content, secret)) {
            found.push(path);
        }
    }
    found
}

fn has(bytes: &[u8], secret: &str) -> bool {
    bytes.windows(secret.len()).any(|part| part == secret.as_bytes())
}

/// Whatever in a pack can be decompressed, whether the index names it or not.
fn contents(pack: &[u8]) -> Vec<Vec<u8>> {
    const HEAD: usize = 53;
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0usize, |n, byte| n << 8 | usize::from(*byte));
    let mut contents = Vec::new();
    let mut at = 0;
    while let Some(begin) = pack[at..].windows(4).position(|part| part == b"blob").map(|found| at + found) {
        at = begin + 4;
        let Some(head) = pack.get(begin..begin + HEAD) else { break };
        let stored = number(&head[45..53]);
        if let Some(bytes) = pack.get(begin + HEAD..(begin + HEAD).saturating_add(stored)) {
            contents.extend(zstd::stream::decode_all(bytes));
        }
    }
    contents
}
