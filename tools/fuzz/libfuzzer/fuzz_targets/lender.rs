//! libFuzzer drives `sheaf_fuzz::lender`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::lender(bytes));
