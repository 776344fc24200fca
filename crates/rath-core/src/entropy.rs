//! Salts, session ids and names, and the only access to the random number generator.

use std::cell::RefCell;

use rand::Rng as _;
use uuid::Builder;

use crate::clock::Time;
use crate::id::SessionId;

/// The salt of a record's body.
pub type Salt = [u8; 16];

/// Random bytes generated in advance: a record needs a few bytes, and the generator is faster for many at once.
struct Pool {
    bytes: [u8; 1024],
    used: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { bytes: [0; 1024], used: 1024 }) };
}

#[allow(clippy::disallowed_methods, reason = "this module owns the generator")]
fn random<const N: usize>() -> [u8; N] {
    POOL.with_borrow_mut(|pool| {
        if pool.used + N > pool.bytes.len() {
            rand::rng().fill_bytes(&mut pool.bytes);
            pool.used = 0;
        }
        let mut bytes = [0; N];
        let drawn = &mut pool.bytes[pool.used..pool.used + N];
        bytes.copy_from_slice(drawn);
        // A salt must not stay in memory after its body was erased.
        drawn.fill(0);
        pool.used += N;
        bytes
    })
}

/// A new salt from the thread's cryptographic generator.
pub(crate) fn salt() -> Salt {
    random()
}

/// A unique name: 32 random hex digits.
pub fn fresh_name() -> String {
    const_hex::encode(random::<16>())
}

/// A random number. Code in a run uses [`Session::random`](crate::Session::random) instead, which returns the same
/// number when the run is resumed.
pub fn random_number() -> u64 {
    u64::from_le_bytes(random())
}

/// A new session id: a UUIDv7 with the timestamp `time`.
pub(crate) fn session_id(time: Time) -> SessionId {
    SessionId(Builder::from_unix_timestamp_millis(time.0 / 1000, &random()).into_uuid())
}
