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
    /// Key of `[failover]` with a value outside of its range.
    #[error("[failover]: found {key} = {found}, expected {expected}")]
    Failover {
        /// Key in the file.
        key: &'static str,
        /// Value as found.
        found: String,
        /// Values that fit.
        expected: String,
    },
    /// Key of `[expect]` with a value outside of its range.
    #[error("[expect.{service}]: found {key} = {found}, expected {expected}")]
    Expect {
        /// Service.
        service: String,
        /// Key in the file.
        key: &'static str,
        /// Value as found.
        found: String,
        /// Values that fit.
        expected: &'static str,
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
    /// Director that is none of `[[failover.director]]`.
    #[error("found director {found:?}, expected one of {} in [[failover.director]]", .expected.join(", "))]
    NoDirector {
        /// Name as found.
        found: String,
        /// Names of directors.
        expected: Vec<String>,
    },
    /// Service that the file does not have.
    #[error("found service {found:?}, expected one of {}", .expected.join(", "))]
    NoService {
        /// Name as found.
        found: String,
        /// Names of services.
        expected: Vec<String>,
    },
    /// Machine that is to be a server and has no address of one.
    #[error(
        "found no address of a server on this machine, expected one of [[service.server]]; or --role director"
    )]
    NoServerHere,
    /// Machine that has no address of an agent.
    #[error("found no address of an agent on this machine, expected one of {}", .expected.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    NoAgentHere {
        /// Addresses in the file.
        expected: Vec<SocketAddr>,
    },
    /// Director that stands alone.
    #[error(
        "found no table [failover], expected one with the directors that stand in for each other"
    )]
    NoFailover,
    /// Facts of this machine that cannot be read.
    #[error(transparent)]
    Facts(#[from] crate::facts::FactsError),
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
