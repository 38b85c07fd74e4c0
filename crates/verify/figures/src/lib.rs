//! Statistics and figures of benchmarks and experiments.
//!
//! [`stat`] makes few numbers of many, [`peak`] fits them, [`plot`] draws them as SVG. What the numbers mean is for the
//! caller to say.

pub mod peak;
pub mod plot;
pub mod stat;
