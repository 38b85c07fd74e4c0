//! Versions of the protocol: `major.minor`.
//!
//! Nodes of another major version refuse each other ([`Prefix::VERSION`](crate::Prefix::VERSION)). A minor version adds
//! kinds of message and changes none: a sender speaks the lower version of both ends, and leaves out kinds that its
//! peer does not know ([`Control::since`](crate::Control::since)). So a farm is upgraded node by node.

/// Minor version of this build.
pub const MINOR: u8 = 1;

/// Minor version that brought the lines of logs at the ICN.
pub const LOG: u8 = 1;

/// The first minor version: that of builds that know no minor versions, and write 0 where others write theirs.
pub const MINOR_FIRST: u8 = 0;
