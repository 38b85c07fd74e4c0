//! libFuzzer drives `sheaf_fuzz::ledger_files`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::ledger_files(bytes));
