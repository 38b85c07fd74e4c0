//! Formats of samples on the wire, decoded and encoded.
//!
//! | module | format |
//! | --- | --- |
//! | [`line_protocol`] | InfluxDB line protocol, zero-copy: the format of Sheaf's own clients |
//! | [`remote_write`] | Prometheus remote write 1.0 |
//! | [`exposition`] | Prometheus text and OpenMetrics text, decoded only |
//! | [`otlp`] | OpenTelemetry metrics over HTTP, protobuf |
//! | [`collectd`] | collectd's binary network protocol, signed as well |
//! | [`statsd`] | StatsD and DogStatsD |
//!
//! A decoder takes bytes and never panics. It yields every good record and, for each bad one, a [`Fault`]: a [`Code`]
//! of the closed list and the byte offset. One bad record takes no other one with it, where the format lets the next
//! one be found. Lengths are checked before anything is allocated for them. Examples, mapping to labels, limits and
//! codes of all formats: `docs/reference/monitoring-protocols.md`.

mod fault;
mod metadata;
mod pack;
mod protobuf;

pub mod collectd;
pub mod exposition;
pub mod line_protocol;
pub mod names;
pub mod otlp;
pub mod remote_write;
pub mod statsd;

pub use fault::{Code, Fault};
pub use metadata::{Kind, Metadata};
pub use pack::{DATAGRAM_BYTES, Packer};
