//! libFuzzer drives `sheaf_fuzz::scheduler`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::scheduler(bytes));
