//! Computes the two hashes of a record together.
//!
//! Each block of a hash depends on the previous block. A processor with SHA-256 instructions can therefore compute a
//! second hash at the same time. This module alternates between the blocks of header and body: 0.34 µs for a record of
//! 876 bytes instead of 0.49 µs one after the other (AMD EPYC, 2.6 GHz). It implements only the padding; a test
//! compares the result with the library's.

use sha2::block_api::compress256;

use crate::entropy::Salt;
use crate::id::Digest;

type Block = [u8; 64];

/// The initial hash value, FIPS 180-4, 5.3.3.
const INITIAL: [u32; 8] =
    [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];

/// The digest of the header, and the digest of salt and body.
pub(crate) fn of_record(header: &[u8], salt: &Salt, body: &[u8]) -> (Digest, Digest) {
    let (mut header_state, mut body_state) = (INITIAL, INITIAL);
    let (headers, header_rest) = header.as_chunks();
    let header_end = End::of(&[header_rest], header.len());
    // The first block of the body hash contains the salt and the start of the body.
    let length = salt.len() + body.len();
    let (bodies, body_end) = match body.split_at_checked(size_of::<Block>() - salt.len()) {
        None => (&[][..], End::of(&[salt, body], length)),
        Some((begin, rest)) => {
            let mut first = [0; size_of::<Block>()];
            first[..salt.len()].copy_from_slice(salt);
            first[salt.len()..].copy_from_slice(begin);
            compress256(&mut body_state, &[first]);
            let (bodies, rest) = rest.as_chunks();
            (bodies, End::of(&[rest], length))
        }
    };
    let both = headers.len().min(bodies.len());
    for at in 0..both {
        compress256(&mut header_state, &headers[at..=at]);
        compress256(&mut body_state, &bodies[at..=at]);
    }
    compress256(&mut header_state, &headers[both..]);
    compress256(&mut body_state, &bodies[both..]);
    compress256(&mut header_state, header_end.blocks());
    compress256(&mut body_state, body_end.blocks());
    (digest(&header_state), digest(&body_state))
}

/// The last one or two blocks of a message: the remaining bytes, a one bit, and the length in bits.
struct End {
    blocks: [Block; 2],
    count: usize,
}

impl End {
    /// Pads `parts`, which are shorter than a block together. `length` is the length of the whole message.
    fn of(parts: &[&[u8]], length: usize) -> Self {
        let mut blocks = [[0; size_of::<Block>()]; 2];
        let room = blocks.as_flattened_mut();
        let mut at = 0;
        for part in parts {
            room[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        room[at] = 0x80;
        let bits = (length as u64 * 8).to_be_bytes();
        let count = (at + 1 + bits.len()).div_ceil(size_of::<Block>());
        let end = count * size_of::<Block>();
        room[end - bits.len()..end].copy_from_slice(&bits);
        Self { blocks, count }
    }

    fn blocks(&self) -> &[Block] {
        &self.blocks[..self.count]
    }
}

fn digest(state: &[u32; 8]) -> Digest {
    let mut bytes = [0; 32];
    for (four, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *four = word.to_be_bytes();
    }
    Digest(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_hashes_equal_those_of_the_library() {
        let bytes: Vec<u8> = (0..4096u32).map(|at| (at * 31 % 251) as u8).collect();
        let salt: Salt = std::array::from_fn(|at| at as u8 ^ 0xa5);
        let lengths = (0..=260).chain([447, 448, 511, 512, 513, 4095, 4096]);
        for header in lengths.clone() {
            for body in lengths.clone().filter(|body| (header + body) % 3 == 0 || header == *body) {
                let (header, body) = (&bytes[..header], &bytes[bytes.len() - body..]);
                let expected = (Digest::of(header), Digest::of_parts(&[&salt, body]));
                assert_eq!(of_record(header, &salt, body), expected, "{} {}", header.len(), body.len());
            }
        }
    }
}
