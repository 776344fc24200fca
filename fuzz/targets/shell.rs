#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rath_fuzz_targets::shell(data));
