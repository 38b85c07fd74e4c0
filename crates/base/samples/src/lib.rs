//! Measured values and their names, as monitoring collects, stores and queries them.
//!
//! This crate answers two questions: *which series does a value belong to?* and *how are values written on the wire?*
//! [`Labels`] name a series, a [`Sample`] is a value at a time, a [`Bucket`] sums up the samples of an interval, and a
//! [`Matcher`] selects series by their labels. Pure: no socket, file or clock.
//!
//! The data model is that of Prometheus: a series is a set of labels, its name is the label `__name__`, a value is an
//! `f64`, a time is in ms since 1970 (UTC).
//!
//! ```
//! use sheaf_samples::{Labels, Matcher, Matches};
//!
//! let labels = Labels::new([("__name__", "tf_rate_hz"), ("epn", "3")]).unwrap();
//! assert_eq!(labels.to_string(), r#"tf_rate_hz{epn="3"}"#);
//! let matcher = Matcher::new("epn", Matches::Regex, "[0-4]").unwrap();
//! assert!(matcher.is_match(&labels));
//! ```

mod bucket;
mod labels;
mod matcher;
mod sample;

pub mod client;
pub mod wire;

pub use bucket::Bucket;
pub use labels::{Labels, LabelsError, NAME};
pub use matcher::{Matcher, MatcherError, Matches};
pub use sample::{STALE, Sample, is_stale};
