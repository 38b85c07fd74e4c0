//! libFuzzer drives `sheaf_fuzz::remote_write`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::remote_write(bytes));
