//! HTTP client of the movers that need no other program.

use super::{Access, DestinationError};
use rustls::crypto::ring;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use ureq::Agent;
use ureq::tls::{PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};

/// Longest time until a server takes a connection, and until it answers.
const CONNECT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(300);

/// Creates a client for the server at `url`, the one of `destination`.
///
/// # Errors
///
/// [`DestinationError`] if `url` is encrypted and there is no certificate to check the server by.
pub(super) fn agent(
    url: &str,
    destination: &str,
    access: &Access,
) -> Result<Agent, DestinationError> {
    let config = Agent::config_builder()
        .timeout_connect(Some(CONNECT))
        .timeout_recv_response(Some(ANSWER))
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .user_agent("sheaf-ship");
    let config = if url.starts_with("https://") {
        let ca = access.ca.as_ref().ok_or_else(|| DestinationError::NoCa {
            destination: destination.to_owned(),
        })?;
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .root_certs(roots(ca)?)
            .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()));
        config.tls_config(tls.build())
    } else {
        config
    };
    Ok(config.build().into())
}

/// Reads the certificates in a PEM file.
fn roots(path: &Path) -> Result<RootCerts, DestinationError> {
    let refused = |error: String| DestinationError::Access {
        path: path.to_owned(),
        error,
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
