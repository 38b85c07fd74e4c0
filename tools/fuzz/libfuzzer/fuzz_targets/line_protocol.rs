//! libFuzzer drives `sheaf_fuzz::line_protocol`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::line_protocol(bytes));
