//! The two hashes of a record, made at once.
//!
//! Each block of a hash waits for the one before it, and a processor with instructions for SHA-256 has room for a second hash
//! meanwhile. So the blocks of header and body go through the compression in turns: 0.34 µs for a record of 876 bytes
//! instead of 0.49 one after the other (AMD EPYC, 2.6 GHz). What is here is only the padding; a test holds it against the
//! library's.

use sha2::block_api::compress256;

use crate::entropy::Salt;
use crate::id::Digest;

type Block = [u8; 64];

/// FIPS 180-4, 5.3.3.
const INITIAL: [u32; 8] =
    [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];

/// The digests of a header, and of salt and body.
pub(crate) fn of_record(header: &[u8], salt: &Salt, body: &[u8]) -> (Digest, Digest) {
    let (mut one, mut other) = (INITIAL, INITIAL);
    let (headers, header_rest) = header.as_chunks();
    let header_end = End::of(&[header_rest], header.len());
    // The first block of the other has the salt and the beginning of the body.
    let length = salt.len() + body.len();
    let (bodies, body_end) = match body.split_at_checked(size_of::<Block>() - salt.len()) {
        None => (&[][..], End::of(&[salt, body], length)),
        Some((begin, rest)) => {
            let mut first = [0; size_of::<Block>()];
            first[..salt.len()].copy_from_slice(salt);
            first[salt.len()..].copy_from_slice(begin);
            compress256(&mut other, &[first]);
            let (bodies, rest) = rest.as_chunks();
            (bodies, End::of(&[rest], length))
        }
    };
    let both = headers.len().min(bodies.len());
    for at in 0..both {
        compress256(&mut one, &headers[at..=at]);
        compress256(&mut other, &bodies[at..=at]);
    }
    compress256(&mut one, &headers[both..]);
    compress256(&mut other, &bodies[both..]);
    compress256(&mut one, header_end.blocks());
    compress256(&mut other, body_end.blocks());
    (digest(&one), digest(&other))
}

/// The last block of a message, or two: what is left of it, one bit, and how many bits it has.
struct End {
    blocks: [Block; 2],
    count: usize,
}

impl End {
    /// Of parts that are less than a block together.
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
    fn both_are_what_the_library_says() {
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
