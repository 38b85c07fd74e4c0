//! libFuzzer drives `sheaf_fuzz::majority`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::majority(bytes));
