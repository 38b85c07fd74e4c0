//! Peers that have no scruples about whom they trust, and show whatever certificate they like.

use super::{NONE, Scene};
use crate::authority;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};
use sheaf_auth::{Authority, Moment, Pem, Validity, parse_node};
use sheaf_transport::tcp::Refused;
use sheaf_transport::{TcpConfig, TlsFailure};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Configuration of a rogue peer: trusts any certificate, and shows `pem` or nothing.
fn rogue(address: &str, pem: Option<Pem>) -> JoinHandle<String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Gullible));
    let config = match pem {
        Some(pem) => {
            let chain = CertificateDer::from_pem_slice(pem.certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(pem.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![chain], key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    let mut stream = TcpStream::connect(address).unwrap();
    std::thread::spawn(move || {
        let name = ServerName::try_from("sheaf").unwrap();
        let mut session = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut tls = rustls::Stream::new(&mut session, &mut stream);
        match tls
            .write_all(b"SHF1")
            .and_then(|()| tls.read(&mut [0; 100]))
        {
            Ok(bytes) => format!("read {bytes} bytes"),
            Err(error) => error.to_string(),
        }
    })
}

/// Takes every certificate for good.
#[derive(Debug)]
struct Gullible;

impl ServerCertVerifier for Gullible {
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
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// A rogue that shows what `make` gives is turned away with this failure and alert, and is counted.
#[track_caller]
fn check_rogue(
    make: impl Fn(&Authority) -> Option<Pem>,
    expected: impl Fn(&TlsFailure) -> bool,
    alert: &str,
    counted: Refused,
) {
    let mut scene = Scene::new(TcpConfig::default());
    let pem = make(&scene.authority);
    let rogue = rogue(&scene.address, pem);
    let failure = scene.await_refusal();
    assert!(expected(&failure), "{failure}");
    assert_eq!(scene.refused(), counted);
    assert_eq!(scene.server.stats().accepted, 0);
    let said = rogue.join().unwrap();
    assert!(said.contains(alert), "{said}");
    scene.check_honest();
}

const ONE_CERTIFICATE: Refused = Refused {
    tls_certificate: 1,
    ..NONE
};

#[test]
fn a_client_without_a_certificate_is_refused() {
    let counted = Refused {
        tls_no_certificate: 1,
        ..NONE
    };
    let expected = |failure: &TlsFailure| *failure == TlsFailure::NoCertificate;
    check_rogue(|_| None, expected, "CertificateRequired", counted);
}

#[test]
fn a_certificate_of_the_clients_own_making_is_refused() {
    let make = |_: &Authority| {
        let node = parse_node("flp:5").unwrap();
        Some(authority().issue(node, Validity::of_days(1)).unwrap())
    };
    let expected = |failure: &TlsFailure| failure.to_string().contains("not signed by the CA");
    // The CA has the same name as ours, so it is its signature that is wrong.
    check_rogue(make, expected, "DecryptError", ONE_CERTIFICATE);
}

#[test]
fn a_certificate_that_has_expired_is_refused_with_its_date() {
    let now = Moment::now();
    let (not_before, not_after) = (now.plus_days(-3), now.plus_days(-1));
    let make = |ours: &Authority| {
        let validity = Validity {
            not_before,
            not_after,
        };
        Some(ours.issue(parse_node("flp:5").unwrap(), validity).unwrap())
    };
    let text = format!("it expired at {not_after}");
    let expected = |failure: &TlsFailure| failure.to_string().contains(&text);
    check_rogue(make, expected, "CertificateExpired", ONE_CERTIFICATE);
}

#[test]
fn a_certificate_that_does_not_hold_yet_is_refused_with_its_date() {
    let now = Moment::now();
    let (not_before, not_after) = (now.plus_days(1), now.plus_days(3));
    let make = |ours: &Authority| {
        let validity = Validity {
            not_before,
            not_after,
        };
        Some(ours.issue(parse_node("flp:5").unwrap(), validity).unwrap())
    };
    let text = format!("it is valid from {not_before} on");
    let expected = |failure: &TlsFailure| failure.to_string().contains(&text);
    check_rogue(make, expected, "CertificateExpired", ONE_CERTIFICATE);
}

#[test]
fn a_damaged_certificate_is_refused() {
    let make = |ours: &Authority| {
        let node = parse_node("flp:5").unwrap();
        let mut pem = ours.issue(node, Validity::of_days(1)).unwrap();
        let mut der = CertificateDer::from_pem_slice(pem.certificate.as_bytes())
            .unwrap()
            .to_vec();
        // Somewhere in the name: the signature does not fit any more.
        der[60] ^= 1;
        pem.certificate = pem_of(&der);
        Some(pem)
    };
    let expected = |failure: &TlsFailure| matches!(failure, TlsFailure::Certificate(_));
    check_rogue(make, expected, "", ONE_CERTIFICATE);
}

fn pem_of(der: &[u8]) -> String {
    let digits = (b'A'..=b'Z')
        .chain(b'a'..=b'z')
        .chain(b'0'..=b'9')
        .chain(*b"+/");
    let digits: Vec<u8> = digits.collect();
    let mut text = String::new();
    for group in der.chunks(3) {
        let mut bytes = [0; 4];
        bytes[1..=group.len()].copy_from_slice(group);
        let number = u32::from_be_bytes(bytes);
        for digit in 0..4 {
            let index = (number >> (18 - 6 * digit)) & 63;
            let padding = digit > group.len();
            text.push(if padding {
                '='
            } else {
                char::from(digits[index as usize])
            });
        }
    }
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}
