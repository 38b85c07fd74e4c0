//! libFuzzer drives `sheaf_fuzz::stf_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::stf_file(bytes));
