//! The target for bundles. Input that starts with `PK` is read as a zip file; other input is records, a zero byte and a
//! graph, which are put into a valid zip.

use std::io::{Cursor, Write as _};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Runs the target with one input.
pub fn bundle(data: &[u8]) {
    if data.starts_with(b"PK") {
        let _ = rath_audit::bundle::read_zip(data);
        return;
    }
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (records, graph) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let mut bundle = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    // The checksums are correct, so that the files are checked themselves.
    let mut files = vec![("README.md", &b"read me"[..]), ("graph.json", graph), ("verify.py", b"pass")];
    let sums: String = files.iter().map(|(name, bytes)| format!("{}  {name}\n", rath::Digest::of(bytes))).collect();
    files.extend([("SHA256SUMS", sums.as_bytes()), ("records.jsonl", records)]);
    for (name, bytes) in files {
        bundle.start_file(name, stored).expect("a name");
        bundle.write_all(bytes).expect("room");
    }
    let bundle = bundle.finish().expect("a zip").into_inner();
    if let Ok(contents) = rath_audit::bundle::read_zip(&bundle) {
        // An accepted bundle has one line for every record that it counts.
        assert_eq!(contents.graph.records, records.iter().filter(|byte| **byte == b'\n').count() as u64);
    }
}
