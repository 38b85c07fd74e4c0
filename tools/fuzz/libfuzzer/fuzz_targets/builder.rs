//! libFuzzer drives `sheaf_fuzz::builder`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::builder(bytes));
