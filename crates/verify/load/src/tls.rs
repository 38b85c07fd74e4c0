//! TLS of clients: whom they trust.

use crate::plan::Tls;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, Resumption};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme, version::TLS13};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Certificates of authorities that Debian trusts.
const SYSTEM: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Reasons why clients cannot speak TLS.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file of certificates that cannot be read.
    #[error("cannot read certificates of authorities from {}: {reason}", path.display())]
    Authorities {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// The library refuses.
    #[error("cannot set up TLS: {0}")]
    Library(#[from] Error),
}

/// Returns the configuration of clients: version 1.3, by ring, each connection with a handshake of its own.
pub(crate) fn config(tls: &Tls) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[&TLS13])?;
    let mut config = match tls {
        Tls::Any => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Any(provider)))
            .with_no_client_auth(),
        Tls::Authorities(path) => {
            let path = path.as_deref().unwrap_or(Path::new(SYSTEM));
            builder
                .with_root_certificates(roots(path)?)
                .with_no_client_auth()
        }
    };
    // Clients are to be different ones.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let failed = |reason: String| TlsError::Authorities {
        path: path.to_owned(),
        reason,
    };
    let certificates = CertificateDer::pem_file_iter(path).map_err(|e| failed(e.to_string()))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates.filter_map(Result::ok));
    if roots.is_empty() {
        return Err(failed("found none, expected at least one".to_owned()));
    }
    Ok(roots)
}

/// Trust in any server, for tests of services whose certificate is not the question.
#[derive(Debug)]
struct Any(Arc<CryptoProvider>);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("version 1.2 is not offered".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
