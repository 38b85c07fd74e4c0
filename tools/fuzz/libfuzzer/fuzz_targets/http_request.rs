//! libFuzzer drives `sheaf_fuzz::http_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::http_request(bytes));
