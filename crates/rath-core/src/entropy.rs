//! The one owner of randomness: salts, session ids and names.

use std::cell::RefCell;

use rand::Rng as _;
use uuid::Builder;

use crate::clock::Time;
use crate::id::SessionId;

/// The salt of a record's body.
pub type Salt = [u8; 16];

/// Random bytes drawn ahead: a record needs a few at a time, the generator gives many at once.
struct Pool {
    bytes: [u8; 1024],
    used: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { bytes: [0; 1024], used: 1024 }) };
}

#[allow(clippy::disallowed_methods, reason = "this is the owner")]
fn random<const N: usize>() -> [u8; N] {
    POOL.with_borrow_mut(|pool| {
        if pool.used + N > pool.bytes.len() {
            rand::rng().fill_bytes(&mut pool.bytes);
            pool.used = 0;
        }
        let mut bytes = [0; N];
        let drawn = &mut pool.bytes[pool.used..pool.used + N];
        bytes.copy_from_slice(drawn);
        // A salt must not be found in memory after its body was erased.
        drawn.fill(0);
        pool.used += N;
        bytes
    })
}

/// A fresh salt from the thread's cryptographic generator.
pub(crate) fn salt() -> Salt {
    random()
}

/// A name that nobody else has: 32 random hex digits.
pub fn fresh_name() -> String {
    const_hex::encode(random::<16>())
}

/// A random number. What a run must do again the same way takes it from [`Session::random`](crate::Session::random).
pub fn random_number() -> u64 {
    u64::from_le_bytes(random())
}

/// A fresh session id: a UUIDv7 born at `time`.
pub(crate) fn session_id(time: Time) -> SessionId {
    SessionId(Builder::from_unix_timestamp_millis(time.0 / 1000, &random()).into_uuid())
}
