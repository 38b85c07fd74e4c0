//! The binary `sheaf`.

fn main() {}
