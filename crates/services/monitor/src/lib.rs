//! The collector of Sheaf's monitoring: receives, processes, stores, answers and shows.
//!
//! This crate answers: *how do samples get from sockets to a screen?* Every decision lies in pure crates: which samples
//! are taken (`sheaf-intake`), what is made of them (`sheaf-processing`), how questions are answered (`sheaf-query`).
//! This one has the sockets, the threads and the clock around them, and [`run`] starts it.
//!
//! | thread | what it does |
//! | --- | --- |
//! | `receive-N` | datagrams of UDP and Unix sockets, batch by batch, into a shard of its own |
//! | `http` | requests and streams over TCP, into one shard in common; queries run beside it |
//! | `keep` | appends what the shards have processed, commits every `commit_ms`, seals and drops |
//! | `alarms`, `rules`, `notify-N`, `state`, `orders` | alarms, see `alarms.rs` |

mod alarms;
mod client;
pub mod config;
mod datagrams;
mod error;
mod forward;
mod gzip;
mod http;
mod keep;
mod kernel;
mod metrics;
mod peers;
mod problem;
mod queue;
mod run;
mod scrape;
mod security;
mod shard;
mod shared;
mod signatures;
mod sources;
mod stop;
mod streams;
mod wall;

/// Parts of the collector without threads, sockets and clocks, as its threads and the fault simulator drive them.
pub mod cores {
    pub use crate::keep::{Clock, KeepEvent, KeeperCore};
    pub use crate::queue::{Queue, Samples};
    pub use crate::shard::{Listener, ShardCore};
}

pub use alarms::{AlarmsHandle, AlarmsSettings, FarmOrders, MailSettings, MailTls};
pub use config::MonitorConfig;
pub use error::MonitorError;
pub use metrics::all as metrics;
pub use run::{Monitor, run, run_with, start, start_with};
pub use security::SecurityError;
pub use signatures::CollectdError;
pub use stop::Stop;
