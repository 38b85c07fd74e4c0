//! Benchmarks: what this machine moves, measured beside plain TCP.
//!
//! [`farm`] measures a whole farm and, in turn with it, a plain pair of TCP sockets; [`transport`] measures the
//! transport alone beside plain TCP and other libraries; [`monitor`] measures the collector beside other servers,
//! [`paper`] asks again what the monitoring paper asked, [`mod@write`] measures the writer beside `fio`, and
//! [`serve`] loads servers behind one address beside `HAProxy`, [`hostile`] attacks a file server, and [`icn`] leads
//! TFs through the brain of the ICN alone. The first three keep their processes on CPUs (`cpus`)
//! and drop runs in which the machine was busy with others; all open their reports with the same facts (`report`).

mod cpus;
pub mod farm;
pub mod hostile;
pub mod icn;
pub mod monitor;
pub mod paper;
mod report;
pub mod serve;
pub mod threads;
pub mod transport;
pub mod write;

/// Error of a benchmark that lacks a program to measure or to compare with. Nothing was started.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Missing(String);
