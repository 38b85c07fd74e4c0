//! libFuzzer drives `sheaf_fuzz::stream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::stream(bytes));
