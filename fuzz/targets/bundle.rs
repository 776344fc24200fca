//! Bundles: zip files as they come, and what may stand in one: records, a zero byte, the graph.

#![no_main]

use std::io::{Cursor, Write as _};

use libfuzzer_sys::fuzz_target;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

fuzz_target!(|data: &[u8]| {
    if data.starts_with(b"PK") {
        let _ = rath::bundle::read_zip(data);
        return;
    }
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (records, graph) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let mut bundle = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for (name, bytes) in [("SHA256SUMS", &b"\n"[..]), ("graph.json", graph), ("records.jsonl", records)] {
        bundle.start_file(name, stored).expect("a name");
        bundle.write_all(bytes).expect("room");
    }
    let bundle = bundle.finish().expect("a zip").into_inner();
    // Nothing vouches for these files: whatever is in them, it is no bundle.
    assert!(rath::bundle::read_zip(&bundle).is_err());
});
