//! libFuzzer drives `sheaf_fuzz::tf_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::tf_file(bytes));
