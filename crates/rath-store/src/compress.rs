//! Compression and decompression with zstd. Each thread keeps its own contexts.

use std::cell::RefCell;
use std::io::{self, Read as _};

use zstd::bulk::{Compressor, Decompressor};

/// Fast, and the result is at most 10 % larger than at zstd's default level on source code.
const LEVEL: i32 = 1;

/// The largest output buffer, in bytes, that a thread keeps for reuse.
const MAX_KEPT_BUFFER: usize = 1 << 20;

/// The most bytes that are allocated because of the content size in a frame's header.
const MAX_TRUSTED: u64 = 16 << 20;

/// Compresses bytes to one zstd frame with the content size in its header.
pub(crate) fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    thread_local! {
        static COMPRESSOR: RefCell<Option<(Compressor<'static>, Vec<u8>)>> = const { RefCell::new(None) };
    }
    COMPRESSOR.with_borrow_mut(|compressor| {
        let (compressor, buffer) = match compressor {
            Some(compressor) => compressor,
            None => compressor.insert((Compressor::new(LEVEL)?, Vec::new())),
        };
        // The buffer for the worst case is kept; the returned vector is only as long as the frame.
        let bound = zstd::zstd_safe::compress_bound(bytes.len());
        if bound > MAX_KEPT_BUFFER {
            return compressor.compress(bytes);
        }
        buffer.clear();
        buffer.reserve(bound);
        compressor.compress_to_buffer(bytes, buffer)?;
        Ok(buffer.as_slice().into())
    })
}

/// Decompresses a frame to exactly `raw` bytes, or fails. For a large `raw`, memory grows with the actual output, so a
/// wrong size does not allocate gigabytes.
pub(crate) fn decompress(frame: &[u8], raw: u64) -> io::Result<Vec<u8>> {
    thread_local! {
        static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
    }
    let content = match raw <= MAX_TRUSTED {
        true => DECOMPRESSOR.with_borrow_mut(|decompressor| match decompressor {
            Some(decompressor) => decompressor.decompress(frame, raw as usize),
            None => decompressor.insert(Decompressor::new()?).decompress(frame, raw as usize),
        })?,
        false => {
            let mut content = Vec::new();
            zstd::stream::Decoder::new(frame)?.take(raw.saturating_add(1)).read_to_end(&mut content)?;
            content
        }
    };
    match content.len() as u64 == raw {
        true => Ok(content),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}
