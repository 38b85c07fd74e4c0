//! libFuzzer drives `sheaf_fuzz::ledger_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::ledger_message(bytes));
