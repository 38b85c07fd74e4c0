//! A certificate that was read.

use crate::error::IdentityError;
use crate::files;
use crate::moment::{Moment, Validity};
use crate::name::Identity;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// Certificate, with the fields that a farm uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The file that it was read from.
    pub path: PathBuf,
    /// Subject, such as `CN=epn:3, O=north`.
    pub subject: String,
    /// Issuer.
    pub issuer: String,
    /// Subject alternative names, as text.
    pub names: Vec<String>,
    /// The one node that it names; `None` for a CA, and for what is none of ours.
    pub identity: Option<Identity>,
    /// Whether it may sign others.
    pub is_authority: bool,
    /// Period of validity.
    pub validity: Validity,
    /// SHA-256 of its DER encoding, as 32 hexadecimal pairs with colons.
    pub fingerprint: String,
    pub(crate) der: CertificateDer<'static>,
}

impl Certificate {
    /// Reads the first certificate of the PEM file at `path`. Neither dates nor signature are looked at.
    ///
    /// # Errors
    ///
    /// [`IdentityError`] if the file is missing, is no PEM, or holds no certificate.
    pub fn load(path: &Path) -> Result<Self, IdentityError> {
        Self::load_as(path, "certificate")
    }

    pub(crate) fn load_as(path: &Path, what: &'static str) -> Result<Self, IdentityError> {
        Self::from_pem(&files::read(path, what)?, path, what)
    }

    /// As [`load`](Self::load), of `text` that `path` names in messages.
    pub(crate) fn from_pem(
        text: &str,
        path: &Path,
        what: &'static str,
    ) -> Result<Self, IdentityError> {
        let der = CertificateDer::from_pem_slice(text.as_bytes()).map_err(|error| {
            IdentityError::NotPem {
                what,
                path: path.to_owned(),
                detail: error.to_string(),
            }
        })?;
        let read = Contents::read(&der).map_err(|detail| IdentityError::Damaged {
            path: path.to_owned(),
            detail,
        })?;
        let Contents {
            subject,
            issuer,
            names,
            is_authority,
            validity,
        } = read;
        Ok(Self {
            path: path.to_owned(),
            subject,
            issuer,
            identity: identity_of(&names),
            names,
            is_authority,
            validity,
            fingerprint: fingerprint(&der),
            der,
        })
    }

    /// Checks that the certificate is valid at `now`.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Expired`] or [`IdentityError::NotYetValid`].
    pub fn check_validity(&self, now: Moment) -> Result<(), IdentityError> {
        let (path, subject) = (self.path.clone(), self.subject.clone());
        let Validity {
            not_before,
            not_after,
        } = self.validity;
        if now < not_before {
            return Err(IdentityError::NotYetValid {
                path,
                subject,
                not_before,
                now,
            });
        }
        if now > not_after {
            return Err(IdentityError::Expired {
                path,
                subject,
                not_after,
                now,
            });
        }
        Ok(())
    }
}

/// Decoded certificate, of this node or of a peer.
pub(crate) struct Contents {
    pub(crate) subject: String,
    pub(crate) issuer: String,
    pub(crate) names: Vec<String>,
    pub(crate) is_authority: bool,
    pub(crate) validity: Validity,
}

impl Contents {
    /// Reads DER bytes; the error is what the parser says.
    pub(crate) fn read(der: &[u8]) -> Result<Self, String> {
        let (_, found) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
        let names = found
            .subject_alternative_name()
            .map_err(|error| error.to_string())?
            .map(|extension| extension.value.general_names.as_slice())
            .unwrap_or_default();
        Ok(Self {
            subject: found.subject().to_string(),
            issuer: found.issuer().to_string(),
            names: names.iter().map(name_text).collect(),
            is_authority: found.is_ca(),
            validity: Validity {
                not_before: Moment(found.validity().not_before.timestamp()),
                not_after: Moment(found.validity().not_after.timestamp()),
            },
        })
    }
}

fn name_text(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::URI(uri) => (*uri).to_owned(),
        other => other.to_string(),
    }
}

/// Returns the node that a certificate names. Two names of ours are as good as none: which would count?
pub(crate) fn identity_of(names: &[String]) -> Option<Identity> {
    let mut ours = names.iter().filter(|name| name.starts_with("sheaf:"));
    let identity = ours.next()?.parse().ok()?;
    ours.next().is_none().then_some(identity)
}

fn fingerprint(der: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, der);
    let mut text = String::with_capacity(95);
    for (index, byte) in digest.as_ref().iter().enumerate() {
        let colon = if index > 0 { ":" } else { "" };
        write!(text, "{colon}{byte:02x}").expect("writing to a String does not fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_of_ours_is_an_identity_and_two_are_none() {
        let names = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| (*text).to_owned())
                .collect::<Vec<_>>()
        };
        let of = |texts: &[&str]| identity_of(&names(texts)).map(|found| found.to_string());
        assert_eq!(
            of(&["x", "sheaf://a/epn/1"]),
            Some("sheaf://a/epn/1".to_owned())
        );
        assert_eq!(of(&["sheaf://a/epn/1", "sheaf://a/icn/0"]), None);
        assert_eq!(of(&["sheaf://a/epn/01"]), None);
        assert_eq!(of(&[]), None);
    }
}
