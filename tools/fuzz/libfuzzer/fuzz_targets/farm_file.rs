//! libFuzzer drives `sheaf_fuzz::farm_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::farm_file(bytes));
