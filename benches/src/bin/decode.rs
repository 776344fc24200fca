//! What it costs to read a streamed answer, against parsing the JSON that it holds.

#![allow(clippy::disallowed_methods, reason = "a benchmark owns its clock")]

use std::hint::black_box;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use rath_bench::{Better, Row, median, millis, time};
use rath_model::sse;
use rath_recordings::{Api, Exchange, files, read};
use serde_json::Value;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MEGABYTE: usize = 1 << 20;
/// What a socket gives at once.
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
    for (name, which) in [("Messages", Api::Messages), ("Chat", Api::Chat), ("Responses", Api::Responses)] {
        let some = streams.iter().filter(|(api, _)| *api == which);
        measure(&format!("decode 1 MB of recorded SSE: {name}"), &some.cloned().collect::<Vec<_>>())?;
    }
    measure("decode 1 MB of recorded SSE", &streams)
}

/// Puts the streams where the peers' side finds them.
fn write(streams: &[(Api, Vec<u8>)], to: &Path) -> Result<()> {
    for (at, (api, stream)) in streams.iter().enumerate() {
        let name = format!("{api:?}-{at}").to_lowercase();
        std::fs::write(to.join(name), stream)?;
    }
    Ok(())
}

/// All recorded streams of the APIs that are read.
fn streams(folder: &Path) -> Result<Vec<(Api, Vec<u8>)>> {
    let mut streams = Vec::new();
    for file in files(&folder.join("recordings"))? {
        let exchanges = read(&std::fs::read(file)?).unwrap_or_default();
        let of_ours = |exchange: Exchange| Some((Api::of(&exchange).ok()?, exchange.body));
        streams.extend(exchanges.into_iter().filter(Exchange::is_stream).filter_map(of_ours));
    }
    Ok(streams)
}

/// Both sides do the same streams over and over until a megabyte is read.
fn measure(name: &str, streams: &[(Api, Vec<u8>)]) -> Result<()> {
    let bytes: usize = streams.iter().map(|(_, stream)| stream.len()).sum();
    ensure!(bytes > 0, "no stream is recorded in it");
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

fn decode(streams: &[(Api, Vec<u8>)]) {
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
    let mut each = |event: sse::Event<'_>| payloads.push(event.data.to_vec());
    let mut parser = sse::Parser::default();
    let _ = parser.feed(stream, &mut each).and_then(|()| parser.finish(&mut each));
    payloads
}
