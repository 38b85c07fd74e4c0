//! Errors of a farm.

use sheaf_auth::IdentityError;
use sheaf_protocol::NodeId;
use sheaf_testbed::IoError;
use sheaf_testbed::clock::Interrupted;
use sheaf_testbed::hosts::SessionError;
use sheaf_testbed::machine::{DiskError, NetworkError};
use sheaf_testbed::relay::RelayError;
use sheaf_testbed::tool::ToolError;
use sheaf_zookeeper::server::{HomeError, ServerError};
use std::io;
use thiserror::Error;

/// Reasons why a farm, or one of its nodes, does not start.
#[derive(Debug, Error)]
pub enum FarmError {
    /// A signal asked this process to end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A file, a process or a port.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A process does not start.
    #[error(transparent)]
    Start(#[from] sheaf_farm::StartError),
    /// There is no bridge for its namespaces.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// There is no namespace for a node.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// There is no small disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// There is no relay.
    #[error(transparent)]
    Relay(#[from] RelayError),
    /// A host did not do what it was asked.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The farm file has no TOML form.
    #[error("cannot write a farm file: {0}")]
    FarmFile(String),
    /// There is no Java, or no ZooKeeper.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// ZooKeeper servers do not start.
    #[error("cannot start ZooKeeper: {0}")]
    Servers(#[from] ServerError),
    /// There are no certificates.
    #[error("cannot make certificates: {0}")]
    Certificates(#[from] IdentityError),
    /// A node ended.
    #[error("{node} ended before the run began: {words}")]
    Ended {
        /// The node.
        node: NodeId,
        /// The last line of its log.
        words: String,
    },
    /// No TF came.
    #[error("the run has not begun after {seconds} s")]
    NotBegun {
        /// Time that it had.
        seconds: u64,
    },
}

impl FarmError {
    /// Returns a closure for `map_err`: the operating system refused `what`.
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let refused = IoError::of(what);
        move |source| refused(source).into()
    }
}
