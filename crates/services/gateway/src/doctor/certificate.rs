//! Certificate of a server: read from a file, or as a handshake of TLS shows it. Whether it is trusted is not asked.

use super::survey::Certificate;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, Pem, X509Certificate};

/// Verifier that takes every certificate, as the names in it are what is asked for. Nothing is sent over such a
/// connection.
#[derive(Debug)]
struct Any(Vec<SignatureScheme>);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}

/// Returns the certificate that a server shows to a client that asks for `name`.
pub(super) fn shown(
    address: SocketAddr,
    name: &str,
    timeout: Duration,
) -> Result<Certificate, String> {
    let failed =
        |error: &dyn std::fmt::Display| format!("no handshake of TLS at {address}: {error}");
    let provider = ring::default_provider();
    let verifier = Any(provider
        .signature_verification_algorithms
        .supported_schemes());
    let provider: Arc<CryptoProvider> = Arc::new(provider);
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).map_err(|error| failed(&error))?;
    let mut tls = ClientConnection::new(Arc::new(config), name).map_err(|error| failed(&error))?;
    let mut stream =
        TcpStream::connect_timeout(&address, timeout).map_err(|error| failed(&error))?;
    let set = stream.set_read_timeout(Some(timeout));
    set.and_then(|()| stream.set_write_timeout(Some(timeout)))
        .map_err(|error| failed(&error))?;
    while tls.is_handshaking() && tls.peer_certificates().is_none() {
        tls.complete_io(&mut stream)
            .map_err(|error| failed(&error))?;
    }
    let first = tls.peer_certificates().and_then(<[_]>::first);
    let first = first.ok_or_else(|| failed(&"the server shows no certificate"))?;
    parse(first).map_err(|error| failed(&error))
}

/// Reads the first certificate of a file of PEM.
pub(super) fn of_file(path: &Path) -> Result<Certificate, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read(path).map_err(|error| failed(&error))?;
    for pem in Pem::iter_from_buffer(&text) {
        let pem = pem.map_err(|error| failed(&error))?;
        if pem.label == "CERTIFICATE" {
            return parse(&pem.contents).map_err(|error| failed(&error));
        }
    }
    Err(failed(&"found no certificate in PEM"))
}

fn parse(der: &[u8]) -> Result<Certificate, String> {
    let (_, parsed) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
    let validity = parsed.validity();
    let mut found = Certificate {
        from_s: validity.not_before.timestamp(),
        to_s: validity.not_after.timestamp(),
        ..Certificate::default()
    };
    let names = parsed
        .subject_alternative_name()
        .map_err(|error| error.to_string())?;
    for name in names.iter().flat_map(|names| &names.value.general_names) {
        match name {
            GeneralName::DNSName(name) => found.names.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => found.addresses.extend(address(bytes)),
            _ => {}
        }
    }
    Ok(found)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}
