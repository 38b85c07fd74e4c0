//! Data planes: what carries the table of a director out.
//!
//! A [`Plane`] takes the state that a service wants ([`Wanted`]) and makes packets or connections follow it, in one
//! step that is done or not done. All planes are rows of one table ([`planes`]); they have the same commands, the same
//! counters, and the same tests. `nft` rewrites the hardware address of packets in the kernel, and answers go from the
//! server to the client past the director; `tc` does so by a BPF program, `ipvs` has the director of the kernel do so.
//! `nft-nat` translates addresses.
//! `userspace` is a proxy that needs no rights, `haproxy` one that outlives the director.

mod error;
#[cfg(test)]
mod example;
mod haproxy;
mod ipvs;
mod neighbors;
mod netlink;
mod nft;
mod plane;
mod registry;
mod tc;
mod tool;
mod userspace;

pub use error::PlaneError;
pub use plane::{BpfConfig, BpfMode, Counted, Installed, Plane, PlaneConfig};
pub use registry::{Registration, named, planes};
pub use sheaf_serve::Wanted;
pub use tc::find_program;
