//! libFuzzer drives `sheaf_fuzz::zmtp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::zmtp(bytes));
