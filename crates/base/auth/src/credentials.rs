//! Credentials of a node: its certificate, its key, and the CA that it trusts.

use crate::authority::Pem;
use crate::certificate::Certificate;
use crate::error::IdentityError;
use crate::files::{self, CertFiles};
use crate::moment::Moment;
use crate::name::Identity;
use crate::verify;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, UnixTime};
use sheaf_protocol::NodeId;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A certificate that was held against its key, its CA, the date and the node that it should be of.
pub struct Credentials {
    pub(crate) identity: Identity,
    pub(crate) certificate: Certificate,
    pub(crate) key: PrivateKeyDer<'static>,
    pub(crate) roots: Arc<RootCertStore>,
}

impl Credentials {
    /// Reads `files` and checks all that can be known of them: they exist, no other user can read the key, the CA
    /// has signed the certificate, both hold at `now`, and the certificate is of `node`.
    ///
    /// # Errors
    ///
    /// [`IdentityError`], which names the file, its subject and, where it is about a date, that.
    pub fn load(files: &CertFiles, node: NodeId, now: Moment) -> Result<Self, IdentityError> {
        let ca = Certificate::load_as(&files.ca, "CA certificate")?;
        let certificate = Certificate::load(&files.certificate)?;
        let key = files::read_key(&files.key)?;
        let found = Self::check(ca, certificate, &key, files, now)?;
        if found.identity.node != node {
            return Err(IdentityError::WrongNode {
                path: files.certificate.clone(),
                subject: found.certificate.subject,
                found: found.identity,
                expected: node,
            });
        }
        Ok(found)
    }

    /// As [`load`](Self::load), of what was just issued or is held in memory, for whatever node it names.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load); files are named by what they hold.
    pub fn from_pem(pem: &Pem, ca_pem: &str, now: Moment) -> Result<Self, IdentityError> {
        let files = CertFiles {
            certificate: "certificate".into(),
            key: "key".into(),
            ca: "CA".into(),
        };
        let ca = Certificate::from_pem(ca_pem, &files.ca, "CA certificate")?;
        let certificate =
            Certificate::from_pem(&pem.certificate, &files.certificate, "certificate")?;
        Self::check(ca, certificate, &pem.key, &files, now)
    }

    fn check(
        ca: Certificate,
        certificate: Certificate,
        key: &str,
        files: &CertFiles,
        now: Moment,
    ) -> Result<Self, IdentityError> {
        if !ca.is_authority {
            let (path, subject) = (ca.path, ca.subject);
            return Err(IdentityError::NotAuthority { path, subject });
        }
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| {
            IdentityError::NotPem {
                what: "private key",
                path: files.key.clone(),
                detail: error.to_string(),
            }
        })?;
        ca.check_validity(now)?;
        certificate.check_validity(now)?;
        let roots = roots_of(&ca)?;
        check_signature(&certificate, &ca, &roots, now)?;
        let subject = certificate.subject.clone();
        let Some(identity) = certificate.identity.clone() else {
            let path = certificate.path;
            return Err(IdentityError::NoNode { path, subject });
        };
        if !verify::is_key_of(&certificate.der, &key) {
            return Err(IdentityError::WrongKey {
                key: files.key.clone(),
                certificate: certificate.path,
                subject,
            });
        }
        Ok(Self {
            identity,
            certificate,
            key,
            roots,
        })
    }

    /// Returns the identity of the owner.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the certificate.
    #[must_use]
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }
}

impl fmt::Debug for Credentials {
    /// Formats everything but the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

fn roots_of(ca: &Certificate) -> Result<Arc<RootCertStore>, IdentityError> {
    let mut roots = RootCertStore::empty();
    roots
        .add(ca.der.clone())
        .map_err(|error| IdentityError::Damaged {
            path: ca.path.clone(),
            detail: error.to_string(),
        })?;
    Ok(Arc::new(roots))
}

/// Our own certificate, held against our CA as a peer would do it: told here and now, not by its alert.
fn check_signature(
    certificate: &Certificate,
    ca: &Certificate,
    roots: &RootCertStore,
    now: Moment,
) -> Result<(), IdentityError> {
    let since = Duration::from_secs(u64::try_from(now.0).unwrap_or(0));
    let now = UnixTime::since_unix_epoch(since);
    verify::verify(&certificate.der, &[], roots, now).map_err(|error| {
        IdentityError::WrongAuthority {
            path: certificate.path.clone(),
            subject: certificate.subject.clone(),
            ca: ca.path.clone(),
            ca_subject: ca.subject.clone(),
            detail: error.to_string(),
        }
    })
}
