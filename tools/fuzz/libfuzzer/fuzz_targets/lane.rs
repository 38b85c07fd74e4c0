//! libFuzzer drives `sheaf_fuzz::lane`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::lane(bytes));
