//! One plain TCP sender and receiver.

fn main() {}
