//! Places for farms of real processes, and what disturbs them.
//!
//! A place is a network of namespaces ([`net`]), a site of servers behind a virtual address ([`site`]), a set of real
//! machines ([`hosts`]), or this machine with folders, disks and control groups of limited size ([`machine`]). A
//! disturbance is a rule of the firewall ([`rules`]), a process that is traced, starved or short of files
//! ([`process`]), a relay that damages what passes ([`relay`]), or peers that misbehave ([`peers`]). No experiment,
//! cell or farm is known here: which fault is injected, when, and what a farm has to withstand is decided by the lab.
//!
//! What is changed on the machine has a name that begins with `sheaf-lab-` ([`names`]) and is undone in every case
//! ([`machine::clean`]).
//!
//! Each operation has an error that names what that operation can meet; [`IoError`] and [`tool::ToolError`] are under
//! most of them.

// Where a farm stands.
pub mod hosts;
pub mod machine;
pub mod namespace;
pub mod net;
pub mod site;
// What disturbs it.
pub mod peers;
pub mod process;
pub mod processor;
pub mod relay;
pub mod rules;
// What is under it.
pub mod clock;
mod hierarchy;
pub mod input;
pub mod interference;
mod io_error;
pub mod names;
pub mod tool;

pub use io_error::IoError;
