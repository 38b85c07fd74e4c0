//! libFuzzer drives `sheaf_fuzz::opentelemetry`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::opentelemetry(bytes));
