//! Client of other servers: issuers of tokens, and servers that files are copied from and to.

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use ureq::Agent;
use ureq::tls::{PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};

/// Longest time until a server takes a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest time until it answers.
const ANSWER: Duration = Duration::from_secs(60);
/// Authorities that Debian trusts, where none are named.
const SYSTEM: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Reason why no server can be checked.
#[derive(Debug, Error)]
#[error("cannot use the authorities in {}: {reason}", path.display())]
pub struct CaError {
    path: PathBuf,
    reason: String,
}

/// Makes a client that checks servers by the authorities in a PEM file, or by those of the system. Redirections are not
/// followed.
///
/// # Errors
///
/// [`CaError`] if a file that was named cannot be read or has no certificate.
pub(crate) fn agent(ca: Option<&Path>) -> Result<Agent, CaError> {
    let roots = match ca {
        Some(path) => roots(path)?,
        // Without any, https fails with each server, and says why.
        None => roots(Path::new(SYSTEM)).unwrap_or(RootCerts::Specific(Arc::new(Vec::new()))),
    };
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(roots)
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()));
    let config = Agent::config_builder()
        .timeout_connect(Some(CONNECT))
        .timeout_recv_response(Some(ANSWER))
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .user_agent("sheaf-files")
        .tls_config(tls.build());
    Ok(config.build().into())
}

fn roots(path: &Path) -> Result<RootCerts, CaError> {
    let refused = |reason: String| CaError {
        path: path.to_owned(),
        reason,
    };
    let pem = std::fs::read(path).map_err(|error| refused(error.to_string()))?;
    let certificates = parse_pem(&pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let certificates: Vec<_> = certificates.collect();
    if certificates.is_empty() {
        return Err(refused("found no certificate, expected PEM".to_owned()));
    }
    Ok(RootCerts::Specific(Arc::new(certificates)))
}

/// Makes the configuration of TLS with which servers are checked by the authorities in a PEM file, or by those of the
/// system.
///
/// # Errors
///
/// As for [`agent`].
pub(crate) fn tls(ca: Option<&Path>) -> Result<Arc<ClientConfig>, CaError> {
    let path = ca.unwrap_or(Path::new(SYSTEM));
    let refused = |reason: String| CaError {
        path: path.to_owned(),
        reason,
    };
    let mut store = RootCertStore::empty();
    let pem = std::fs::read(path);
    let pem =
        pem.or_else(|error| ca.map_or(Ok(Vec::new()), |_| Err(refused(error.to_string()))))?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| refused(error.to_string()))?;
        // One of the system that this library does not take is none that a server needs.
        let _ = store.add(certificate);
    }
    if store.is_empty() && ca.is_some() {
        return Err(refused("found no certificate, expected PEM".to_owned()));
    }
    // Other servers may be older than TLS 1.3.
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(error.to_string()))?;
    Ok(Arc::new(
        builder.with_root_certificates(store).with_no_client_auth(),
    ))
}

/// Returns whether bytes to this URL are encrypted, or do not leave this machine.
pub(crate) fn is_safe(url: &str) -> bool {
    if url.starts_with("https://") {
        return true;
    }
    let Some(rest) = url.strip_prefix("http://") else {
        return false;
    };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(six) => six.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    // A name before an `@` would hide the host behind it.
    !authority.contains('@')
        && host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_the_machine_is_encrypted() {
        for url in [
            "https://a/b",
            "http://127.0.0.1/",
            "http://127.0.0.2:80",
            "http://[::1]:8080/x",
        ] {
            assert!(is_safe(url), "{url}");
        }
        for url in [
            "http://a/",
            "ftp://127.0.0.1/",
            "127.0.0.1",
            "http://127.0.0.1@evil/",
            "http://10.0.0.1/",
        ] {
            assert!(!is_safe(url), "{url}");
        }
    }

    #[test]
    fn a_file_without_authorities_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = agent(Some(file.path())).unwrap_err().to_string();
        assert!(
            error.contains("found no certificate, expected PEM"),
            "{error}"
        );
        let error = tls(Some(file.path())).unwrap_err().to_string();
        assert!(
            error.contains("found no certificate, expected PEM"),
            "{error}"
        );
        assert!(agent(None).is_ok() && tls(None).is_ok());
    }
}
