//! Experiments with farms of real processes.
//!
//! [`faults`] does every fault of a matrix to a farm, one after the other, and asks from outside what the farm
//! promised: from the event logs of the nodes whether anything was lost or delivered twice, and with their times how
//! long anybody had to wait. Everything is real: processes, sockets, the kernel that drops, resets and refuses.
//!
//! What is changed on the machine is undone in every case (`machine`); nothing outside names that begin with
//! `sheaf-lab-` is touched.

// Where experiments take place.
pub mod hosted;
pub mod hosts;
pub mod net;
// Questions, their points, and runs of them.
pub mod calibrate;
pub mod compare;
pub mod experiment;
pub mod input;
// What can be run, and what it gives.
pub mod faults;
pub mod kills;
pub mod output;
pub mod report;
pub mod results;
pub mod soak;
// What a cell is.
pub mod cell;
pub mod matrix;
pub mod shape;
pub mod tool;
// What is under it.
mod books;
mod clock;
mod error;
mod farm;
mod hostile;
mod inject;
mod judge;
pub mod machine;
mod names;
mod place;
mod relay;
mod trace;

pub use error::LabError;
