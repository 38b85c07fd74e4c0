//! libFuzzer drives `sheaf_fuzz::rdh`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::rdh(bytes));
