//! A server as its owner sees it: started, asked for its address, stopped.

use crate::config::FileServerConfig;
use crate::dav::Dav;
use crate::front::Front;
use crate::metrics::Counts;
use crate::outside::{CaError, is_safe};
use crate::peer::Peers;
use crate::replica::Replicas;
use crate::serve;
use crate::site::{Site, Stop};
use crate::sums::SumStore;
use crate::tokens::Guard;
use crate::tree::Tree;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sheaf_auth::IdentityError;
use sheaf_metrics::Registry;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;
use thiserror::Error;
use tokio_rustls::TlsAcceptor;
use tracing::{error, warn};

/// Connections that wait for being accepted.
const BACKLOG: i32 = 4096;
/// Descriptors beside those of connections: listeners, event queues, catalogues, the page.
const FILES_BESIDE: u64 = 256;
/// Threads for work that waits for the disk, for each thread that serves.
const BLOCKING_THREADS: usize = 16;

/// Reason why a server cannot start.
#[derive(Debug, Error)]
pub enum FileServerError {
    /// Folder that cannot be opened.
    #[error("cannot serve {}: {source}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// Address that cannot be listened at.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Reason.
        source: io::Error,
    },
    /// Address that other machines reach, without TLS.
    #[error(
        "found the address {0} without TLS, expected a certificate, or the setting `insecure`: every host on the way \
         could read what is served"
    )]
    Clear(SocketAddr),
    /// Name that cannot stand in a header.
    #[error("found the name {0:?}, expected printable ASCII")]
    Name(String),
    /// Issuer of tokens whose keys could be replaced on their way.
    #[error("found the issuer {0:?}, expected a URL with https")]
    Issuer(String),
    /// Store that cannot be served.
    #[error("cannot serve the store: {0}")]
    Store(String),
    /// Address that no other server of the service can have.
    #[error("cannot send clients to a peer: {0}")]
    Peer(String),
    /// Authorities that other servers are checked by.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// Certificate or key.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Threads that cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// Running file server.
pub struct FileServer {
    site: Arc<Site>,
    address: SocketAddr,
    status: Option<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for FileServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FileServer").field(&self.address).finish()
    }
}

