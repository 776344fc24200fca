//! The target for imported files: OpenRath sessions and plain conversations.

/// Runs the target with one input.
pub fn import(data: &[u8]) {
    let _ = rath_audit::import::openrath::read(data);
    let _ = rath_audit::import::jsonl::read(data);
}
