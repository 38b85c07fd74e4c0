//! A file server and its clients, over sockets of this machine.

mod client;
mod front;
mod get;
mod hostile;
mod litmus;
mod put;
mod replicas;
mod sums;
mod third_party;
mod tokens;
mod xrootd;
