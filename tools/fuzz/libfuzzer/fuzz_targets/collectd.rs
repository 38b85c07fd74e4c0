//! libFuzzer drives `sheaf_fuzz::collectd`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::collectd(bytes));
