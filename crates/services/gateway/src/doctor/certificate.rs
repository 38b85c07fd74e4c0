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

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use std::net::TcpListener;

    const NAMES: [&str; 2] = ["files.example.org", "10.80.0.100"];

    #[track_caller]
    fn assert_found(found: &Certificate) {
        assert_eq!(found.names, ["files.example.org"]);
        assert_eq!(found.addresses, [IpAddr::from([10, 80, 0, 100])]);
        assert!(found.from_s < found.to_s);
    }

    #[test]
    fn a_handshake_shows_the_names_of_a_certificate_that_is_not_trusted() {
        let made = rcgen::generate_simple_self_signed(NAMES.map(str::to_owned)).expect("made");
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config =
            rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("versions")
                .with_no_client_auth()
                .with_single_cert(vec![made.cert.der().clone()], PrivateKeyDer::Pkcs8(key))
                .expect("a key that fits");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the client");
            let mut tls = rustls::ServerConnection::new(Arc::new(config)).expect("a connection");
            // The client leaves when it has seen the certificate.
            while tls.is_handshaking() && tls.complete_io(&mut stream).is_ok() {}
        });
        let soon = Duration::from_secs(30);
        assert_found(&shown(address, NAMES[0], soon).expect("a certificate"));
        server.join().expect("no panic");
    }

    #[test]
    fn a_server_without_tls_shows_none() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = std::thread::spawn(move || drop(listener.accept()));
        let error = shown(address, NAMES[0], Duration::from_secs(30)).expect_err("no TLS");
        assert!(
            error.starts_with("no handshake of TLS at 127.0.0.1"),
            "{error}"
        );
        server.join().expect("no panic");
    }

    #[test]
    fn the_first_certificate_of_a_file_is_read() {
        let made = rcgen::generate_simple_self_signed(NAMES.map(str::to_owned)).expect("made");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("host.pem");
        let error = of_file(&path).expect_err("not there");
        assert!(error.contains("host.pem"), "{error}");
        let key = made.signing_key.serialize_pem();
        std::fs::write(&path, &key).expect("written");
        let error = of_file(&path).expect_err("a key alone");
        assert!(error.contains("found no certificate"), "{error}");
        std::fs::write(&path, key + &made.cert.pem()).expect("written");
        assert_found(&of_file(&path).expect("a certificate"));
    }
}
