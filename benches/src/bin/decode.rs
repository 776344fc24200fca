//! Measures decoding a streamed answer, compared with parsing only its JSON.

#![allow(clippy::disallowed_methods, reason = "a benchmark owns its clock")]

use std::hint::black_box;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use rath_bench::{Better, Row, median, millis, time};
use rath_model::sse;
use rath_recordings::{Exchange, RecordedApi, files, read};
use serde_json::Value;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MEGABYTE: usize = 1 << 20;
/// The number of bytes in one read from a socket.
const PIECE: usize = 16 << 10;

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).filter(|word| !word.starts_with("--")).map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/providers"));
    if !folder.is_dir() {
        eprintln!("skipped: no recordings in {}", folder.display());
        return Ok(());
    }
    let streams = streams(&folder)?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, to] = &words[..]
        && flag == "--write"
    {
        return write(&streams, Path::new(to));
    }
    for (name, which) in
        [("Messages", RecordedApi::Messages), ("Chat", RecordedApi::Chat), ("Responses", RecordedApi::Responses)]
    {
        let some = streams.iter().filter(|(api, _)| *api == which);
        measure(&format!("decode 1 MB of recorded SSE: {name}"), &some.cloned().collect::<Vec<_>>())?;
    }
    measure("decode 1 MB of recorded SSE", &streams)
}

/// Writes the streams to files for the peers' script.
fn write(streams: &[(RecordedApi, Vec<u8>)], to: &Path) -> Result<()> {
    for (at, (api, stream)) in streams.iter().enumerate() {
        let name = format!("{api:?}-{at}").to_lowercase();
        std::fs::write(to.join(name), stream)?;
    }
    Ok(())
}

/// All recorded streams of the supported APIs.
fn streams(folder: &Path) -> Result<Vec<(RecordedApi, Vec<u8>)>> {
    let mut streams = Vec::new();
    for file in files(&folder.join("recordings"))? {
        let exchanges = read(&std::fs::read(file)?).unwrap_or_default();
        let of_ours = |exchange: Exchange| Some((RecordedApi::of(&exchange).ok()?, exchange.body));
        streams.extend(exchanges.into_iter().filter(Exchange::is_stream).filter_map(of_ours));
    }
    Ok(streams)
}

/// Both programs decode the same streams repeatedly, 1 MB in total.
fn measure(name: &str, streams: &[(RecordedApi, Vec<u8>)]) -> Result<()> {
    let bytes: usize = streams.iter().map(|(_, stream)| stream.len()).sum();
    ensure!(bytes > 0, "there are no recorded streams");
    let payloads: Vec<Vec<u8>> = streams.iter().flat_map(|(_, stream)| payloads(stream)).collect();
    let times = MEGABYTE.div_ceil(bytes);
    let scale = MEGABYTE as f64 / (bytes * times) as f64;
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..41 {
        floor.push(millis(time(|| (0..times).for_each(|_| parse(&payloads))).0) * scale);
        ours.push(millis(time(|| (0..times).for_each(|_| decode(streams))).0) * scale);
    }
    let (ours, floor) = (median(ours), median(floor));
    Row::new("loop", name, "ms", ours, 3.0 * floor, Better::Less).floor(floor).print();
    Ok(())
}

fn decode(streams: &[(RecordedApi, Vec<u8>)]) {
    for (api, stream) in streams {
        let _ = black_box(api.decode(stream.chunks(PIECE)));
    }
}

fn parse(payloads: &[Vec<u8>]) {
    for payload in payloads {
        let _ = black_box(serde_json::from_slice::<Value>(payload));
    }
}

fn payloads(stream: &[u8]) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    let mut each = |event: sse::SseEvent<'_>| payloads.push(event.data.to_vec());
    let mut parser = sse::SseParser::default();
    let _ = parser.feed(stream, &mut each).and_then(|()| parser.finish(&mut each));
    payloads
}
