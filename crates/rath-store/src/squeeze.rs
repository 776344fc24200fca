//! Makes bytes fewer, and many again: zstd, with a context at hand on each thread.

use std::cell::RefCell;
use std::io::{self, Read as _};

use zstd::bulk::{Compressor, Decompressor};

/// Fast, and within a tenth of the default level on source code.
const LEVEL: i32 = 1;

/// As many bytes of room are kept at hand.
const KEPT: usize = 1 << 20;

/// As many bytes are made room for on somebody's word.
const TRUSTED: u64 = 16 << 20;

/// Bytes as one frame, which says how many they are.
pub(crate) fn squeeze(bytes: &[u8]) -> io::Result<Vec<u8>> {
    thread_local! {
        static SQUEEZER: RefCell<Option<(Compressor<'static>, Vec<u8>)>> = const { RefCell::new(None) };
    }
    SQUEEZER.with_borrow_mut(|squeezer| {
        let (squeezer, room) = match squeezer {
            Some(squeezer) => squeezer,
            None => squeezer.insert((Compressor::new(LEVEL)?, Vec::new())),
        };
        // The room that the worst case needs is kept; what is given away is as long as the frame.
        let most = zstd::zstd_safe::compress_bound(bytes.len());
        if most > KEPT {
            return squeezer.compress(bytes);
        }
        room.clear();
        room.reserve(most);
        squeezer.compress_to_buffer(bytes, room)?;
        Ok(room.as_slice().into())
    })
}

/// The `raw` bytes that a frame holds. A large claim is not trusted: memory grows with what really comes out.
pub(crate) fn unsqueeze(frame: &[u8], raw: u64) -> io::Result<Vec<u8>> {
    thread_local! {
        static UNSQUEEZER: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
    }
    let content = match raw <= TRUSTED {
        true => UNSQUEEZER.with_borrow_mut(|unsqueezer| match unsqueezer {
            Some(unsqueezer) => unsqueezer.decompress(frame, raw as usize),
            None => unsqueezer.insert(Decompressor::new()?).decompress(frame, raw as usize),
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
