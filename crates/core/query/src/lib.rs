//! Evaluation of PromQL over any store of samples.
//!
//! This crate answers: *what is the value of an expression at these times?* A [`Query`] is parsed once and evaluated
//! over a [`Source`], at one time or at the steps of a range; [`success`] and [`failure`] render the result as the
//! HTTP API of Prometheus does. Pure: times and limits ([`Options`]) are arguments. Grammar is left to
//! `promql-parser`, storage to the source, HTTP to the caller.
//!
//! The semantics are those of Prometheus 2.42, checked against it by `tests/oracle.rs`; differences stand in
//! `docs/reference/promql.md`.
//!
//! ```
//! use sheaf_query::{Memory, Options, Query, Value};
//! use sheaf_samples::{Labels, Sample};
//! use std::sync::Arc;
//!
//! let mut memory = Memory::new();
//! for epn in ["1", "2"] {
//!     let labels = Arc::new(Labels::new([("__name__", "tf_rate_hz"), ("epn", epn)]).unwrap());
//!     memory.insert(&labels, Sample { at_ms: 1_000, value: 25.0 });
//! }
//! let options = Options::default();
//! let query = Query::parse("sum(tf_rate_hz) * 2", &options).unwrap();
//! let answer = query.instant(&memory, 2_000, &options).unwrap();
//! let Value::Vector(points) = answer.value else { panic!("a sum is a vector") };
//! assert_eq!(points[0].sample.value, 100.0);
//! ```

mod error;
mod eval;
pub mod exchange;
mod json;
mod memory;
mod merge;
mod number;
mod options;
mod parse;
mod plan;
mod query;
mod rows;
mod scan;
mod select;
mod source;
mod value;
mod window;

pub use error::{Error, Position};
pub use eval::functions::reference;
pub use json::{failure, success};
pub use memory::Memory;
pub use merge::merge;
pub use options::Options;
pub use parse::matchers;
pub use query::{Query, Range};
pub use source::{Data, Selection, Series, Source, SourceError};
pub use value::{Answer, Line, Point, Value};
