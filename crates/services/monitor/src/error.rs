//! Reasons why a collector does not start.

use crate::config::Problem;
use std::io;
use std::path::PathBuf;

/// Reason why a collector does not start.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// An address or a path at which it should listen cannot be had.
    #[error("cannot listen at {at}: {source}")]
    Listen {
        /// Address or path of the configuration.
        at: String,
        /// Reason of the operating system.
        source: io::Error,
    },
    /// The folder of the store.
    #[error("cannot open the store in {}: {source}", folder.display())]
    Store {
        /// Folder of the configuration.
        folder: PathBuf,
        /// Reason.
        source: sheaf_sample_store::OpenError,
    },
    /// Operators of the processing that make no sense.
    #[error("monitor.processing: {0}")]
    Processing(#[from] sheaf_processing::ConfigErrors),
    /// Keys of the configuration that make no sense, all at once.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Config(Vec<Problem>),
    /// Files of the security.
    #[error("monitor.security: {0}")]
    Security(#[from] crate::security::SecurityError),
    /// Files of collectd.
    #[error("monitor.collectd: {0}")]
    Collectd(#[from] crate::signatures::CollectdError),
    /// A place that the collector should ask, with the reason why that cannot be.
    #[error("cannot ask {url}: {reason}")]
    Ask {
        /// URL of the configuration.
        url: String,
        /// Reason.
        reason: String,
    },
    /// No thread or runtime can be made.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}
