//! Files of a folder over HTTP/1.1.
//!
//! This crate answers one question: *how do bytes of files get to clients and back, at the speed of the kernel and
//! with nothing left behind when something breaks?* A [`FileServer`] has some threads, each with a listener of its own
//! at one address, an event loop, and its connections. Files go from the page cache into sockets by `sendfile`.
//!
//! Heads are read by one strict parser for all methods, so that no second reading of the same bytes exists
//! (`docs/adr/2026-11-27-one-loop-speaks-http.md`). Paths are resolved by the kernel below the folder.

mod answer;
mod body;
mod chance;
mod change;
mod chunk;
mod condition;
mod config;
mod connection;
mod dav;
mod digest;
mod fetch;
mod front;
mod get;
mod head;
mod link;
mod metalink;
mod metrics;
mod outside;
mod path;
mod peer;
mod promises;
mod properties;
mod range;
mod replica;
mod rights;
mod route;
mod serve;
mod server;
mod site;
mod stating;
mod status;
mod stream;
mod sums;
mod third_party;
mod tokens;
mod tree;
mod upload;
mod watch;
mod worker;
mod writing;

pub use config::{FileServerConfig, Limits, StoreConfig, TlsFiles, TokenConfig};
pub use fetch::{FetchConfig, FetchError, Fetched, SourceReport, fetch};
pub use metrics::metrics;
pub use outside::CaError;
pub use promises::check_request;
pub use server::{FileServer, FileServerError};
