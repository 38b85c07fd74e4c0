//! Statistics and figures of benchmarks and experiments.
//!
//! [`stat`] makes few numbers of many, [`plot`] draws them as SVG. What the numbers mean is for the caller to say.

pub mod plot;
pub mod stat;
