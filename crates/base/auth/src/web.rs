//! TLS with programs that are no nodes of a farm: browsers, Grafana, agents of others.
//!
//! Such a client knows a server by its host name and has no certificate of the farm, so names are checked as everywhere
//! else on the web, and a client may have a certificate but need not. Version 1.3 only, by ring.

use crate::error::IdentityError;
use crate::files;
use crate::verify::crypto;
use rustls::client::{ClientConfig, Resumption};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use rustls::{RootCertStore, version::TLS13};
use std::path::Path;
use std::sync::Arc;

/// Returns the configuration of a server with the chain of certificates and the private key in two PEM files.
///
/// With `clients`, the PEM file of a CA, a client may prove itself by a certificate that this CA signed; one of another
/// CA is refused, a client without one goes on.
///
/// # Errors
///
/// [`IdentityError`] if a file cannot be read, holds something else, or the key can be read by others.
pub fn server(
    certificate: &Path,
    key: &Path,
    clients: Option<&Path>,
) -> Result<Arc<ServerConfig>, IdentityError> {
    let chain = certificates(certificate, "certificate")?;
    let text = files::read_key(key)?;
    let key =
        PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| IdentityError::NotPem {
            what: "private key",
            path: key.to_owned(),
            detail: error.to_string(),
        })?;
    let provider = Arc::new(crypto());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| failed(certificate, &error))?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots(ca)?, provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| failed(ca, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| failed(certificate, &error))?;
    config.send_tls13_tickets = 1;
    Ok(Arc::new(config))
}

/// Returns the configuration of a client that trusts servers whose certificate the CA in the PEM file `ca` signed.
///
/// # Errors
///
/// [`IdentityError`] if the file cannot be read or holds no certificate.
pub fn client(ca: &Path) -> Result<Arc<ClientConfig>, IdentityError> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(crypto()))
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| failed(ca, &error))?
        .with_root_certificates(roots(ca)?)
        .with_no_client_auth();
    config.resumption = Resumption::in_memory_sessions(16);
    Ok(Arc::new(config))
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> IdentityError {
    IdentityError::Tls {
        path: path.to_owned(),
        detail: error.to_string(),
    }
}

fn roots(ca: &Path) -> Result<Arc<RootCertStore>, IdentityError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca, "CA certificate")? {
        roots.add(certificate).map_err(|error| failed(ca, &error))?;
    }
    Ok(Arc::new(roots))
}

/// Reads all certificates of a PEM file, one at least.
fn certificates(
    path: &Path,
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let text = files::read(path, what)?;
    let no_pem = |detail: String| IdentityError::NotPem {
        what,
        path: path.to_owned(),
        detail,
    };
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let all = all.map_err(|error| no_pem(error.to_string()))?;
    if all.is_empty() {
        return Err(no_pem("the file has none".to_owned()));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Authority, Validity};

    #[test]
    fn files_make_both_ends_and_wrong_ones_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let authority = Authority::new("north", Validity::of_days(2)).unwrap();
        authority.save(folder.path(), false).unwrap();
        let pem = authority.issue_host(&["localhost", "127.0.0.1"], Validity::of_days(1));
        let pem = pem.unwrap();
        files::write(&at("host.pem"), &pem.certificate, 0o644).unwrap();
        files::write(&at("host.key"), &pem.key, 0o600).unwrap();
        let ca = at("ca.pem");
        assert!(server(&at("host.pem"), &at("host.key"), Some(&ca)).is_ok());
        assert!(client(&ca).is_ok());
        let text = client(&at("host.key")).unwrap_err().to_string();
        assert!(text.contains("host.key is no CA certificate"), "{text}");
        files::write(&at("open.key"), &pem.key, 0o644).unwrap();
        let error = server(&at("host.pem"), &at("open.key"), None).unwrap_err();
        assert!(matches!(error, IdentityError::KeyOpenToOthers { .. }));
        let error = server(&at("none.pem"), &at("host.key"), None).unwrap_err();
        assert!(matches!(error, IdentityError::Unreadable { .. }));
    }
}
