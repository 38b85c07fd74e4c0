//! Settings of a file that is fetched.

use std::path::PathBuf;
use std::time::Duration;

/// File that is fetched, and how.
#[derive(Clone, Debug)]
pub struct FetchConfig {
    /// Addresses of the file; at least one.
    pub urls: Vec<String>,
    /// File that it is written to.
    pub to: PathBuf,
    /// Whether a file that is there may be replaced.
    pub may_replace: bool,
    /// Ranges that are fetched at once.
    pub streams: usize,
    /// Bytes of a range.
    pub part_bytes: u64,
    /// Checksum that the file has to have, such as `adler32=03da0195`; `None`: the one that servers state.
    pub checksum: Option<String>,
    /// Whether a file that no server states a checksum of is a failure.
    pub must_verify: bool,
    /// Whether copies that servers name are used as well.
    pub follows_links: bool,
    /// File with a token, which is sent to the servers in `urls` alone.
    pub token_file: Option<PathBuf>,
    /// PEM file with the authorities that servers are checked by; `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// Longest time of one request; the rest of its range is asked again then, elsewhere if there is another server.
    pub stall: Duration,
    /// Longest time without a byte from any server.
    pub give_up: Duration,
}

impl FetchConfig {
    /// Settings with defaults.
    #[must_use]
    pub fn new(urls: Vec<String>, to: PathBuf) -> Self {
        Self {
            urls,
            to,
            may_replace: false,
            streams: 4,
            part_bytes: 8 << 20,
            checksum: None,
            must_verify: false,
            follows_links: true,
            token_file: None,
            ca: None,
            stall: Duration::from_secs(20),
            give_up: Duration::from_secs(30),
        }
    }
}
