//! Options of the benchmark of the collector.

use anyhow::Context as _;
use std::path::PathBuf;
use tempfile::TempDir;

/// Choice of servers and steps, and sizes of the loads.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program `sheaf`, which is the collector and the generator.
    pub program: PathBuf,
    /// Servers by name; empty for all.
    pub servers: Vec<String>,
    /// Steps by name; empty for all.
    pub steps: Vec<String>,
    /// Series of the loads.
    pub series: u32,
    /// Length of a load, in s.
    pub seconds: f64,
    /// Points a datagram, and points a second that are offered.
    pub udp: Vec<(u32, u64)>,
    /// Connections of HTTP.
    pub connections: u32,
    /// Samples of a latency.
    pub probes: u32,
    /// Threads of Sheaf that receive datagrams.
    pub receivers: u32,
    /// Folder for the data of the servers; that of the system if it is empty.
    pub folder: Option<PathBuf>,
}

impl Options {
    pub(crate) fn has(&self, server: &str) -> bool {
        self.servers.is_empty() || self.servers.iter().any(|name| name == server)
    }

    pub(crate) fn has_step(&self, step: &str) -> bool {
        self.steps.is_empty() || self.steps.iter().any(|name| name == step)
    }

    pub(crate) fn folder(&self) -> anyhow::Result<TempDir> {
        let made = match &self.folder {
            Some(folder) => TempDir::new_in(folder),
            None => TempDir::new(),
        };
        made.context("cannot make a folder for the data of a server")
    }
}
