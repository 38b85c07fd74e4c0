//! Stream processing of monitoring: what becomes of samples between their arrival and the places that take them.
//!
//! This crate answers: *which samples go where, under which labels, and which new ones are made of them?* A
//! [`Pipeline`] is configured by operators ([`operator::TABLE`]); each series is compiled into a chain once, when it is
//! registered, and samples run along it. Receiving, storing and alarms are left to the driver. Pure: time is an
//! argument.
//!
//! One pipeline owns its series and is driven by one thread. Several of them share the work: [`shard_of`] says which
//! one a series belongs to, and windows across series are exact all the same, since shards send partial aggregates to
//! one merger ([`Role`]). Every sample ends exactly once, and [`Stats`] says where. Operators with examples:
//! `docs/reference/processing.md`.
//!
//! ```
//! use sheaf_processing::{Output, Pipeline, ProcessingConfig, Role, SeriesHandle};
//! use sheaf_samples::{Labels, Sample};
//!
//! let config: ProcessingConfig = toml::from_str(r#"
//!     [[operator]]
//!     kind = "window"
//!     select = "cpu_ratio"
//!     functions = ["avg"]
//!     length_ms = 1000
//!     by = ["detector"]
//! "#).unwrap();
//! let mut pipeline = Pipeline::new(&config, Role::Whole).unwrap();
//! let mut output = Output::default();
//! for (handle, host) in [(0, "flp1"), (1, "flp2")] {
//!     let labels = [("__name__", "cpu_ratio"), ("host", host), ("detector", "TPC")];
//!     pipeline.handle_new_series(0, SeriesHandle(handle), &Labels::new(labels).unwrap()).unwrap();
//! }
//! let sample = |value| Sample { at_ms: 400, value };
//! pipeline.handle_samples(450, &[(SeriesHandle(0), sample(0.2)), (SeriesHandle(1), sample(0.6))], &mut output);
//! pipeline.poll(1500, &mut output);
//! let average = output.samples.last().unwrap();
//! assert_eq!((average.sample.at_ms, average.sample.value), (1000, 0.4));
//! ```

mod chain;
mod config;
mod keys;
pub mod operator;
mod output;
mod outputs;
mod pane;
mod pipeline;
mod plan;
mod selector;
mod shard;
mod sketch;
mod stats;
mod table;
mod template;
mod windows;

pub use config::{Limits, ProcessingConfig};
pub use keys::{ConfigError, ConfigErrors, Key};
pub use output::{
    Destinations, NewSeries, Output, OutputHandle, OutputSample, Partial, PartialEvent,
};
pub use pane::{Function, Pane};
pub use pipeline::{PartialsError, Pipeline, Role, SeriesError, SeriesHandle};
pub use shard::shard_of;
pub use sketch::Sketch;
pub use stats::{Fate, OperatorStats, Over, Stats};
pub use table::{Table, TableError};
