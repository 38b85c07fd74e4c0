//! TLS to the servers of an ensemble, for a client that connects in the clear.
//!
//! The client library can encrypt only with a second library of cryptography beside the one of the farm
//! (`docs/adr/2026-11-23-zookeeper-is-a-feature.md`). A [`Tunnel`] listens on a loopback port for each server and joins
//! a connection to a TLS session with that server. A port on loopback is open to every process of the machine, and the
//! session has the rights of this node: so a connection is accepted from this very process only, and any other one is
//! closed before a byte goes either way.

use crate::options::{OptionsError, Tls};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use thiserror::Error;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tracing::warn;

/// Pause after a failed accept: the process has no descriptor left, and takes one as soon as another is closed.
const AGAIN: Duration = Duration::from_millis(100);

/// Loopback ports, one for each server.
#[derive(Debug)]
pub(crate) struct Tunnel {
    listeners: Vec<std::net::TcpListener>,
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// HOST:PORT and host of each server.
    servers: Vec<(String, ServerName<'static>)>,
    config: Arc<ClientConfig>,
    /// Upper bound of the time until a session of TLS stands.
    patience: Duration,
    last_error: Mutex<Option<String>>,
}

/// Reason why there is no TLS session with a server.
#[derive(Debug, Error)]
enum TunnelError {
    #[error("{server} cannot be reached: {source}")]
    Unreachable { server: String, source: io::Error },
    #[error("{server} does not answer within {} ms", patience.as_millis())]
    Silent { server: String, patience: Duration },
    #[error(
        "{server} does not answer in TLS: found bytes of another protocol or an early end, expected the secure port of \
         ZooKeeper"
    )]
    Plain { server: String },
    #[error(
        "the certificate of {server} is not signed by the CA of membership.ca: found {found}, expected one of the \
         ensemble's own CA"
    )]
    Authority { server: String, found: String },
    #[error("the certificate of {server} cannot be used: {found}")]
    Certificate { server: String, found: String },
    #[error("{server} refuses the certificate of this node: {found:?}")]
    Refused {
        server: String,
        found: AlertDescription,
    },
    #[error("no TLS session with {server}: {source}")]
    Other { server: String, source: io::Error },
}

impl TunnelError {
    fn new(server: &str, source: io::Error) -> Self {
        let server = server.to_owned();
        let inner = source
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match inner {
            Some(rustls::Error::InvalidCertificate(found)) => match found {
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    Self::Authority {
                        server,
                        found: format!("{found:?}"),
                    }
                }
                other => Self::Certificate {
                    server,
                    found: other.to_string(),
                },
            },
            Some(rustls::Error::AlertReceived(found)) if is_of_certificate(*found) => {
                Self::Refused {
                    server,
                    found: *found,
                }
            }
            Some(rustls::Error::InvalidMessage(_)) => Self::Plain { server },
            // A plain server closes with bytes of the handshake unread, which resets the connection.
            None if is_early_end(source.kind()) => Self::Plain { server },
            _ => Self::Other { server, source },
        }
    }
}

/// Returns whether a connection that fails like this in its handshake has ended at the other side.
pub(crate) fn is_early_end(kind: io::ErrorKind) -> bool {
    use io::ErrorKind as End;
    matches!(
        kind,
        End::UnexpectedEof | End::ConnectionReset | End::ConnectionAborted | End::BrokenPipe
    )
}

/// Returns whether a server that sends this alert does not accept the certificate of its client.
fn is_of_certificate(alert: AlertDescription) -> bool {
    use AlertDescription as Alert;
    matches!(
        alert,
        Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::CertificateRequired
            | Alert::UnknownCA
            | Alert::AccessDenied
    )
}

impl Tunnel {
    /// Opens the ports; nothing is accepted before [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// [`OptionsError::Tls`] if certificates cannot be used, [`OptionsError::Thread`] if no port can be had.
    pub(crate) fn open(
        servers: &[String],
        tls: &Tls,
        patience: Duration,
    ) -> Result<Self, OptionsError> {
        let config = Arc::new(client_config(tls)?);
        let mut named = Vec::new();
        for server in servers {
            let host = server.rsplit_once(':').map_or("", |(host, _)| host);
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let name = ServerName::try_from(host.to_owned())
                .map_err(|_| OptionsError::Tls(format!("found {host:?}, expected a host name")))?;
            named.push((server.clone(), name));
        }
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for _ in servers {
            let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.set_nonblocking(true)?;
            addresses.push(listener.local_addr()?);
            listeners.push(listener);
        }
        Ok(Self {
            listeners,
            addresses,
            shared: Arc::new(Shared {
                servers: named,
                config,
                patience,
                last_error: Mutex::default(),
            }),
        })
    }

