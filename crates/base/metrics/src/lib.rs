//! Counting inside a process, and the text that carries the counts out.
//!
//! This crate answers one question: *what has this process done so far?* A [`Registry`] knows every
//! metric by name and labels and returns cheap handles; the hot path records into a [`Counter`],
//! [`Gauge`] or [`Histogram`] with relaxed atomics, in a few nanoseconds, without a lock and without
//! ever waiting. [`Registry::encode`] writes everything as Prometheus text; a [`Snapshot`] of a
//! histogram can be queried and sent.
//!
//! What the names mean stands in `docs/reference/metrics.md`. Serving the text over HTTP is left to `node`.
//!
//! ```
//! use sheaf_metrics::{Registry, Scale};
//!
//! let registry = Registry::default();
//! let built = registry.counter("build_tf_complete_total", "TFs built whole.", &[("epn", "3")]);
//! let latency = registry.histogram(
//!     "build_tf_latency_seconds",
//!     "Time from the first STF of a TF to its last.",
//!     &[("epn", "3")],
//!     Scale::DURATION_NS,
//! );
//! built.increment();
//! latency.record(2_300_000);
//!
//! let mut text = String::new();
//! registry.encode(&mut text);
//! assert!(text.contains("build_tf_complete_total{epn=\"3\"} 1\n"));
//! assert_eq!(latency.snapshot().max(), 2_300_000);
//! ```

mod backend;
mod batch;
mod bucket;
mod cell;
mod count;
mod derive;
mod event;
mod histogram;
mod name;
mod registry;
mod reporter;
mod reporting;
mod snapshot;
mod table;
mod text;

pub use backend::{Backend, BackendError, BackendOption, SCHEMES, Scheme, VERBOSITY, check_uris};
pub use count::{Counter, Gauge, RealGauge};
pub use event::{EVENT_FIELDS_MAX, Event};
pub use histogram::Histogram;
pub use name::Kind;
pub use registry::{Registry, Scale};
pub use reporter::{Reporter, ReporterBuilder, ReporterError, reporter_metrics};
pub use reporting::{Derived, Policy, PolicyError, Reporting, Verbosity, VerbosityError};
pub use snapshot::{Snapshot, SparseError};
pub use table::{Metric, Row};
pub use text::CONTENT_TYPE;
