//! Verdict log in a directory of this machine.
//!
//! `sheaf_verdict_log` decides the bytes of every file and the order of the writes. Here are the files, the lock that
//! keeps other processes off ([`OsDisk`]), the thread that writes and syncs ([`open`]), and the reader of directories
//! which belong to a process that runs, was killed, or has ended ([`read_dir`], [`read_newest`]).

mod disk;
mod read;
mod writer;

#[cfg(test)]
mod tests;

pub use disk::OsDisk;
pub use read::{LedgerDir, ReadError, read_dir, read_newest};
pub use writer::{FileStorage, ThreadWriter, Waker, open};
