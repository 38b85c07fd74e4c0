//! Samples that a client sends about itself, so that a collector can count what was lost on the way.
//!
//! A client counts the samples that it gives to its transport, and sends that count as an ordinary sample in the last
//! datagram of every flush. The collector compares the growth of the count with what arrived (`sheaf-intake`). Both
//! sides take the names from here.

/// Counter: samples given to the transport since the process began, up to and including the datagram that carries the
/// value. Samples that were dropped before are not in it.
pub const SENT: &str = "monitor_client_samples_sent_total";

/// Counter: samples dropped in the process before they were given to the transport, such as at a full queue.
pub const DROPPED: &str = "monitor_client_samples_dropped_total";

/// Label of both counters that tells processes of one source apart, the same after a restart: role and index.
pub const PROCESS: &str = "process";

/// Label of both counters that tells the back ends of one process apart, since each has counts of its own.
pub const BACKEND: &str = "backend";
