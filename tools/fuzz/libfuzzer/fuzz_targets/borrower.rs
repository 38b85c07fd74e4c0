//! libFuzzer drives `sheaf_fuzz::borrower`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::borrower(bytes));
