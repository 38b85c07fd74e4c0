//! libFuzzer drives `sheaf_fuzz::exposition`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::exposition(bytes));
