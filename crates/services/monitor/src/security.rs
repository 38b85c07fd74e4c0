//! Rights to send, ask and order: TLS and tokens on streams, networks on datagrams.

use crate::config::{SecurityConfig, is_set};
use ipnet::IpNet;
use ring::digest::{SHA256, digest};
use sheaf_auth::IdentityError;
use sheaf_metrics::{Counter, Metric, Registry};
use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tracing::warn;

/// Time for the handshake of a client.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
/// Largest file of tokens.
const TOKENS_BYTES_MAX: u64 = 1 << 20;

const REFUSED: Metric = Metric::counter(
    "monitor_access_refused_total",
    "Connections, requests and datagrams refused because their sender may not, by reason.",
)
.labels(&["reason"])
.advice(
    "`network`: a datagram from outside of `monitor.security.allow`. `tls`: a client without TLS, or with a \
     certificate of another CA. `token`: no token, or an unknown one. `rights`: a token that may do something else",
);

/// Reasons of [`REFUSED`].
const REASONS: [&str; 4] = ["network", "tls", "token", "rights"];

/// Lists the metrics of this file.
pub(crate) fn metrics() -> [Metric; 1] {
    [REFUSED]
}

/// Reason why the security of a configuration cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    /// Certificate, key or CA.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The file of tokens cannot be read.
    #[error("cannot read the tokens in {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// Others than the owner may read the tokens.
    #[error("tokens in {} can be read by others: found mode {mode:04o}, expected 0600", path.display())]
    OpenToOthers {
        /// The file.
        path: PathBuf,
        /// Permission bits.
        mode: u32,
    },
    /// A line that is no token.
    #[error("{}:{line}: found no token, expected `TOKEN` of 16 characters or more, or `TOKEN RIGHTS` with the rights write, read or all", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
    },
}

/// Rights of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Send samples.
    Write,
    /// Ask and see.
    Read,
    /// Both, and change the state of the collector.
    All,
}

impl Rights {
    /// Returns whether these rights include `needed`.
    pub(crate) fn include(self, needed: Self) -> bool {
        self == Self::All || self == needed
    }
}

/// Bytes both ways, in the clear or not.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Security of one collector.
pub(crate) struct Guard {
    tls: Option<TlsAcceptor>,
    /// By the SHA-256 of the token, so that a comparison tells nothing of the token by its time.
    tokens: BTreeMap<[u8; 32], Rights>,
    needs_proof: bool,
    networks: Vec<IpNet>,
    refused: [Arc<Counter>; REASONS.len()],
}

impl Guard {
    /// Reads the files of the configuration.
    pub(crate) fn open(
        config: &SecurityConfig,
        registry: &Registry,
    ) -> Result<Self, SecurityError> {
        let clients = is_set(&config.client_ca).then_some(config.client_ca.as_path());
        let tls = config.has_tls().then(|| {
            let server = sheaf_auth::web::server(&config.certificate, &config.key, clients);
            server.map(TlsAcceptor::from)
        });
        let tokens = if is_set(&config.tokens) {
            read_tokens(&config.tokens)?
        } else {
            BTreeMap::new()
        };
        if config.insecure {
            warn!(
                "insecure = true: any host that reaches this collector can write and read all samples"
            );
        }
        let counter = |reason| registry.counter(REFUSED.name, REFUSED.help, &[("reason", reason)]);
        Ok(Self {
            tls: tls.transpose()?,
            tokens,
            needs_proof: config.has_proof(),
            networks: config.networks(),
            refused: REASONS.map(counter),
        })
    }

    /// Returns whether datagrams of `sender` are taken, and counts one that is not.
    pub(crate) fn takes(&self, sender: IpAddr) -> bool {
        let sender = sender.to_canonical();
        let takes =
            self.networks.is_empty() || self.networks.iter().any(|one| one.contains(&sender));
        if !takes {
            self.note("network");
        }
        takes
    }

