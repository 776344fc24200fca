//! Files of other systems: sessions of OpenRath, and plain conversations.

/// Feeds it one input.
pub fn import(data: &[u8]) {
    let _ = rath_audit::import::openrath::read(data);
    let _ = rath_audit::import::jsonl::read(data);
}