    /// Returns the addresses for the client, in the order of the servers.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = String> {
        self.addresses.iter().map(ToString::to_string)
    }

    /// Returns a handle by which the last failure can be read.
    pub(crate) fn failures(&self) -> Failures {
        Failures(Arc::clone(&self.shared))
    }

    /// Returns the number of tasks that run as long as the tunnel does.
    pub(crate) fn tasks(&self) -> usize {
        self.listeners.len()
    }

    /// Accepts connections until this future is dropped, which closes them.
    pub(crate) async fn run(self) {
        let mut ports = JoinSet::new();
        for (index, listener) in self.listeners.into_iter().enumerate() {
            // An error is that of a runtime without sockets, which this one has.
            if let Ok(listener) = TcpListener::from_std(listener) {
                ports.spawn(Arc::clone(&self.shared).serve(index, listener));
            }
        }
        while ports.join_next().await.is_some() {}
        std::future::pending::<()>().await;
    }
}

/// Last failure of a tunnel.
#[derive(Clone, Debug)]
pub(crate) struct Failures(Arc<Shared>);

impl Failures {
    /// Returns the last failure since the last TLS session.
    pub(crate) fn last(&self) -> Option<String> {
        self.0.lock().clone()
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(self: Arc<Self>, index: usize, listener: TcpListener) {
        let mut streams = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((near, peer)) => {
                        let shared = Arc::clone(&self);
                        streams.spawn(async move { shared.join(index, near, peer).await });
                    }
                    Err(error) => {
                        warn!(%error, "Cannot accept a connection for ZooKeeper");
                        tokio::time::sleep(AGAIN).await;
                    }
                },
                Some(_) = streams.join_next(), if !streams.is_empty() => {}
            }
        }
    }

    /// Joins one connection of the client to a TLS session with the server, until either side closes.
    async fn join(&self, index: usize, mut near: TcpStream, peer: SocketAddr) {
        let here = near.local_addr();
        if !here.is_ok_and(|here| is_of_this_process(peer, here)) {
            warn!(%peer, "Refuses another process at the port for ZooKeeper");
            return;
        }
        // An error costs latency only.
        let _ = near.set_nodelay(true);
        let (server, _) = &self.servers[index];
        let joined = tokio::time::timeout(self.patience, self.connect(index)).await;
        let joined = joined.unwrap_or_else(|_| {
            Err(TunnelError::Silent {
                server: server.clone(),
                patience: self.patience,
            })
        });
        match joined {
            Ok(mut far) => {
                let copied = copy_bidirectional(&mut near, &mut far).await;
                // A server refuses a certificate after the handshake of TLS 1.3, when the first answer is read. Any
                // other end is the client's to report.
                if let Err(source) = copied
                    && let refused @ TunnelError::Refused { .. } = TunnelError::new(server, source)
                {
                    self.note(refused.to_string());
                } else {
                    *self.lock() = None;
                }
            }
            Err(error) => self.note(error.to_string()),
        }
    }

    async fn connect(
        &self,
        index: usize,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, TunnelError> {
        let (server, name) = &self.servers[index];
        let far = TcpStream::connect(server.as_str())
            .await
            .map_err(|source| TunnelError::Unreachable {
                server: server.clone(),
                source,
            })?;
        let _ = far.set_nodelay(true);
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let session = connector.connect(name.clone(), far).await;
        session.map_err(|source| TunnelError::new(server, source))
    }

    /// Keeps the failure for the next report, and logs a new one.
    fn note(&self, failure: String) {
        let mut last = self.lock();
        if last.as_ref() != Some(&failure) {
            warn!(failure, "No TLS session with ZooKeeper");
            *last = Some(failure);
        }
    }
}

