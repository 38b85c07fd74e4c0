//! libFuzzer drives `sheaf_fuzz::intake`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::intake(bytes));