impl FileServer {
    /// Starts a server; it listens when this returns.
    ///
    /// # Errors
    ///
    /// [`FileServerError`] with what was found and expected.
    pub fn start(
        config: &FileServerConfig,
        registry: &Arc<Registry>,
    ) -> Result<Self, FileServerError> {
        let is_header = |name: &String| name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if let Some(name) = config.name.as_ref().filter(|name| !is_header(name)) {
            return Err(FileServerError::Name(name.clone()));
        }
        let is_open = |address: &SocketAddr| !address.ip().to_canonical().is_loopback();
        let in_clear = config.tls.is_none().then_some(config.listen);
        let mut in_clear = in_clear.into_iter().chain(config.status);
        if let Some(address) = in_clear.find(is_open).filter(|_| !config.is_insecure) {
            return Err(FileServerError::Clear(address));
        }
        let front = match &config.store {
            None => None,
            // What is behind is named by the operator, and may be on this machine.
            Some(store) => {
                let client = Peers::new(config.ca.as_deref(), config.is_insecure, true)?;
                Some(Front::new(store, client).map_err(FileServerError::Store)?)
            }
        };
        let tree = match front {
            None => Tree::open(&config.folder),
            Some(_) => Tree::nothing(),
        };
        let tree = tree.map_err(|source| FileServerError::Folder {
            folder: config.folder.clone(),
            source,
        })?;
        let tls = match &config.tls {
            None => None,
            Some(files) => {
                let server = sheaf_auth::web::server(&files.certificate, &files.key, None)?;
                Some(TlsAcceptor::from(server))
            }
        };
        let guard = match &config.tokens {
            None => None,
            Some(tokens) => {
                if let Some(url) = tokens.issuers.iter().find(|url| !is_safe(url)) {
                    return Err(FileServerError::Issuer(url.clone()));
                }
                Some(Arc::new(Guard::new(tokens, config.ca.as_deref())?))
            }
        };
        let client = || {
            let is_local = !is_open(&config.listen);
            Peers::new(config.ca.as_deref(), config.is_insecure, is_local)
        };
        let peers = config.has_third_party.then(client).transpose()?;
        let has_replicas = !config.replicas.is_empty() || config.follows_shipped;
        let replicas = match has_replicas.then(client).transpose()? {
            None => None,
            Some(client) => {
                let made = Replicas::new(&config.replicas, config.follows_shipped, client);
                Some(made.map_err(FileServerError::Peer)?)
            }
        };
        let threads = match config.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let tree = Arc::new(tree);
        let mut limits = config.limits;
        limits.connections_max = connections_of(raise_files(), limits.connections_max);
        if limits.connections_max < config.limits.connections_max {
            warn!(
                connections = limits.connections_max,
                wanted = config.limits.connections_max,
                "The limit of descriptors allows fewer connections (ulimit -Hn)"
            );
        }
        let site = Arc::new(Site {
            dav: Dav::new(tree.clone(), config.is_synced),
            sums: SumStore::default(),
            is_writable: config.is_writable,
            is_synced: config.is_synced,
            tree,
            name: config.name.clone(),
            limits,
            front,
            peers,
            replicas,
            guard,
            tls,
            registry: registry.clone(),
            counts: Counts::new(registry),
            stop: Stop::default(),
            open: AtomicUsize::new(0),
            blocking_threads: BLOCKING_THREADS,
        });
        let open = |address, count| {
            let failed = |source| FileServerError::Listen { address, source };
            let listeners = listeners(address, count).map_err(failed)?;
            let address = listeners[0].local_addr().map_err(failed)?;
            Ok::<_, FileServerError>((listeners, address))
        };
        let (listeners, address) = open(config.listen, threads)?;
        let mut status = match config.status {
            Some(status) => Some(open(status, 1)?),
            None => None,
        };
        let mut server = Self {
            site,
            address,
            status: status.as_ref().map(|(_, address)| *address),
            threads: Vec::new(),
        };
        for (at, listener) in listeners.into_iter().enumerate() {
            let site = server.site.clone();
            // The first thread has the page.
            let page = status.take().and_then(|(mut page, _)| page.pop());
            let thread = std::thread::Builder::new()
                .name(format!("files-{at}"))
                .spawn(move || {
                    if let Err(error) = serve::run(site, listener, page) {
                        error!(%error, "A thread of the file server has ended");
                    }
                });
            server
                .threads
                .push(thread.map_err(FileServerError::Thread)?);
        }
        Ok(server)
    }

    /// Address that it listens at.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Address of the page with metrics, if it has one.
    #[must_use]
    pub fn status_address(&self) -> Option<SocketAddr> {
        self.status
    }

    /// Stops: takes no further request, and waits for those that run, up to
    /// [`drain_within`](crate::Limits::drain_within).
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.site.stop.set();
        for thread in self.threads.drain(..) {
            // A thread that panicked has told so itself.
            let _ = thread.join();
        }
    }
}

impl Drop for FileServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Raises the limit of descriptors of this process as far as it may be raised. Returns it.
fn raise_files() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(_) => current,
    };
    limit.unwrap_or(u64::MAX)
}

/// Returns how many of the `wanted` connections so many descriptors allow: each has a socket and a file.
fn connections_of(files: u64, wanted: usize) -> usize {
    let room = files.saturating_sub(FILES_BESIDE) / 2;
    usize::try_from(room)
        .unwrap_or(usize::MAX)
        .clamp(1, wanted.max(1))
}

/// Opens a listener for each thread at one address; the kernel spreads connections over them.
fn listeners(address: SocketAddr, threads: usize) -> io::Result<Vec<TcpListener>> {
    // With SO_REUSEPORT a second server of the same user would take a part of the connections, unnoticed.
    drop(socket(address, false)?);
    let mut address = address;
    let mut listeners = Vec::with_capacity(threads);
    for _ in 0..threads {
        let socket = socket(address, true)?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from(socket);
        // The port of the first, if any was wanted.
        address = listener.local_addr()?;
        listeners.push(listener);
    }
    Ok(listeners)
}

fn socket(address: SocketAddr, is_shared: bool) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(is_shared)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::connections_of;

    #[test]
    fn each_connection_has_a_socket_and_a_file() {
        assert_eq!(connections_of(1_000_000, 10_000), 10_000);
        assert_eq!(connections_of(1256, 10_000), 500);
        assert_eq!(connections_of(100, 10_000), 1);
    }
}
