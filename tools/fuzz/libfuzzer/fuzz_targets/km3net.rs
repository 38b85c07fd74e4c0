//! libFuzzer drives `sheaf_fuzz::km3net`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::km3net(bytes));
