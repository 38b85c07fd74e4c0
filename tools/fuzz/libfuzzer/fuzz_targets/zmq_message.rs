//! libFuzzer drives `sheaf_fuzz::zmq_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sheaf_fuzz::zmq_message(bytes));
