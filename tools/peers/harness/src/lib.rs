//! Common part of all peers of `sheaf bench transport`: one command line, one way to count, one line of JSON.
//!
//! A peer is a process that only sends or only receives. [`Args`] says with whom; the runner says on its standard
//! input when to go, when a moment is to be marked, and when to stop ([`Run`]). Messages carry a [`Stamp`] and bytes
//! that the receiver can foresee ([`Layout`]). `tools/peers/common/peer.h` is the same for C and C++; the
//! `README.md` beside that is the description of both.

mod args;
mod latency;
mod machine;
mod payload;
mod report;
mod run;

pub use args::{Args, Role};
pub use machine::machine_busy_s;
pub use payload::{Layout, STAMP_BYTES, Stamp, fill};
pub use report::{Latency, Mark, PeerReport};
pub use run::Run;