    /// Does the handshake of a client; returns its stream, and its rights if a certificate proves them.
    pub(crate) async fn admit(
        &self,
        stream: TcpStream,
    ) -> Option<(Box<dyn Stream>, Option<Rights>)> {
        let open = (!self.needs_proof).then_some(Rights::All);
        let Some(tls) = &self.tls else {
            return Some((Box::new(stream), open));
        };
        let accepted = tokio::time::timeout(HANDSHAKE_WITHIN, tls.accept(stream)).await;
        let Ok(Ok(stream)) = accepted else {
            self.note("tls");
            return None;
        };
        let has_certificate = stream.get_ref().1.peer_certificates().is_some();
        let rights = open.or(has_certificate.then_some(Rights::All));
        Some((Box::new(stream), rights))
    }

    /// Returns the rights of a token; `None`, and a count, for an unknown one.
    pub(crate) fn rights_of(&self, token: Option<&str>) -> Option<Rights> {
        let rights = token.and_then(|token| self.tokens.get(&hash(token)).copied());
        if rights.is_none() {
            self.note("token");
        }
        rights
    }

    /// Counts a client whose rights are others.
    pub(crate) fn note_rights(&self) {
        self.note("rights");
    }

    fn note(&self, reason: &str) {
        let at = REASONS.iter().position(|known| *known == reason);
        self.refused[at.expect("one of REASONS")].increment();
    }
}

fn hash(token: &str) -> [u8; 32] {
    let digest = digest(&SHA256, token.as_bytes());
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn read_tokens(path: &Path) -> Result<BTreeMap<[u8; 32], Rights>, SecurityError> {
    let failed = |source| SecurityError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        let path = path.to_owned();
        return Err(SecurityError::OpenToOthers { path, mode });
    }
    let mut text = String::new();
    file.take(TOKENS_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(failed)?;
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let tokens = lines.map(|(number, line)| {
        let mut words = line.split_whitespace();
        let token = words.next().filter(|token| token.len() >= 16);
        let rights = match words.next() {
            None | Some("all") => Some(Rights::All),
            Some("write") => Some(Rights::Write),
            Some("read") => Some(Rights::Read),
            Some(_) => None,
        };
        match (token, rights, words.next()) {
            (Some(token), Some(rights), None) => Ok((hash(token), rights)),
            _ => Err(SecurityError::Line {
                path: path.to_owned(),
                line: number + 1,
            }),
        }
    });
    tokens.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn tokens_have_rights_and_stay_with_their_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let text = "# of the farm\n0123456789abcdef\nsends-0123456789 write\n";
        std::fs::write(&path, text).unwrap();
        let set = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        set(0o640);
        let error = read_tokens(&path).unwrap_err().to_string();
        assert!(error.contains("found mode 0640"), "{error}");
        set(0o600);
        let config = SecurityConfig {
            tokens: path.clone(),
            allow: vec!["10.1.0.0/16".to_owned(), "::1".to_owned()],
            ..SecurityConfig::default()
        };
        let guard = Guard::open(&config, &Registry::default()).unwrap();
        assert_eq!(guard.rights_of(Some("0123456789abcdef")), Some(Rights::All));
        assert_eq!(
            guard.rights_of(Some("sends-0123456789")),
            Some(Rights::Write)
        );
        assert_eq!(guard.rights_of(Some("0123456789abcdee")), None);
        assert_eq!(guard.rights_of(None), None);
        assert!(Rights::All.include(Rights::Read) && !Rights::Write.include(Rights::Read));
        let takes = |text: &str| guard.takes(text.parse().unwrap());
        assert!(takes("10.1.2.3") && takes("::ffff:10.1.2.3") && takes("::1"));
        assert!(!takes("10.2.0.1"));
        assert_eq!(guard.refused[0].value(), 1);
        for wrong in ["short", "0123456789abcdef order", "0123456789abcdef read x"] {
            std::fs::write(&path, format!("\n{wrong}\n")).unwrap();
            let error = read_tokens(&path).unwrap_err();
            assert!(
                matches!(error, SecurityError::Line { line: 2, .. }),
                "{error}"
            );
        }
    }
}
