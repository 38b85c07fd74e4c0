//! TLS configurations: version 1.3 only, and each end proves who it is.
//!
//! A node is known by the URI in its certificate, not by a host name: nodes are found by address, and an address is
//! no proof of anything. So the name check of a browser is left out, and [`Tls::peer`] takes its place.

use crate::certificate::{Contents, identity_of};
use crate::credentials::Credentials;
use crate::error::IdentityError;
use crate::moment::{Moment, Validity};
use crate::name::Identity;
use crate::verify::{crypto, verify};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, Resumption};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ServerConfig, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// Sessions that a listener remembers, so that a peer that reconnects needs no full handshake: more than a farm has
/// nodes. Each is about 1 KB.
const SESSIONS_MAX: usize = 4096;

/// TLS configurations of a node, for both ends of connections. Cheap to clone.
#[derive(Clone)]
pub struct Tls {
    identity: Arc<Identity>,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// Reason to refuse a peer whose certificate the CA has signed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PeerError {
    /// Peer without a certificate.
    #[error("the peer has no certificate")]
    NoCertificate,
    /// Certificate cannot be read.
    #[error("the certificate of the peer is damaged: {0}")]
    Damaged(String),
    /// Certificate does not hold now: it was resumed from a session that is older.
    #[error("the certificate of the peer ({subject}) is valid from {not_before} to {not_after}")]
    Date {
        /// The subject.
        subject: String,
        /// The first moment.
        not_before: Moment,
        /// The last moment.
        not_after: Moment,
    },
    /// Certificate names no node.
    #[error("the certificate of the peer ({subject}) names no node")]
    NoNode {
        /// The subject.
        subject: String,
    },
    /// Node of another farm.
    #[error("the peer is {found}, expected a node of farm {expected}")]
    OtherFarm {
        /// Identity of the peer.
        found: Identity,
        /// Our farm.
        expected: String,
    },
}

impl Tls {
    /// Creates both ends of connections with these credentials.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Tls`] if the TLS library does not take them.
    pub fn new(credentials: &Credentials) -> Result<Self, IdentityError> {
        let path = &credentials.certificate.path;
        let failed = |detail: String| IdentityError::Tls {
            path: path.clone(),
            detail,
        };
        let provider = Arc::new(crypto());
        let chain = vec![credentials.certificate.der.clone()];
        let key = || credentials.key.clone_key();
        let roots = credentials.roots.clone();
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| failed(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(FarmVerifier {
                roots: roots.clone(),
            }))
            .with_client_auth_cert(chain.clone(), key())
            .map_err(|error| failed(error.to_string()))?;
        // The name under which sessions are kept is internal to this process.
        client.enable_sni = false;
        // The transport protects the records of an open session itself.
        client.enable_secret_extraction = true;
        client.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| failed(error.to_string()))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key())
            .map_err(|error| failed(error.to_string()))?;
        server.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
        server.send_tls13_tickets = 1;
        server.enable_secret_extraction = true;
        Ok(Self {
            identity: Arc::new(credentials.identity.clone()),
            client: Arc::new(client),
            server: Arc::new(server),
        })
    }

    /// Returns the identity of this node.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// For connections that we make.
    #[must_use]
    pub fn client(&self) -> Arc<ClientConfig> {
        self.client.clone()
    }

    /// For connections that we take.
    #[must_use]
    pub fn server(&self) -> Arc<ServerConfig> {
        self.server.clone()
    }

    /// Returns the identity of a peer, by the chain of certificates that its handshake ended with. The chain was held
    /// against our CA then; a resumed session brings that of its first handshake, so the dates are looked at once
    /// more.
    ///
    /// # Errors
    ///
    /// [`PeerError`] if it is no node of our farm.
    pub fn peer(
        &self,
        chain: Option<&[CertificateDer<'_>]>,
        now: Moment,
    ) -> Result<Identity, PeerError> {
        let first = chain
            .and_then(<[_]>::first)
            .ok_or(PeerError::NoCertificate)?;
        let Contents {
            subject,
            names,
            validity,
            ..
        } = Contents::read(first).map_err(PeerError::Damaged)?;
        let Validity {
            not_before,
            not_after,
        } = validity;
        if now < not_before || now > not_after {
            return Err(PeerError::Date {
                subject,
                not_before,
                not_after,
            });
        }
        let found = identity_of(&names).ok_or(PeerError::NoNode { subject })?;
        if found.farm != self.identity.farm {
            let expected = self.identity.farm.clone();
            return Err(PeerError::OtherFarm { found, expected });
        }
        Ok(found)
    }
}

impl fmt::Debug for Tls {
    /// Formats everything but the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// Verifier of server certificates against the CA of the farm. The name is checked by [`Tls::peer`].
#[derive(Debug)]
struct FarmVerifier {
    roots: Arc<RootCertStore>,
}

impl ServerCertVerifier for FarmVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        verify(end_entity, intermediates, &self.roots, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = crypto().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        crypto()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
