//! libFuzzer drives `sheaf_fuzz::feed_record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::feed_record(bytes));
