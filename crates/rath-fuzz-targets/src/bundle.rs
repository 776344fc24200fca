//! Bundles: zip files as they come, and what may stand in one: records, a zero byte, the graph.

use std::io::{Cursor, Write as _};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Feeds it one input.
pub fn bundle(data: &[u8]) {
    if data.starts_with(b"PK") {
        let _ = rath_audit::bundle::read_zip(data);
        return;
    }
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (records, graph) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let mut bundle = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    // Sums that are right, so that what is looked at is what stands in the files.
    let mut files = vec![("README.md", &b"read me"[..]), ("graph.json", graph), ("verify.py", b"pass")];
    let sums: String = files.iter().map(|(name, bytes)| format!("{}  {name}\n", rath::Digest::of(bytes))).collect();
    files.extend([("SHA256SUMS", sums.as_bytes()), ("records.jsonl", records)]);
    for (name, bytes) in files {
        bundle.start_file(name, stored).expect("a name");
        bundle.write_all(bytes).expect("room");
    }
    let bundle = bundle.finish().expect("a zip").into_inner();
    if let Ok(contents) = rath_audit::bundle::read_zip(&bundle) {
        // What is believed has a line for every record that it speaks of.
        assert_eq!(contents.graph.records, records.iter().filter(|byte| **byte == b'\n').count() as u64);
    }
}
