//! libFuzzer drives `sheaf_fuzz::stf_header`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::stf_header(bytes));
