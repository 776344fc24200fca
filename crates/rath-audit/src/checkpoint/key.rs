//! Signing keys, and verifying signatures.

use rath_core::Time;
use rath_core::checkpoint::{Checkpoint, PublicKey, Signature, Succession};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

/// The version of successions and of key files.
const VERSION: u64 = 1;

/// The maximum number of earlier keys whose signatures a key carries. A checkpoint has room for all of them together
/// with the longest note.
pub const MOST_SUCCESSIONS: usize = 64;

/// The points of small order, as public keys without the sign bit. A signature for such a key can be made without a
/// secret.
const SMALL_ORDER_POINTS: [[u8; 32]; 7] = [
    point_with(0, 0, 0),
    point_with(1, 0, 0),
    point_with(0xec, 0xff, 0x7f),
    point_with(0xed, 0xff, 0x7f),
    point_with(0xee, 0xff, 0x7f),
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5, 0xdf,
        0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a, 0x20,
        0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ],
];

const fn point_with(first: u8, between: u8, last: u8) -> [u8; 32] {
    let mut bytes = [between; 32];
    bytes[0] = first;
    bytes[31] = last;
    bytes
}

/// An Ed25519 key, with the signatures by which earlier keys passed on to it.
pub struct SigningKey {
    seed: [u8; 32],
    pair: Ed25519KeyPair,
    successions: Vec<Succession>,
}

/// An invalid key, or a failure to generate one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidKey(&'static str);

/// The content of a key file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    rath_signing_key: u64,
    seed: PublicKey,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    successions: Vec<Succession>,
}

impl SigningKey {
    /// Generates a key with the system's random number generator.
    pub fn generate() -> Result<Self, InvalidKey> {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).map_err(|_| InvalidKey("the system provides no random bytes"))?;
        Self::of(seed, Vec::new())
    }

    fn of(seed: [u8; 32], successions: Vec<Succession>) -> Result<Self, InvalidKey> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| InvalidKey("the seed is not a valid key"))?;
        Ok(Self { seed, pair, successions })
    }

    /// Parses the content of a key file.
    pub fn from_text(text: &str) -> Result<Self, InvalidKey> {
        let kept: KeyFile = serde_json::from_str(text).map_err(|_| InvalidKey("not a signing key of rath"))?;
        if kept.rath_signing_key != VERSION {
            return Err(InvalidKey("written by a later version of rath"));
        }
        let key = Self::of(kept.seed.0, kept.successions)?;
        let mut last = None;
        for succession in &key.successions {
            if !is_succession(succession) || last.is_some_and(|last| last != succession.from) {
                return Err(InvalidKey("the signatures of the earlier keys are invalid"));
            }
            last = Some(succession.key);
        }
        match last.is_none_or(|last| last == key.public()) {
            true => Ok(key),
            false => Err(InvalidKey("the signatures of the earlier keys are invalid")),
        }
    }

    /// The content of a key file. It contains the secret key.
    pub fn to_text(&self) -> String {
        let kept =
            KeyFile { rath_signing_key: VERSION, seed: PublicKey(self.seed), successions: self.successions.clone() };
        serde_json::to_string(&kept).unwrap_or_default()
    }

    /// The public key.
    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.pair.public_key().as_ref());
        PublicKey(bytes)
    }

    /// The signatures of the earlier keys, latest last.
    pub fn successions(&self) -> &[Succession] {
        &self.successions
    }

    /// Generates a new key and signs it with this one, which is not needed afterwards. Fails after [`MOST_SUCCESSIONS`]
    /// rotations: a checkpoint has no room for more signatures.
    pub fn rotate(&self) -> Result<Self, InvalidKey> {
        match self.successions.len() < MOST_SUCCESSIONS {
            true => self.sign_next(&self.successions),
            false => Err(InvalidKey("the key was rotated too often: a checkpoint has no room for another signature")),
        }
    }

    /// Generates a new key, signs it with this one, and drops the earlier signatures: a store whose last checkpoint has
    /// an earlier key must start a new chain with it.
    pub fn rotate_and_forget(&self) -> Result<Self, InvalidKey> {
        self.sign_next(&[])
    }

    fn sign_next(&self, before: &[Succession]) -> Result<Self, InvalidKey> {
        let mut next = Self::generate()?;
        let nothing = Signature([0; 64]);
        let mut succession = Succession {
            from: self.public(),
            key: next.public(),
            signature: nothing,
            succession: VERSION,
            time: Time::now(),
        };
        succession.signature = self.sign(&succession.statement());
        next.successions = [before, &[succession]].concat();
        Ok(next)
    }

    /// The signatures that lead from `key` to this key; `None` if `key` is not one of the earlier keys.
    pub(super) fn since(&self, key: PublicKey) -> Option<&[Succession]> {
        match key == self.public() {
            true => Some(&[]),
            false => self.successions.iter().position(|it| it.from == key).map(|at| &self.successions[at..]),
        }
    }

    pub(super) fn sign(&self, statement: &str) -> Signature {
        let mut bytes = [0; 64];
        bytes.copy_from_slice(self.pair.sign(statement.as_bytes()).as_ref());
        Signature(bytes)
    }
}

impl Drop for SigningKey {
    fn drop(&mut self) {
        self.seed.fill(0);
        std::hint::black_box(&self.seed);
    }
}

/// Whether the checkpoint's signature is valid, and each earlier key signed the next.
pub fn is_signed(checkpoint: &Checkpoint) -> bool {
    signed(checkpoint.key, &checkpoint.statement(), &checkpoint.signature)
        && checkpoint.successions.iter().all(is_succession)
}

fn is_succession(succession: &Succession) -> bool {
    succession.succession == VERSION && signed(succession.from, &succession.statement(), &succession.signature)
}

fn signed(key: PublicKey, statement: &str, signature: &Signature) -> bool {
    let mut unsigned = key.0;
    unsigned[31] &= 0x7f;
    !SMALL_ORDER_POINTS.contains(&unsigned)
        && UnparsedPublicKey::new(&ED25519, key.0).verify(statement.as_bytes(), &signature.0).is_ok()
}
