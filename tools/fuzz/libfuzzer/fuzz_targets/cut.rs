//! libFuzzer drives `sheaf_fuzz::cut`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::cut(bytes));
