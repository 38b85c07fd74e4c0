//! libFuzzer drives `sheaf_fuzz::statsd`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::statsd(bytes));
