//! libFuzzer drives `sheaf_fuzz::control`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::control(bytes));
