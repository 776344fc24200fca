//! Keys that sign, and whether something is signed.

use rath_core::Time;
use rath_core::checkpoint::{Checkpoint, PublicKey, Signature, Succession};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

/// The version of successions and of kept keys.
const VERSION: u64 = 1;

/// A key carries the signatures of at most so many keys before it. A checkpoint holds them all, with the longest note.
pub const MOST_SUCCESSIONS: usize = 64;

/// The points of small order, as keys, without the bit of the sign: whoever names one needs no secret to sign.
const SMALL: [[u8; 32]; 7] = [
    ends(0, 0, 0),
    ends(1, 0, 0),
    ends(0xec, 0xff, 0x7f),
    ends(0xed, 0xff, 0x7f),
    ends(0xee, 0xff, 0x7f),
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5, 0xdf,
        0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a, 0x20,
        0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ],
];

const fn ends(first: u8, between: u8, last: u8) -> [u8; 32] {
    let mut bytes = [between; 32];
    bytes[0] = first;
    bytes[31] = last;
    bytes
}

/// A key of Ed25519, with how it came after the keys before it.
pub struct SigningKey {
    seed: [u8; 32],
    pair: Ed25519KeyPair,
    successions: Vec<Succession>,
}

/// A text that is no key, or a machine that makes none.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadKey(&'static str);

/// A key as it is kept.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    rath_signing_key: u64,
    seed: PublicKey,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    successions: Vec<Succession>,
}

impl SigningKey {
    /// A new key, from the machine's generator.
    pub fn generate() -> Result<Self, BadKey> {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).map_err(|_| BadKey("the machine gives no random bytes"))?;
        Self::of(seed, Vec::new())
    }

    fn of(seed: [u8; 32], successions: Vec<Succession>) -> Result<Self, BadKey> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| BadKey("the seed makes no key"))?;
        Ok(Self { seed, pair, successions })
    }

    /// Reads a key from the text that it is kept as.
    pub fn from_text(text: &str) -> Result<Self, BadKey> {
        let kept: Kept = serde_json::from_str(text).map_err(|_| BadKey("it is not a signing key of rath"))?;
        if kept.rath_signing_key != VERSION {
            return Err(BadKey("a later version of rath wrote it"));
        }
        let key = Self::of(kept.seed.0, kept.successions)?;
        let mut last = None;
        for succession in &key.successions {
            if !is_succession(succession) || last.is_some_and(|last| last != succession.from) {
                return Err(BadKey("how it came after the keys before it does not fit"));
            }
            last = Some(succession.key);
        }
        match last.is_none_or(|last| last == key.public()) {
            true => Ok(key),
            false => Err(BadKey("how it came after the keys before it does not fit")),
        }
    }

    /// The text to keep, where nobody else can read it.
    pub fn to_text(&self) -> String {
        let kept =
            Kept { rath_signing_key: VERSION, seed: PublicKey(self.seed), successions: self.successions.clone() };
        serde_json::to_string(&kept).unwrap_or_default()
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.pair.public_key().as_ref());
        PublicKey(bytes)
    }

    /// The keys before it, youngest last.
    pub fn successions(&self) -> &[Succession] {
        &self.successions
    }

    /// A new key that this one vouches for. This one is not needed any more. There is none after
    /// [so many](MOST_SUCCESSIONS): a checkpoint could not hold the signatures that lead to it.
    pub fn rotate(&self) -> Result<Self, BadKey> {
        match self.successions.len() < MOST_SUCCESSIONS {
            true => self.give_way(&self.successions),
            false => Err(BadKey("it carries as many signatures of keys before it as a checkpoint holds")),
        }
    }

    /// A new key that this one vouches for, and that carries nothing of how this one came about: a store whose last
    /// checkpoint has an earlier key begins anew with it.
    pub fn rotate_and_forget(&self) -> Result<Self, BadKey> {
        self.give_way(&[])
    }

    fn give_way(&self, before: &[Succession]) -> Result<Self, BadKey> {
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

    /// How this key came after `key`; `None` when that is not one of those before it.
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

/// Whether the key that the checkpoint names signed it, and each key before it the next.
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
    !SMALL.contains(&unsigned)
        && UnparsedPublicKey::new(&ED25519, key.0).verify(statement.as_bytes(), &signature.0).is_ok()
}
