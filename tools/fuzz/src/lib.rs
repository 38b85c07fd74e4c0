//! Properties that hold for any bytes from outside.
//!
//! A target is a function of a slice that panics when a promise is broken. Two engines drive the same
//! functions: libFuzzer (`tools/fuzz/libfuzzer`, a workspace of its own because it needs a nightly compiler), and a
//! plain test (`tests/corpus.rs`) that replays the corpus and mutates it, on any compiler.
//! How to run and to add one: `docs/how-to/fuzzing.md`.

mod builder;
mod detector;
#[cfg(feature = "node")]
mod disk;
#[cfg(feature = "node")]
mod http;
mod ledger;
mod memory;
mod monitoring;
mod ops;
mod scheduler;
#[cfg(feature = "node")]
pub mod seeds;
mod stream;
pub mod tables;
mod wire;
mod zmtp;

pub use builder::builder;
pub use detector::{check_stf, cut, km3net, rdh, stf_file, xtc2};
#[cfg(feature = "node")]
pub use disk::{farm_file, feed_record, tf_file};
#[cfg(feature = "node")]
pub use http::http_request;
pub use ledger::{ledger_files, ledger_message, majority};
pub use memory::{borrower, lane, lender};
pub use monitoring::{
    collectd, exposition, intake, line_protocol, opentelemetry, remote_write, statsd,
};
pub use scheduler::scheduler;
pub use stream::stream;
pub use wire::{control, data_hello, frame, stf_header};
#[cfg(feature = "node")]
pub use zmtp::zmq_message;
pub use zmtp::zmtp;

/// One target: its name, which is also its folder in the corpus, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets of the features that are on. `tools/fuzz/libfuzzer` has a binary of the same name for each.
pub const TARGETS: &[Target] = &[
    ("borrower", borrower),
    ("builder", builder),
    ("check_stf", check_stf),
    ("collectd", collectd),
    ("control", control),
    ("cut", cut),
    ("data_hello", data_hello),
    ("exposition", exposition),
    #[cfg(feature = "node")]
    ("farm_file", farm_file),
    #[cfg(feature = "node")]
    ("feed_record", feed_record),
    ("frame", frame),
    #[cfg(feature = "node")]
    ("http_request", http_request),
    ("intake", intake),
    ("km3net", km3net),
    ("lane", lane),
    ("ledger_files", ledger_files),
    ("ledger_message", ledger_message),
    ("lender", lender),
    ("line_protocol", line_protocol),
    ("majority", majority),
    ("opentelemetry", opentelemetry),
    ("rdh", rdh),
    ("remote_write", remote_write),
    ("scheduler", scheduler),
    ("statsd", statsd),
    ("stf_file", stf_file),
    ("stf_header", stf_header),
    ("stream", stream),
    #[cfg(feature = "node")]
    ("tf_file", tf_file),
    ("xtc2", xtc2),
    #[cfg(feature = "node")]
    ("zmq_message", zmq_message),
    ("zmtp", zmtp),
];
