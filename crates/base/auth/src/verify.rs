//! Cryptography of certificates: the suites, and the checks against the CA and the private key.

use rustls::RootCertStore;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring::cipher_suite;
use rustls::crypto::{CryptoProvider, ring as provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::ParsedCertificate;

/// Returns the suites of TLS 1.3, the fastest first: AES with 128 bits runs at 4.5 GB/s a core with AES-NI, and no
/// attack on it is nearer than on 256.
pub(crate) fn crypto() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..provider::default_provider()
    }
}

/// Returns whether `key` is the private half of what `certificate` holds.
pub(crate) fn is_key_of(
    certificate: &CertificateDer<'static>,
    key: &PrivateKeyDer<'static>,
) -> bool {
    let chain = vec![certificate.clone()];
    rustls::sign::CertifiedKey::from_der(chain, key.clone_key(), &crypto())
        .is_ok_and(|pair| pair.keys_match().is_ok())
}

/// Verifies a certificate against the CA, at `now`.
pub(crate) fn verify(
    certificate: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    roots: &RootCertStore,
    now: UnixTime,
) -> Result<(), rustls::Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    let algorithms = crypto().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(&parsed, roots, intermediates, now, algorithms)
}
