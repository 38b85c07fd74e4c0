//! The command line of a peer.

use anyhow::{Result, ensure};
use std::net::SocketAddr;

/// Role of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// Sends as fast as it can.
    Send,
    /// Takes what comes.
    Receive,
}

/// Command line of a peer.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct Args {
    /// Role of this process
    #[arg(value_enum)]
    pub role: Role,
    /// Where to listen, IP:PORT
    #[arg(long, conflicts_with = "connect", required_unless_present = "connect")]
    pub bind: Option<SocketAddr>,
    /// Whom to connect to, IP:PORT, one or several
    #[arg(long, value_delimiter = ',')]
    pub connect: Vec<SocketAddr>,
    /// Processes on the other side
    #[arg(long, default_value_t = 1)]
    pub peers: usize,
    /// Bytes of a message
    #[arg(long)]
    pub bytes: usize,
    /// Messages that may be queued for one connection, where the library has such a bound
    #[arg(long, default_value_t = 5)]
    pub queue: usize,
    /// Bytes of the pool of payloads of each sender
    #[arg(long, default_value_t = 256 << 20)]
    pub pool_bytes: usize,
    /// Bytes of memory to receive into, where the library lets one choose; half of it is kept
    #[arg(long, default_value_t = 256 << 20)]
    pub memory_bytes: usize,
    /// Which of the senders this is
    #[arg(long, default_value_t = 0)]
    pub id: u16,
    /// Congestion control to ask for, where the library lets one
    #[arg(long)]
    pub congestion: Option<String>,
}

impl Args {
    /// Messages that a receiver keeps before it releases the oldest, as a process does that builds frames of them.
    #[must_use]
    pub fn held_max(&self) -> usize {
        (self.memory_bytes / 2 / self.bytes).max(1)
    }

    /// Refuses what cannot be run.
    ///
    /// # Errors
    ///
    /// What was found and what was expected.
    pub fn check(&self) -> Result<()> {
        ensure!(
            self.bytes >= crate::STAMP_BYTES,
            "--bytes is {}, expected at least {}",
            self.bytes,
            crate::STAMP_BYTES
        );
        ensure!(
            self.pool_bytes >= self.bytes,
            "--pool-bytes is {}, less than a message",
            self.pool_bytes
        );
        ensure!(
            self.peers > 0 && self.queue > 0,
            "--peers and --queue are at least 1"
        );
        ensure!(
            self.bind.is_some() || self.connect.len() == self.peers,
            "--connect names {} addresses, expected one for each of --peers {}",
            self.connect.len(),
            self.peers
        );
        Ok(())
    }
}
