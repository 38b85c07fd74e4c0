//! Load on file servers: thousands of HTTP clients in one process, and the fate of every transfer.
//!
//! A [`Load`] says how many clients ask for what, from where, how fast and for how long; [`run`] drives them with one
//! epoll loop and gives an [`Outcome`]. Bodies of answers are discarded in the kernel, so that a client costs little
//! beside the servers that it measures. Every transfer has one fate: finished, failed by a [`Failure`], or cut by the
//! end of the run; *started = finished + failed + cut*. A [`Crew`] spreads clients over processes.
//!
//! What a transfer may do next (`exchange`), what an answer says (`head`), how fast a client may go (`bucket`) and what
//! is counted (`outcome`) know no socket. Which service is loaded, and why, is decided by the caller.

mod bucket;
mod crew;
mod engine;
mod exchange;
mod fate;
mod head;
mod outcome;
mod plan;
mod probe;
mod tls;

pub use crew::{Crew, CrewError, raise_descriptor_limit, run_words};
pub use engine::{Mark, RunError, run};
pub use fate::{Failure, Fate};
pub use outcome::{Latencies, Outcome, Served, Spread};
pub use plan::{Load, Method, Target, TargetError, Tls};
pub use probe::{Probe, ProbeError, probe};
pub use tls::TlsError;
