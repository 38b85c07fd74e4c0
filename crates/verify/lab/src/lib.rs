//! Experiments with farms of real processes.
//!
//! [`faults`] does every fault of a matrix to a farm, one after the other, and asks from outside what the farm
//! promised: from the event logs of the nodes whether anything was lost or delivered twice, and with their times how
//! long any consumer had to wait. Everything is real: processes, sockets, the kernel that drops, resets and refuses.
//!
//! The place of a farm and the means to disturb it are of [`sheaf_testbed`]; what is changed on the machine is undone
//! in every case, and nothing outside names that begin with `sheaf-lab-` is touched.

// Where experiments take place: `sheaf_testbed`, and farms that are started there by hand.
pub mod hosted;
// Questions, their points, and runs of them.
pub mod calibrate;
pub mod ceiling;
pub mod compare;
pub mod experiment;
// What can be run, and what it gives.
pub mod faults;
pub mod fit;
pub mod kills;
pub mod machine;
pub mod output;
pub mod plot;
pub mod records;
pub mod report;
pub mod results;
pub mod soak;
pub mod times;
// What a cell is.
pub mod cell;
pub mod matrix;
pub mod shape;
// What is under it.
mod accounting;
mod error;
mod farm;
mod inject;
mod judge;
mod place;
mod trace;
mod written;

pub use error::LabError;
