//! libFuzzer drives `sheaf_fuzz::xtc2`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::xtc2(bytes));
