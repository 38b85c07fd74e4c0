//! libFuzzer drives `sheaf_fuzz::frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::frame(bytes));
