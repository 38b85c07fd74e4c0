//! Everything that knows ZooKeeper.

pub mod server;
