//! Failures of a director or an agent.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Reason why a director or an agent cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// File that cannot be read.
    #[error("{path}: {error}")]
    Read {
        /// Path.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// File that is no configuration.
    #[error("{path}: {text}")]
    Parse {
        /// Path.
        path: PathBuf,
        /// Fault and place.
        text: String,
    },
    /// Fault of the configuration.
    #[error(transparent)]
    Config(#[from] sheaf_serve::ConfigError),
    /// Key whose value does not fit the others.
    #[error("[director]: found {key} = {found:?}, expected {expected}")]
    Key {
        /// Key in the file.
        key: &'static str,
        /// Value as found.
        found: String,
        /// Values that fit.
        expected: String,
    },
    /// Kind of servers that there is not.
    #[error("found backend {found:?}, expected one of {expected}")]
    Backend {
        /// Name as found.
        found: String,
        /// Names there are.
        expected: String,
    },
    /// Key of a service that does not fit its kind of servers.
    #[error("[[service]] {service:?}: found {key} = {found}, expected {expected}")]
    Unfit {
        /// Service.
        service: String,
        /// Key in the file.
        key: &'static str,
        /// Value as found.
        found: String,
        /// Values that fit.
        expected: &'static str,
    },
    /// Folder that cannot stand in the configuration of a server.
    #[error(
        "found folder {0:?}, expected a path from '/' on, of letters, digits, '.', '_', '-' and '/'"
    )]
    Folder(PathBuf),
    /// Plane that does not begin.
    #[error(transparent)]
    Plane(#[from] sheaf_planes::PlaneError),
    /// Address that cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Address.
        address: SocketAddr,
        /// Error of the operating system.
        error: io::Error,
    },
    /// Thread that cannot be started.
    #[error("a thread cannot be started: {0}")]
    Thread(#[source] io::Error),
    /// Kernel that lists no connections.
    #[error("the kernel lists no connections (sock_diag): {0}")]
    Connections(#[source] io::Error),
}
