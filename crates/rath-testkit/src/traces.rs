//! Searches all files of a store for bytes, to check that an erasure left nothing.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

/// The files below `dir` that contain `secret`, either plainly or in compressed form in a pack or a database row.
pub fn find(dir: &Path, secret: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(find(&path, secret));
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let compressed = match path.file_name().and_then(|name| name.to_str()) {
            Some(name) if name.ends_with(".pack") => contents(&bytes),
            // This includes backups.
            Some(name) if name.starts_with("rath.db") => [rows(&path), contents(&bytes)].concat(),
            _ => Vec::new(),
        };
        if has(&bytes, secret) || compressed.iter().any(|content| has(content, secret)) {
            found.push(path);
        }
    }
    found
}

fn has(bytes: &[u8], secret: &str) -> bool {
    bytes.windows(secret.len()).any(|part| part == secret.as_bytes())
}

/// Decompresses every entry of a pack, including entries that are not in the index.
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

/// Decompresses the segments and inline blobs of a database. Reads a copy, because opening the database would change
/// its WAL.
fn rows(database: &Path) -> Vec<Vec<u8>> {
    let copy = tempfile::tempdir().unwrap();
    for suffix in ["", "-wal"] {
        let from = format!("{}{suffix}", database.display());
        let _ = fs::copy(from, copy.path().join(format!("rath.db{suffix}")));
    }
    let read = |query: &str| -> rusqlite::Result<Vec<Vec<u8>>> {
        let db = Connection::open(copy.path().join("rath.db"))?;
        let mut query = db.prepare(query)?;
        query.query_map([], |row| row.get(0))?.collect()
    };
    // A damaged database has no readable rows, and an older one has no inline blobs.
    let segments = read("SELECT data FROM segments").unwrap_or_default();
    let inline_blobs = read("SELECT entry FROM riders").unwrap_or_default();
    let segments = segments.iter().filter_map(|data| zstd::stream::decode_all(&data[..]).ok());
    segments.chain(inline_blobs.iter().flat_map(|entry| contents(entry))).collect()
}
