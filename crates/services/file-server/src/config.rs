//! Settings of a file server.

use sheaf_ship::S3Access;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of a file server.
#[derive(Clone, Debug)]
pub struct FileServerConfig {
    /// Folder that is served.
    pub folder: PathBuf,
    /// Address to listen at; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Name in the header `X-Served-By` of every answer.
    pub name: Option<String>,
    /// Whether files may be uploaded, moved and deleted.
    pub is_writable: bool,
    /// Whether an uploaded file is on the disk before it is answered for.
    pub is_synced: bool,
    /// Threads that serve; 0: as many as processors.
    pub threads: usize,
    /// Address of the page with metrics, in the clear; `None`: no page.
    pub status: Option<SocketAddr>,
    /// Whether other machines are served without TLS.
    pub is_insecure: bool,
    /// Certificate and key of TLS; `None`: HTTP in the clear.
    pub tls: Option<TlsFiles>,
    /// Whether clients may have files copied from and to other servers.
    pub has_third_party: bool,
    /// PEM file with the authorities that other servers and issuers are checked by; `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// Tokens that clients must have; `None`: everyone may do what the server does.
    pub tokens: Option<TokenConfig>,
    /// Addresses of other servers of the same service, to which clients are sent for files that are not here.
    pub replicas: Vec<String>,
    /// Whether clients are sent to where the catalogue says that a file was shipped to.
    pub follows_shipped: bool,
    /// Store whose files are served in place of those of the folder.
    pub store: Option<StoreConfig>,
    /// Bounds of what clients may do.
    pub limits: Limits,
}

impl FileServerConfig {
    /// Settings for a folder served read-only, with defaults.
    #[must_use]
    pub fn new(folder: PathBuf, listen: SocketAddr) -> Self {
        Self {
            folder,
            listen,
            name: None,
            is_writable: false,
            is_synced: true,
            threads: 0,
            status: None,
            is_insecure: false,
            tls: None,
            has_third_party: false,
            ca: None,
            tokens: None,
            replicas: Vec::new(),
            follows_shipped: false,
            store: None,
            limits: Limits::default(),
        }
    }
}

/// Store behind a server.
#[derive(Clone, Debug)]
pub enum StoreConfig {
    /// Server of HTTP or WebDAV: XRootD, EOS, dCache, nginx, or one of ours.
    Http {
        /// Address of the folder there.
        url: String,
        /// File with a token, sent as `Authorization: Bearer`; read again for each request.
        token_file: Option<PathBuf>,
    },
    /// Bucket of S3.
    S3 {
        /// Address, such as `s3://bucket/prefix`.
        url: String,
        /// Server and keys.
        access: S3Access,
    },
}

/// Tokens of the WLCG profile.
#[derive(Clone, Debug)]
pub struct TokenConfig {
    /// URLs of the issuers that are trusted; `https`, or `http` on this machine.
    pub issuers: Vec<String>,
    /// Audiences that name this server, beside the one of the profile that names all.
    pub audiences: Vec<String>,
}

/// PEM files of TLS.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Chain of certificates.
    pub certificate: PathBuf,
    /// Private key, which no one else may read.
    pub key: PathBuf,
}

/// Bounds of what clients may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once.
    pub connections_max: usize,
    /// Bytes of the head of a request; vector reads of ROOT name hundreds of ranges.
    pub head_bytes_max: usize,
    /// Headers of a request, up to 256.
    pub headers_max: usize,
    /// Time for the head of a request, from its first byte.
    pub head_within: Duration,
    /// Time that a connection may wait for a request.
    pub idle_within: Duration,
    /// Bytes a second that a client has to take or send at least, over [`rate_window`](Self::rate_window).
    pub rate_min: u64,
    /// Time over which the rate of a client is measured.
    pub rate_window: Duration,
    /// Time for running requests when the server stops.
    pub drain_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            head_bytes_max: 32 << 10,
            headers_max: 100,
            head_within: Duration::from_secs(10),
            idle_within: Duration::from_secs(60),
            rate_min: 1000,
            rate_window: Duration::from_secs(30),
            drain_within: Duration::from_secs(30),
        }
    }
}
