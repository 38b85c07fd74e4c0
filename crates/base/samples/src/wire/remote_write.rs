//! Prometheus remote write 1.0: a protobuf message `WriteRequest` in a Snappy block.
//!
//! [`decompress`] and [`decode`] are the two steps of a receiver, [`encode`] is a sender. Labels are taken as they
//! stand: the names are Prometheus' own. Exemplars are passed over; a series with native histograms is
//! [`Code::Unsupported`](super::Code::Unsupported), beside its samples if it has any.
//!
//! Source: "Prometheus Remote-Write 1.0 specification", and `prompb/types.proto` of Prometheus for the numbers.

mod decode;
mod encode;

pub use decode::{Limits, Record, Records, decode, decompress};
pub use encode::{CONTENT_ENCODING, CONTENT_TYPE, VERSION, encode};
