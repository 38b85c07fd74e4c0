//! libFuzzer drives `sheaf_fuzz::check_stf`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::check_stf(bytes));