/// Returns the configuration of a client with ring as its cryptography.
fn client_config(tls: &Tls) -> Result<ClientConfig, OptionsError> {
    let unusable =
        |what: &str, error: &dyn std::fmt::Display| OptionsError::Tls(format!("{what}: {error}"));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(tls.ca.as_bytes()) {
        let certificate = certificate.map_err(|error| unusable("the CA", &error))?;
        roots
            .add(certificate)
            .map_err(|error| unusable("the CA", &error))?;
    }
    if roots.is_empty() {
        let why = "found no certificate, expected at least one in PEM";
        return Err(unusable("the CA", &why));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable("TLS", &error))?
        .with_root_certificates(roots);
    let Some((certificates, key)) = &tls.identity else {
        return Ok(builder.with_no_client_auth());
    };
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(certificates.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|error| unusable("the certificate of this node", &error))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| unusable("the key of this node", &error))?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|error| unusable("the certificate of this node", &error))
}

/// Returns whether the connection from `peer` to `here`, both on this machine, is one of this process: its socket is
/// among the open files of this process.
fn is_of_this_process(peer: SocketAddr, here: SocketAddr) -> bool {
    let (SocketAddr::V4(peer), SocketAddr::V4(here)) = (peer, here) else {
        return false;
    };
    let Ok(table) = fs::read_to_string("/proc/self/net/tcp") else {
        return false;
    };
    let Some(inode) = socket_inode(&table, peer, here) else {
        return false;
    };
    let wanted = format!("socket:[{inode}]");
    let Ok(files) = fs::read_dir("/proc/self/fd") else {
        return false;
    };
    files
        .flatten()
        .filter_map(|file| fs::read_link(file.path()).ok())
        .any(|target| target.to_str() == Some(&wanted))
}

/// Returns the inode of the socket with these addresses, from the text of `/proc/net/tcp`.
fn socket_inode(table: &str, local: SocketAddrV4, remote: SocketAddrV4) -> Option<&str> {
    let (local, remote) = (in_table(local), in_table(remote));
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let is_it = fields.next() == Some(&*local) && fields.next() == Some(&*remote);
        // Behind the addresses: state, queues, timer, retransmissions, user, probes, inode.
        is_it.then(|| fields.nth(6)).flatten()
    })
}

/// Returns an address as the kernel prints it: its bytes as a number of this machine, and the port, in hexadecimal.
fn in_table(address: SocketAddrV4) -> String {
    let host = u32::from_ne_bytes(address.ip().octets());
    format!("{host:08X}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn v4(address: SocketAddr) -> SocketAddrV4 {
        match address {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(_) => panic!("found IPv6, expected IPv4"),
        }
    }

    #[test]
    fn a_connection_of_this_process_is_told_from_that_of_another() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let own = std::net::TcpStream::connect(here).unwrap();
        let (_accepted, peer) = listener.accept().unwrap();
        assert_eq!(peer, own.local_addr().unwrap());
        assert!(is_of_this_process(peer, here));

        let script = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{}; read -r line <&3",
            here.port()
        );
        let mut other = Command::new("bash")
            .args(["-c", &script])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let (accepted, peer) = listener.accept().unwrap();
        assert!(!is_of_this_process(peer, here));
        drop(accepted);
        other.wait().unwrap();
    }

    #[test]
    fn the_inode_is_that_of_the_row_with_both_addresses() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let here = v4(listener.local_addr().unwrap());
        let far = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 2), 0x0102);
        let row = |local, remote, inode| {
            format!(
                "   0: {} {} 01 00000000:00000000 00:00000000 00000000  1000        0 {inode} 1 0 20 4 0 10 -1",
                in_table(local),
                in_table(remote)
            )
        };
        let table = format!(
            "  sl  local_address rem_address   st\n{}\n{}\n",
            row(far, here, 11),
            row(here, far, 22)
        );
        assert_eq!(socket_inode(&table, here, far), Some("22"));
        assert_eq!(socket_inode(&table, far, here), Some("11"));
        assert_eq!(socket_inode(&table, here, here), None);
        assert_eq!(
            in_table(far),
            format!("{:08X}:0102", u32::from_ne_bytes([127, 0, 0, 2]))
        );
    }
}
