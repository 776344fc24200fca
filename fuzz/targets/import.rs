//! Files of other systems: sessions of OpenRath, and plain conversations.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = rath_audit::import::openrath::read(data);
    let _ = rath_audit::import::jsonl::read(data);
});
