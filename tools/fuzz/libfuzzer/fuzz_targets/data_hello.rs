//! libFuzzer drives `sheaf_fuzz::data_hello`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::data_hello(bytes));
