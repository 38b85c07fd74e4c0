//! InfluxDB line protocol.
//!
//! ```text
//! measurement,tag=value,tag=value field=1.5,field=3i 1700000000000000000
//! ```
//!
//! [`Decoder`] is the hot path: it takes lines apart without a copy or an allocation and leaves the series part
//! (measurement and tags) as it stands, so that a table can be keyed by these bytes. [`Series`] is the slow path of the
//! first sight of a series: it takes the series part apart, and makes [`Labels`](crate::Labels) of it and a field name.
//! [`write()`](write()) and [`write_sample`] encode.
//!
//! The grammar is that of InfluxDB's own Rust crate, but for the differences that [`Decoder`] lists.

mod decode;
mod encode;
mod line;
mod scan;
mod series;

pub use decode::{Decoder, LINE_BYTES_MAX, Lines};
pub use encode::{EncodeError, write, write_sample};
pub use line::{Field, Fields, Line, Precision, Value};
pub use series::Series;
